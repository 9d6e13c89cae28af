"""SIGTERM during each attack: how long the service takes to end, and how."""

import subprocess
import time
from collections.abc import Mapping
from typing import Any

from rehearsal.load.server import serving
from rehearsal.siege.attacks import Attack
from rehearsal.siege.bystanders import EVERYTHING, MANY_CALLERS, Pace, any_attack, attacked
from rehearsal.siege.costly import ATTACKS
from service.settings import Settings

_CALLERS = 8
_ATTACKED_SECONDS = 2.0  # before the signal
_ENDING_SECONDS = 2.0  # for processes to end, once requests have had their time


def most_seconds() -> float:
    """Return how long it may take: what the settings promise, drain and requests in flight."""
    settings = Settings()
    return settings.drain_seconds + settings.shutdown_seconds + _ENDING_SECONDS


def stop_during_attacks(environment: Mapping[str, object], module: str, *, each: bool) -> dict[str, Any]:
    """Return the seconds and the exit code of a stop during all attacks at once and, if wanted, during each alone."""
    attacks: dict[str, Attack] = {EVERYTHING: any_attack}
    if each:
        attacks |= {name: attack for name, (attack, _) in ATTACKS.items()}
    return {name: _stop(environment, module, attack, name == EVERYTHING) for name, attack in attacks.items()}


def given_way(stops: Mapping[str, Any]) -> list[str]:
    """Return which stops took too long, or ended in another way than orderly."""
    most = most_seconds()
    return [
        f"a stop during {name}: {stop['seconds']} s, exit code {stop['exit_code']}"
        for name, stop in stops.items()
        if stop["exit_code"] != 0 or stop["seconds"] > most
    ]


def _stop(environment: Mapping[str, object], module: str, attack: Attack, is_everything: bool) -> dict[str, Any]:
    pace = Pace(MANY_CALLERS if is_everything else _CALLERS, until_answered=False)
    with serving({**environment, "PEAKPLAN_REPLICAS": 1}, module) as server:
        port = int(server.url.rpartition(":")[2])
        with attacked(port, attack, 1, pace):
            time.sleep(_ATTACKED_SECONDS)
            started = time.monotonic()
            try:
                code: int | None = server.stop()
            except subprocess.TimeoutExpired:  # `serving` kills it
                code = None
            taken = time.monotonic() - started
    return {"seconds": round(taken, 2), "exit_code": code}
