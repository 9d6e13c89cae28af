"""`python -m rehearsal.light_host`: the real service over replicas that wait for a recorded time and run no model.

Gateway, queue, admission, cache, replica processes and telemetry are the service's own. A replica is busy for as long
as one was for a prompt of that length on the machine that `peakplan bench load` measured: a hash of the prompt draws
the time, so that the twin knows it, too. The plan is one that is valid for every question.

`LIGHT_FIGURE` names another file of service times, `LIGHT_TIMES` is a factor of them, and `LIGHT_SLOWDOWN` a file that
a rehearsal writes another factor into.
"""

from __future__ import annotations

import hashlib
import json
import os
import select
import sys
import time
from bisect import bisect
from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from itertools import pairwise
from pathlib import Path
from typing import Any

from service.engines.protocol import GenerationRequest, GenerationResult
from service.engines.worker.messages import ModelSource
from service.engines.worker.process import WorkerModel

FIGURE = Path(__file__).parents[1] / "docs" / "figures" / "serving.json"
# The counts are those of no model.
_COUNTS: dict[str, Any] = {"prompt_tokens": 3, "plan_tokens": 2, "forwards": 2, "decisions": 1, "forced_tokens": 1}
_WHOLE = GenerationResult(text=" find Any", tokens=[1, 2], stop_reason="finished", seconds=0.0, **_COUNTS)
_CUT_SHORT = replace(_WHOLE, text="", stop_reason="cancelled")
_SLICE = 0.05  # seconds between two looks for a cancellation


@dataclass(frozen=True)
class RecordedTimes:
    """Service seconds by band of prompt lengths: `edges` are the characters at which the next band begins."""

    edges: tuple[float, ...]
    quantiles: tuple[tuple[float, ...], ...]

    @staticmethod
    def read(figure: Path = FIGURE, times: float = 1.0) -> RecordedTimes:
        """Return what the figure recorded, `times` as long. Raises OSError, ValueError, KeyError."""
        bands = json.loads(figure.read_text(encoding="utf-8"))["service_times"]["bands"]
        lengths = [band["mean_characters"] for band in bands]
        return RecordedTimes(
            tuple((short + long) / 2 for short, long in pairwise(lengths)),
            tuple(tuple(times * each / 1000 for each in band["quantiles_ms"]) for band in bands),
        )

    def seconds(self, prompt: str) -> float:
        """Return how long a replica is busy with this prompt."""
        quantiles = self.quantiles[bisect(self.edges, len(prompt))]
        drawn = int.from_bytes(hashlib.sha256(prompt.encode()).digest()[:8], "big") / 2**64
        return quantiles[int(drawn * len(quantiles))]


class RecordedModel:
    """A model that waits. It ends at its time, at the deadline, or within _SLICE of a cancellation."""

    id, kernel = "recorded", "recorded"

    def __init__(self, times: RecordedTimes, slowdown: Path) -> None:
        self._times, self._slowdown = times, slowdown

    def watch(self, socket: int) -> None:
        """It asks `cancelled` instead."""

    def generate(self, request: GenerationRequest, cancelled: Callable[[], bool]) -> GenerationResult:
        """Return a plan after the prompt's time; nothing where the deadline comes first."""
        started = time.monotonic()
        ends = started + self._times.seconds(request.prompt) * self._factor()
        stops = min(ends, ends if request.deadline is None else request.deadline)
        while (left := stops - time.monotonic()) > 0 and not cancelled():
            select.select((), (), (), min(left, _SLICE))  # libfaketime breaks time.sleep
        is_whole = stops == ends and time.monotonic() >= ends
        return replace(_WHOLE if is_whole else _CUT_SHORT, seconds=time.monotonic() - started)

    def _factor(self) -> float:
        try:
            return float(self._slowdown.read_text(encoding="ascii"))
        except (OSError, ValueError):  # none, or one that is being written
            return 1.0


def recorded(figure: str, times: float, slowdown: str) -> WorkerModel:
    """Make the model inside its replica's process."""
    return RecordedModel(RecordedTimes.read(Path(figure), times), Path(slowdown))


def main(environment: Mapping[str, str] = os.environ) -> int:
    """Serve with the times of the environment; return 1 with a line on standard error where there are none."""
    from service.__main__ import main as serve  # replicas import this module, too, and need no service around them

    try:
        figure, times = environment.get("LIGHT_FIGURE", str(FIGURE)), float(environment.get("LIGHT_TIMES", "1"))
        RecordedTimes.read(Path(figure), times)
    except (OSError, ValueError, KeyError) as error:
        print(f"no light host: {error}. `peakplan bench load` records times; LIGHT_TIMES is a factor", file=sys.stderr)
        return 1
    arguments = {"figure": figure, "times": times, "slowdown": environment.get("LIGHT_SLOWDOWN", "")}
    return serve(ModelSource("rehearsal.light_host:recorded", arguments, version="recorded", forkable=True))


if __name__ == "__main__":
    sys.exit(main())
