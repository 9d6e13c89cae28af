"""What Locust does before the stalling server. It runs in Locust's environment and imports nothing of this repository.

OMISSION_START is the Unix time at which the first request is due, OMISSION_SECONDS how long requests are sent, and
OMISSION_OUTPUT the file that gets Locust's own response times in milliseconds. OMISSION_PACING: each user asks every so
many seconds, one user after the other, so that enough users make an open loop; without it each asks as soon as its
share of OMISSION_RATE allows, and waits for the answer first.
"""

from __future__ import annotations

import itertools
import json
import os
import time
from pathlib import Path
from typing import Any

import gevent  # type: ignore[import-not-found, import-untyped, unused-ignore]
from locust import (  # type: ignore[import-not-found, import-untyped, unused-ignore]
    FastHttpUser,
    events,
    task,
)

START, SECONDS = float(os.environ["OMISSION_START"]), float(os.environ["OMISSION_SECONDS"])
RATE, PACING = float(os.environ["OMISSION_RATE"]), float(os.environ.get("OMISSION_PACING", "0"))
USERS = int(os.environ["OMISSION_USERS"])
_numbers = itertools.count()
_times: list[float | None] = []


class Shopper(FastHttpUser):  # type: ignore[misc, unused-ignore]
    """One user with a connection of its own."""

    def on_start(self) -> None:
        """Wait until it is this user's turn, so that requests are spread evenly."""
        self.due = START + next(_numbers) / RATE
        gevent.sleep(max(self.due - time.time(), 0))

    def wait_time(self) -> float:
        """Return the seconds until the next request is due; none where the last answer came too late for it."""
        pacing = PACING or USERS / RATE
        # As Locust's own constant_pacing, which counts from the last request. Its first wait would count on_start's.
        self.due = max(self.due + pacing, time.time())
        return self.due - time.time()

    @task  # type: ignore[misc, untyped-decorator, unused-ignore]
    def ask(self) -> None:
        """Ask for a plan."""
        self.client.post("/plan", json={"query": "red shoes"})


@events.request.add_listener  # type: ignore[misc, untyped-decorator, unused-ignore]
def _answered(response_time: float, start_time: float, exception: Any, **_: Any) -> None:
    if START <= start_time < START + SECONDS:
        _times.append(response_time if exception is None else None)


@events.quitting.add_listener  # type: ignore[misc, untyped-decorator, unused-ignore]
def _end(**_: Any) -> None:
    Path(os.environ["OMISSION_OUTPUT"]).write_text(json.dumps(_times), encoding="utf-8")
