"""A plan on a fresh connection each, so many a second: how many are answered inside the deadline."""

import asyncio
import random
import time
from typing import Any

from rehearsal.load.arrivals import poisson
from rehearsal.siege.attacks import exchange
from rehearsal.siege.shapes import HEAD

RATE = 500  # connections a second
_DEADLINE = 0.3
_LEAST_IN_TIME = 0.999


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
            head = await exchange(port, [HEAD + b"Content-Length: %d\r\n\r\n" % len(body) + body])
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


def given_way(found: dict[str, Any]) -> list[str]:
    """Return whether too few were in time."""
    return [f"fresh connections: {found['in_time']:.3%} in time"] if found["in_time"] < _LEAST_IN_TIME else []


def _milliseconds(ordered: list[float], share: float) -> float:
    return round(ordered[int(len(ordered) * share)] * 1000, 1)
