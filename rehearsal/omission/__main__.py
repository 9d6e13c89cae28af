"""`peakplan bench omission`: whether our load generator counts what a stall does, and another one as well.

A server freezes for STALL of every EVERY seconds. Of requests that are sent evenly, whoever waits for whom, this share
waits until the server goes on: the tail is known beforehand. Our generator, and Locust with so many users that none
waits for another, must both report it. Locust with one user, at the same rate, sends the less the longer the server
takes, which is called coordinated omission. Returns 1 where the two do not agree.
"""

from __future__ import annotations

import argparse
import contextlib
import json
import math
import os
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

import uvloop

from peakplan.environment import made
from rehearsal.bench.machine import describe_machine
from rehearsal.load import arrivals
from rehearsal.load.client import LoadGenerator, Shot

FIGURE = Path("docs/figures/omission.json")
RATE, SECONDS = 50.0, 30.0
EVERY, STALL = 5.0, 0.5  # seconds
PACING, FEW = 2.0, 1  # between two requests of a user, longer than a stall; users of the closed loop
SHARES = (0.5, 0.95, 0.99)
TOLERANCE = 0.1  # of a stall, between what the two generators report
_START_SECONDS = 5.0  # until Locust has all its users
_BODY = b'{"query": "red shoes"}'


def main() -> int:
    """Measure, print, write the figure."""
    options = _options()
    python = options.python or made("locust")
    with stalling() as url:
        began = time.time()
        ours = _ours(url, options.seconds)
        opened = _locust(python, url, _next(began), options.seconds, round(RATE * PACING), PACING)
        closed = _locust(python, url, _next(began), options.seconds, FEW)
    figure = {
        "command": "peakplan bench omission",
        "machine": describe_machine(),
        "locust": _version(python),
        "rate": RATE,
        "seconds": options.seconds,
        "every_s": EVERY,
        "stall_s": STALL,
        "users": {"open": round(RATE * PACING), "closed": FEW},
        "expected": {"ms": [round(1000 * expected(share), 1) for share in SHARES]},
        "ours": summary(ours),
        "locust_open": summary(opened),
        "locust_closed": summary(closed),
    }
    print(json.dumps(figure, indent=1))
    options.output.write_text(json.dumps(figure, indent=1) + "\n", encoding="utf-8")
    if not agree(figure):
        print("the generators do not report the same tail: is the machine busy?", file=sys.stderr)
    return int(not agree(figure))


def expected(share: float, every: float = EVERY, stall: float = STALL) -> float:
    """Return the seconds within which this share of requests is answered, if none waits for another to be sent."""
    waiting = stall / every
    return max(stall * (1 - (1 - share) / waiting), 0.0)


def summary(milliseconds: Sequence[float]) -> dict[str, Any]:
    """Return how many answers there were, and quantiles in milliseconds."""
    ordered = sorted(milliseconds)
    return {"answers": len(ordered), "ms": [round(ordered[int(share * len(ordered))], 1) for share in SHARES]}


def agree(figure: dict[str, Any]) -> bool:
    """Return whether both open loops report the tail that is known, and the same."""
    wanted, *found = (figure[name]["ms"] for name in ("expected", "ours", "locust_open"))
    off = [abs(said - known) for each in found for said, known in zip(each[1:], wanted[1:], strict=True)]
    return bool(max(off) <= 1000 * TOLERANCE * figure["stall_s"])


@contextlib.contextmanager
def stalling(every: float = EVERY, stall: float = STALL) -> Iterator[str]:
    """Run the stalling server; yield its URL."""
    command = [sys.executable, "-m", "rehearsal.omission.stalling", str(every), str(stall)]
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as server:
        try:
            assert server.stdout is not None
            yield f"http://127.0.0.1:{int(server.stdout.readline())}"
        finally:
            server.terminate()


def _ours(url: str, seconds: float) -> list[float]:
    shots = [Shot(at, _BODY) for at in arrivals.constant(RATE, seconds)]
    samples = uvloop.run(LoadGenerator(url).fire(shots))
    return [1000 * sample.latency for sample in samples if sample.status == 200]


def _next(began: float) -> float:
    """Return when a period of the server begins, in Unix time, once Locust has had time to start all its users."""
    return began + EVERY * math.ceil((time.time() - began + _START_SECONDS) / EVERY)


def _locust(python: Path, url: str, start: float, seconds: float, users: int, pacing: float = 0.0) -> list[float]:
    """Return Locust's own response times in milliseconds. Raises SystemExit where it fails."""
    with tempfile.TemporaryDirectory() as folder:
        output = Path(folder) / "times.json"
        variables = {
            "OMISSION_START": start,
            "OMISSION_SECONDS": seconds,
            "OMISSION_RATE": RATE,
            "OMISSION_PACING": pacing,
            "OMISSION_USERS": users,
            "OMISSION_OUTPUT": output,
        }
        file = Path(__file__).with_name("locustfile.py")
        words = ["--headless", "--only-summary", "--users", str(users), "--spawn-rate", str(users), "--host", url]
        length = f"{start - time.time() + seconds + pacing:.0f}s"
        done = subprocess.run(
            [python, "-m", "locust", "--locustfile", file, *words, "--run-time", length],
            env={**os.environ, **{name: str(value) for name, value in variables.items()}},
            capture_output=True,
            text=True,
            check=False,
        )
        if not output.is_file():
            sys.exit(f"Locust failed: {done.stderr.strip()[-800:]}. `peakplan tools install locust` installs it")
        return [each for each in json.loads(output.read_text(encoding="utf-8")) if each is not None]


def _version(python: Path) -> str:
    words = "from importlib.metadata import version; print(version('locust'))"
    return subprocess.run([python, "-c", words], capture_output=True, text=True, check=True).stdout.strip()


def _options() -> argparse.Namespace:
    parser = argparse.ArgumentParser(prog="peakplan bench omission", description=__doc__)
    parser.add_argument("--python", type=Path, help="one that has Locust; made unless given")
    parser.add_argument("--seconds", type=float, default=SECONDS, help="of load of each generator")
    parser.add_argument("--output", type=Path, default=FIGURE)
    return parser.parse_args()


if __name__ == "__main__":
    sys.exit(main())
