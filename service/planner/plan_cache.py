"""The plan cache of this process: an LRU cache, with expiry, of the text that the model wrote for a question.

The text is kept and not the plan: a plan quotes words as *this* shopper wrote them, and the model reads them
lower-cased. The text is parsed against the question that it answers, so that no entry, whatever its origin, can put a
word into a plan that is not in the question.
"""

import time
from collections import OrderedDict
from collections.abc import Callable
from dataclasses import dataclass
from typing import Protocol


@dataclass(frozen=True, slots=True)
class CachedPlanText:
    """Text that a model wrote earlier, and what its kind head made of the question, packed; "" where it has none."""

    text: str
    model_id: str
    strategy: str
    meaning: str = ""


class SharedPlanCache(Protocol):
    """A second level shared by several processes. Neither call raises; `get` takes a few milliseconds at most."""

    async def get(self, key: str) -> CachedPlanText | None: ...

    def put(self, key: str, remembered: CachedPlanText) -> None: ...


class PlanCache:
    """A cache of at most `entries` texts, each for `seconds`."""

    def __init__(self, entries: int, seconds: float, clock: Callable[[], float] = time.monotonic) -> None:
        self._entries = entries
        self._seconds = seconds
        self._clock = clock
        self._kept: OrderedDict[str, tuple[float, CachedPlanText]] = OrderedDict()  # least recently used first

    def __len__(self) -> int:
        return len(self._kept)

    def get(self, key: str) -> CachedPlanText | None:
        """Return the text for the key, unless it has expired."""
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
        """Store it for the full time, starting now."""
        self._kept[key] = (self._clock() + self._seconds, remembered)
        self._kept.move_to_end(key)
        while len(self._kept) > self._entries:
            self._kept.popitem(last=False)

    def forget(self, key: str) -> None:
        self._kept.pop(key, None)


class BorrowedPlanCache(PlanCache):
    """Another's cache, to read in: a batch of questions that nobody asks twice would displace what people ask."""

    def __init__(self, lender: PlanCache) -> None:
        super().__init__(0, 0.0)
        self._lender = lender

    def get(self, key: str) -> CachedPlanText | None:
        return self._lender.get(key)

    def put(self, key: str, remembered: CachedPlanText) -> None:
        """Keep nothing."""

    def forget(self, key: str) -> None:
        self._lender.forget(key)
