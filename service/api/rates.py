"""Rate limits for each caller, by token buckets."""

import time
from collections import OrderedDict
from collections.abc import Callable

_MOST_CALLERS = 10_000  # that are remembered; the one idle longest is forgotten, which costs it nothing
_BURST_SECONDS = 1.0


class RateLimiter:
    """Buckets that fill at each caller's rate and hold one second's worth, at least one request."""

    def __init__(self, clock: Callable[[], float] = time.monotonic) -> None:
        self._clock = clock
        self._buckets: OrderedDict[str, tuple[float, float]] = OrderedDict()  # (filled to, when)

    def wait_seconds(self, caller: str, rate: float) -> float:
        """Return 0 when the caller may send a request now, which is counted; else the seconds to wait."""
        if rate <= 0:
            return 0.0
        now, size = self._clock(), max(rate * _BURST_SECONDS, 1.0)
        level, before = self._buckets.get(caller, (size, now))
        level = min(level + (now - before) * rate, size)
        allowed = level >= 1.0
        self._buckets[caller] = (level - 1.0 if allowed else level, now)
        self._buckets.move_to_end(caller)
        if len(self._buckets) > _MOST_CALLERS:
            self._buckets.popitem(last=False)
        return 0.0 if allowed else (1.0 - level) / rate

    def grant(self, caller: str, rate: float, wanted: int) -> int:
        """Return how many requests more a caller may send that can wait, which are counted.

        They leave half of what a second holds to those that cannot.
        """
        if caller not in self._buckets or rate <= 0:
            return wanted
        level, when = self._buckets[caller]
        granted = max(0, min(wanted, int(level - max(rate * _BURST_SECONDS, 1.0) / 2)))
        self._buckets[caller] = (level - granted, when)
        return granted

    def charge(self, caller: str, more: int) -> None:
        """Count so many requests more: the one that was let in is worth them, as only its content tells."""
        if caller in self._buckets:
            level, when = self._buckets[caller]
            self._buckets[caller] = (level - more, when)
