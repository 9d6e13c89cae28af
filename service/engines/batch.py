"""The scheduler of one model's slots: generations share each forward, and one that ends leaves its slot to the next.

Continuous batching (Orca, Yu et al., OSDI 2022) for plans with a deadline. A step of more generations takes longer, for
all of them. So one joins only where nearly all would still be in time; else it waits, and later ones after it.
"""

import time
from collections import deque
from collections.abc import Callable
from dataclasses import dataclass
from typing import Generic, TypeVar

from service.decoding.generation import RunningGeneration, step
from service.engines.protocol import GenerationRequest, GenerationResult
from service.engines.text_model import TextModel

Key = TypeVar("Key")
Outcome = GenerationResult | Exception

_REMEMBERED = 200  # steps of each size, and generations
_NEARLY_ALL = 0.99


@dataclass(frozen=True, slots=True)
class _Request(Generic[Key]):
    key: Key
    request: GenerationRequest
    cancelled: Callable[[], bool]
    asked: float  # on the clock of `time.monotonic`


class Pace:
    """How long steps of each number of generations take, and how many steps a generation takes: 99% of recent ones."""

    def __init__(self) -> None:
        self._seconds: dict[int, deque[float]] = {}
        self._steps: deque[float] = deque(maxlen=_REMEMBERED)

    def add_step(self, size: int, seconds: float) -> None:
        self._seconds.setdefault(size, deque(maxlen=_REMEMBERED)).append(seconds)

    def add_generation(self, steps: int) -> None:
        self._steps.append(steps)

    def remaining(self, size: int, steps: int) -> float:
        """Return the seconds that a generation may still take among `size`, after so many steps; 0 if unknown.

        A size that has not been tried is assumed to take as much longer as it is larger than one that has: then its
        first steps tell.
        """
        if not self._steps or not self._seconds:
            return 0.0
        known = max((tried for tried in self._seconds if tried <= size), default=min(self._seconds))
        each = _quantile(self._seconds[known]) * max(1.0, size / known)
        return each * max(_quantile(self._steps) - steps, 1.0)


def _quantile(values: deque[float]) -> float:
    ordered = sorted(values)
    return ordered[min(len(ordered) - 1, int(_NEARLY_ALL * len(ordered)))]


class Batch(Generic[Key]):
    """Requests to one model, each known by a key, and those of them that have a slot."""

    def __init__(self, model: TextModel, clock: Callable[[], float] = time.monotonic) -> None:
        self._model = model
        self._clock = clock
        self._free = list(reversed(range(model.slots)))
        self._waiting: deque[_Request[Key]] = deque()
        self._running: dict[int, tuple[_Request[Key], RunningGeneration]] = {}
        self._pace = Pace()

    def __len__(self) -> int:
        return len(self._waiting) + len(self._running)

    @property
    def size(self) -> int:
        """Number of generations that share the next forward, or would without those that join."""
        return len(self._running)

    def add(self, key: Key, request: GenerationRequest, cancelled: Callable[[], bool] = lambda: False) -> None:
        self._waiting.append(_Request(key, request, cancelled, self._clock()))

    def step(self) -> list[tuple[Key, Outcome]]:
        """Admit waiting requests, run one forward for all, and return the generations that ended or failed.

        An error of the forward itself is that of every generation in it.
        """
        ended: list[tuple[Key, Outcome]] = []
        self._let_in(ended)
        self._let_out(ended)
        if not self._running:
            return ended
        batch = [running for _, running in self._running.values()]
        started = self._clock()
        try:
            step(batch)
        except Exception as error:
            for running in batch:
                running.error = error
        self._pace.add_step(len(batch), self._clock() - started)
        self._let_out(ended)
        return ended

    def _let_in(self, ended: list[tuple[Key, Outcome]]) -> None:
        while self._waiting and self._free and self._may_join(self._waiting[0]):
            asked = self._waiting.popleft()
            slot = self._free.pop()
            try:
                running = self._model.begin(asked.request, asked.cancelled, slot)
            except Exception as error:
                self._free.append(slot)
                ended.append((asked.key, error))
            else:
                self._running[slot] = asked, running

    def _may_join(self, asked: _Request[Key]) -> bool:
        """Tell whether all would be in time with one more generation. One that is alone is never late by others."""
        if not self._running:
            return True
        now, size = self._clock(), len(self._running) + 1
        everyone = [(each.request, running.statistics.forwards) for each, running in self._running.values()]
        return all(
            request.deadline is None or now + self._pace.remaining(size, steps) <= request.deadline
            for request, steps in [*everyone, (asked.request, 0)]
        )

    def _let_out(self, ended: list[tuple[Key, Outcome]]) -> None:
        for slot in [slot for slot, (_, running) in self._running.items() if not running.goes_on()]:
            asked, running = self._running.pop(slot)
            self._free.append(slot)
            try:
                ended.append((asked.key, self._model.result(running, self._clock() - asked.asked)))
            except Exception as error:
                ended.append((asked.key, error))
            else:
                self._pace.add_generation(running.statistics.forwards)
