"""The plan cache of this process: what the model wrote for a question, kept for a while, the least used given up first.

The model's text is kept and not the plan: a plan names words as *this* shopper wrote them, the model reads them
lower-cased. The text is parsed against the question it is given for, so that no entry, wherever it came from, can put
a word into a plan that the question does not hold.
"""

import time
from collections import OrderedDict
from collections.abc import Callable
from dataclasses import dataclass
from typing import Protocol


@dataclass(frozen=True, slots=True)
class CachedPlanText:
    """What a model once wrote."""

    text: str
    model_id: str
    strategy: str


class SharedPlanCache(Protocol):
    """A second level that several processes share. Neither call raises; `get` takes a few milliseconds at the most."""

    async def get(self, key: str) -> CachedPlanText | None: ...

    def put(self, key: str, remembered: CachedPlanText) -> None: ...


class PlanCache:
    """At most `entries` texts, each for `seconds`."""

    def __init__(self, entries: int, seconds: float, clock: Callable[[], float] = time.monotonic) -> None:
        self._entries = entries
        self._seconds = seconds
        self._clock = clock
        self._kept: OrderedDict[str, tuple[float, CachedPlanText]] = OrderedDict()  # least recently used first

    def __len__(self) -> int:
        return len(self._kept)

    def get(self, key: str) -> CachedPlanText | None:
        """What is kept under the key, unless it is too old."""
        found = self._kept.get(key)
        if found is None:
            return None
        until, remembered = found
        if until <= self._clock():
            del self._kept[key]
            return None
        self._kept.move_to_end(key)
        return remembered

    def put(self, key: str, remembered: CachedPlanText) -> None:
        """Keep it from now on for the full time."""
        self._kept[key] = (self._clock() + self._seconds, remembered)
        self._kept.move_to_end(key)
        while len(self._kept) > self._entries:
            self._kept.popitem(last=False)

    def forget(self, key: str) -> None:
        self._kept.pop(key, None)
