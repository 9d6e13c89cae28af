"""The real service over replicas that only sleep: `python -m rehearsal.twin.live_service`, with the service's settings.

A replica is busy for as long as a seeded distribution says, which both the twin and the replica know from the number in
the question, so that both can be asked the same. TWIN_MEAN_MS, TWIN_P99_MS and TWIN_SEED name the distribution.
"""

from __future__ import annotations

import hashlib
import os
import re
import sys
import time
from collections.abc import Callable
from dataclasses import dataclass, replace
from functools import cached_property
from typing import Any

from rehearsal.twin.work import QUANTILES, Array, log_normal
from service.__main__ import main
from service.engines.protocol import GenerationRequest, GenerationResult
from service.engines.worker.messages import ModelSource
from service.engines.worker.process import WorkerModel

_NUMBER = re.compile(r"\bq(\d{9})\b")
# The plan is valid for every question; the counts are those of no model.
_COUNTS: dict[str, Any] = {"prompt_tokens": 3, "plan_tokens": 2, "forwards": 2, "decisions": 1, "forced_tokens": 1}
_WHOLE = GenerationResult(text=" find Any", tokens=[1, 2], stop_reason="finished", seconds=0.0, **_COUNTS)
_CUT_SHORT = replace(_WHOLE, text="", stop_reason="cancelled")
_SLICE = 0.05  # seconds between two looks for a cancellation


def question(number: int) -> str:
    """Return the question of this number; all are of one length."""
    return f"q{number:09d} shoes"


@dataclass(frozen=True)
class SeededTimes:
    """The service times of numbered questions: log-normal, drawn by a hash of seed and number."""

    mean: float  # seconds
    p99: float
    seed: int

    @cached_property
    def _table(self) -> Array:
        return log_normal(self.mean, self.p99)

    def seconds(self, number: int) -> float:
        """Return how long a replica is busy with this question."""
        drawn = int.from_bytes(hashlib.sha256(f"{self.seed}/{number}".encode()).digest()[:8], "big") / 2**64
        return float(self._table[int(drawn * QUANTILES)])


class SleepingModel:
    """A model that sleeps. It wakes at its time, at the deadline, or within _SLICE of a cancellation."""

    id, kernel = "twin", "sleep"

    def __init__(self, times: SeededTimes) -> None:
        self._times = times

    def watch(self, socket: int) -> None:
        """It asks `cancelled` instead."""

    def generate(self, request: GenerationRequest, cancelled: Callable[[], bool]) -> GenerationResult:
        """Return a plan after the question's time; nothing where the deadline comes first."""
        started = time.monotonic()
        found = _NUMBER.search(request.prompt)
        ends = started + (self._times.seconds(int(found.group(1))) if found else self._times.mean)
        stops = min(ends, ends if request.deadline is None else request.deadline)
        while (left := stops - time.monotonic()) > 0 and not cancelled():
            time.sleep(min(left, _SLICE))
        seconds = time.monotonic() - started
        done = stops == ends and time.monotonic() >= ends
        return replace(_WHOLE if done else _CUT_SHORT, seconds=seconds)


def sleeping(mean: float, p99: float, seed: int) -> WorkerModel:
    """Make the model inside its replica's process."""
    return SleepingModel(SeededTimes(mean, p99, seed))


def live_main() -> int:
    """Serve with the distribution of the environment."""
    mean, p99 = (float(os.environ[name]) / 1000 for name in ("TWIN_MEAN_MS", "TWIN_P99_MS"))
    seed = int(os.environ.get("TWIN_SEED", "1"))
    return main(ModelSource("rehearsal.twin.live_service:sleeping", {"mean": mean, "p99": p99, "seed": seed}))


if __name__ == "__main__":
    sys.exit(live_main())
