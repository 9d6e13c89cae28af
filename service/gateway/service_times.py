"""How long generations take, by the length of their prompts: the last ones, and what they say of the next one.

Pure: it knows neither replicas nor asyncio, and its clock may be a simulated one.
"""

import time
from bisect import bisect_right, insort
from collections import deque
from collections.abc import Callable
from typing import NamedTuple

WINDOW = 128  # generations
MAX_AGE_SECONDS = 15.0  # older ones say little of now,
KEPT = 16  # but the last few are kept: after a quiet minute they are still the best there is
_OUTLIER = 4  # times the median; what is slower counts as that slow where the line is fitted
# The line through lengths and seconds is fitted as if four more generations, 40 characters from the mean, had shown no
# slope: two or three of them must not promise anything about lengths that nobody has asked yet.
_FLAT_PRIOR = 4 * 40.0**2


class _Seen(NamedTuple):
    at: float
    seconds: float
    length: int


class ServiceTimes:
    """A sliding window of durations in seconds, bounded in number and in age.

    A generation takes `base + slope * length` on average, and some share of that more or less: the shares of the window
    are one distribution for all lengths, so that a few generations say something of each. `length` is the prompt's, in
    characters.

    A generation that was cut short counts as lasting until then, and only when that is longer than was to be expected:
    of a client that left at once nothing can be learnt, of a deadline that passed a lot.
    """

    def __init__(self, clock: Callable[[], float] = time.monotonic) -> None:
        self._clock = clock
        self._window: deque[_Seen] = deque()  # oldest first
        self._sorted: list[float] = []  # their seconds
        self._shares: list[float] | None = None  # sorted; seconds by what the line says; None: to be fitted anew
        self._base = self._slope = 0.0

    def __len__(self) -> int:
        self._forget()
        return len(self._window)

    def add(self, seconds: float, length: int = 0, *, whole: bool = True) -> None:
        """Note a generation's duration; `whole` False: it was cut short then."""
        if not whole and seconds <= self.quantile(0.5, length):
            return
        self._window.append(_Seen(self._clock(), seconds, length))
        insort(self._sorted, seconds)
        self._shares = None
        self._forget()

    def quantile(self, share: float, length: int | None = None) -> float:
        """The duration that `share` of generations of this length (None: of all) stay within; 0: nothing is known."""
        shares = self._fitted()
        if length is None:
            return _quantile(self._sorted, share)
        return _quantile(shares, share) * self._line(length)

    def expected(self, length: int) -> float:
        """What a generation of this length takes on average; 0 when nothing is known."""
        return self._line(length) if self._fitted() else 0.0

    def chance(self, seconds: float, length: int) -> float:
        """The share of generations of this length that take at most so long; 1 when nothing is known."""
        shares = self._fitted()
        return bisect_right(shares, seconds / self._line(length)) / len(shares) if shares else 1.0

    @property
    def mean(self) -> float:
        """Mean duration; 0 when nothing is known."""
        self._forget()
        return sum(self._sorted) / len(self._sorted) if self._sorted else 0.0

    def fastest_of_last(self, count: int) -> float:
        """The shortest of the last `count` durations; 0 when there are not so many."""
        self._forget()
        if len(self._window) < count:
            return 0.0
        return min(self._window[-number].seconds for number in range(1, count + 1))

    def clear(self) -> None:
        """Forget everything: another process, perhaps another model, answers from now on."""
        self._window.clear()
        self._sorted.clear()
        self._shares = None

    def _line(self, length: int) -> float:
        return self._base + self._slope * length

    def _fitted(self) -> list[float]:
        """The sorted shares of what the line says, once the line is fitted to the window: least squares, never down."""
        self._forget()
        if self._shares is None:
            self._fit()
            self._shares = sorted(seen.seconds / self._line(seen.length) for seen in self._window)
        return self._shares

    def _fit(self) -> None:
        if not (count := len(self._window)):
            return
        most = _OUTLIER * _quantile(self._sorted, 0.5)
        points = [(seen.length, min(seen.seconds, most)) for seen in self._window]
        mean_length = sum(length for length, _ in points) / count
        mean_seconds = sum(seconds for _, seconds in points) / count
        covariance = sum((length - mean_length) * (seconds - mean_seconds) for length, seconds in points)
        variance = sum((length - mean_length) ** 2 for length, _ in points)
        steepest = mean_seconds / mean_length if mean_length else 0.0  # through the origin
        self._slope = min(max(covariance / (variance + _FLAT_PRIOR), 0.0), steepest)
        self._base = max(mean_seconds - self._slope * mean_length, 1e-6)

    def _forget(self) -> None:
        oldest = self._clock() - MAX_AGE_SECONDS
        while (count := len(self._window)) > KEPT and (count > WINDOW or self._window[0].at < oldest):
            self._sorted.remove(self._window.popleft().seconds)
            self._shares = None


def _quantile(ordered: list[float], share: float) -> float:
    """Rounded down: of two, one that was slow does not speak for both. 0 for none."""
    return ordered[int(share * (len(ordered) - 1))] if ordered else 0.0
