"""SIGTERM during each attack: how long the service takes to end, and how."""

import multiprocessing
import random
import subprocess
import time
from collections.abc import Mapping
from typing import Any

from rehearsal.load.server import serving
from rehearsal.siege.attacks import Attack, Tally
from rehearsal.siege.bystanders import attack_until
from rehearsal.siege.costly import ATTACKS
from service.settings import Settings

EVERYTHING = "all at once"
_CALLERS = 8
_MANY_CALLERS = 48
_ATTACKED_SECONDS = 2.0  # before the signal
_ENDING_SECONDS = 2.0  # for processes to end, once requests have had their time


async def any_attack(port: int, rng: random.Random, tally: Tally) -> None:
    """Attack in any of the ways."""
    attack, _ = rng.choice(list(ATTACKS.values()))
    await attack(port, rng, tally)


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
    context = multiprocessing.get_context("spawn")
    with serving({**environment, "PEAKPLAN_REPLICAS": 1}, module) as server:
        port, ended = int(server.url.rpartition(":")[2]), context.Event()
        callers = _MANY_CALLERS if is_everything else _CALLERS
        attackers = context.Process(target=attack_until, args=(port, attack, callers, 1, ended), daemon=True)
        attackers.start()
        time.sleep(_ATTACKED_SECONDS)
        started = time.monotonic()
        try:
            code: int | None = server.stop()
        except subprocess.TimeoutExpired:  # `serving` kills it
            code = None
        taken = time.monotonic() - started
        ended.set()
        attackers.terminate()
        attackers.join()
    return {"seconds": round(taken, 2), "exit_code": code}
