"""What a siege asks meanwhile: the service's health, and plans on fresh connections, so many a second.

A module of its own: a spawned process cannot find a function of a package's `__main__`.
"""

import asyncio
import random
import socket
import sys
import time
from datetime import UTC, datetime
from multiprocessing.connection import Connection
from typing import Any

from rehearsal.load.arrivals import poisson
from rehearsal.siege.attacks import exchange, request_with

_HEALTH_PAUSE = 0.1
MOST_SECONDS = 0.1  # for an answer about health
RATE = 500  # fresh connections a second
_DEADLINE = 0.3
_LEAST_IN_TIME = 0.999


def watch_health(port: int, answers: Connection) -> None:
    """Ask for liveness and readiness in turn until told to end; send back the seconds of each and what failed."""
    seconds: dict[str, list[float]] = {"/healthz": [], "/readyz": []}
    failed: dict[str, int] = {}
    while not answers.poll(_HEALTH_PAUSE):
        for path, taken in seconds.items():
            started = time.monotonic()
            try:
                with socket.create_connection(("127.0.0.1", port), timeout=20) as client:
                    client.sendall(f"GET {path} HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\n\r\n".encode())
                    answer = client.recv(1024)
                status = answer.split()[1].decode() if answer else "nothing"
            except OSError as error:
                status = type(error).__name__
            taken.append(time.monotonic() - started)
            if taken[-1] > MOST_SECONDS:
                print(f"{datetime.now(UTC):%H:%M:%S.%f} {path} took {taken[-1]:.3f} s", file=sys.stderr, flush=True)
            if status != "200" and not (path == "/readyz" and status == "503"):
                failed[f"{path}: {status}"] = failed.get(f"{path}: {status}", 0) + 1
    answers.send((seconds, failed))


async def fresh_connections(port: int, seconds: float, seed: int) -> dict[str, Any]:
    """Open a connection for each of so many plans a second; count those answered inside the deadline.

    Time counts from when a connection should have been opened; `sent_late_ms` tells how late this program opened it.
    """
    rng, started = random.Random(seed), time.monotonic()
    outcomes: list[tuple[int, float]] = []
    late: list[float] = []

    async def ask(at: float, number: int) -> None:
        body = b'{"query": "red shoes size %d"}' % number
        late.append(time.monotonic() - started - at)
        try:
            head = await exchange(port, [request_with(body)])
            outcomes.append((int(head.split()[1]) if head else 0, time.monotonic() - started - at))
        except OSError:  # a TimeoutError is one
            outcomes.append((0, time.monotonic() - started - at))

    async with asyncio.TaskGroup() as group:
        for at in poisson(RATE, seconds):
            await asyncio.sleep(max(started + at - time.monotonic(), 0))
            group.create_task(ask(at, rng.randrange(10**6)))
    taken = sorted(seconds for _, seconds in outcomes)
    good = sum(status == 200 and seconds <= _DEADLINE for status, seconds in outcomes)
    return {
        "rate": RATE,
        "asked": len(outcomes),
        "in_time": round(good / len(outcomes), 5),
        "refused": sum(status in (429, 503) for status, _ in outcomes),
        "p50_ms": _milliseconds(taken, 0.5),
        "p99_ms": _milliseconds(taken, 0.99),
        "sent_late_ms": _milliseconds(sorted(late), 0.99),
    }


def fresh_given_way(found: dict[str, Any]) -> list[str]:
    """Return whether too few were in time."""
    return [f"fresh connections: {found['in_time']:.3%} in time"] if found["in_time"] < _LEAST_IN_TIME else []


def _milliseconds(ordered: list[float], share: float) -> float:
    return round(ordered[int(len(ordered) * share)] * 1000, 1)
