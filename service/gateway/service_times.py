"""Service times of recent generations, and the estimate for the next one by the length of its prompt.

It is pure: it knows neither replicas nor asyncio, and its clock may be simulated.
"""

import time
from bisect import bisect_right, insort
from collections import deque
from collections.abc import Callable
from operator import mul
from typing import NamedTuple

WINDOW = 128  # in generations
MAX_AGE_SECONDS = 15.0  # older ones say little about the present,
KEPT = 16  # but this many are kept: after a quiet minute they are still the best available
_MOST_LATE = 64  # generations cut short by their deadlines that are remembered
_ABOUT = 1.25  # times as long, in characters or seconds, is about as long
_OUTLIER = 4  # times the median; slower ones count as this slow in the fit
# The fit of seconds by length adds four imaginary generations, 40 characters from the mean, without a slope: two or
# three real ones must not determine an estimate for lengths not seen yet.
_FLAT_PRIOR = 4 * 40.0**2


class _Seen(NamedTuple):
    at: float
    seconds: float
    length: int
    whole: bool = False


class ServiceTimes:
    """A sliding window of durations in seconds, bounded in number and in age.

    A generation takes `base + slope * length` on average, times some ratio: the window's ratios are one distribution
    for all lengths, so that a few generations inform every length. `length` is the prompt's, in characters.

    A generation that was cut short counts as lasting until then, and only when that exceeds the expectation: a client
    that left at once carries no information, a deadline that passed carries much. For the chance of another one that
    is not enough: what never ends in time would seem to end just in time, and be begun again and again.
    """

    def __init__(self, clock: Callable[[], float] = time.monotonic) -> None:
        self._clock = clock
        self._window: deque[_Seen] = deque()  # oldest first
        self._sorted: list[float] = []  # their durations in seconds
        self._shares: list[float] | None = None  # sorted ratios of seconds to the fit; None when it has to be refitted
        self._base = self._slope = 0.0
        self._late: deque[_Seen] = deque(maxlen=_MOST_LATE)  # cut short by their deadlines, oldest first

    def __len__(self) -> int:
        self._forget()
        return len(self._window)

    def add(self, seconds: float, length: int = 0, *, whole: bool = True, late: bool = False) -> None:
        """Record a generation's duration; `whole` False means that it was cut short then, `late` by its deadline."""
        if late:
            self._late.append(_Seen(self._clock(), seconds, length))
            whole = False
        if not whole and seconds <= self.quantile(0.5, length):
            return
        self._window.append(_Seen(self._clock(), seconds, length, whole))
        insort(self._sorted, seconds)
        self._shares = None
        self._forget()

    def quantile(self, share: float, length: int | None = None) -> float:
        """Return the duration within which `share` of generations of this length (None: any) end; 0 when unknown."""
        if length is None:  # needs no fit, which would be the dearest step of a request's admission
            self._forget()
            return _quantile(self._sorted, share)
        return _quantile(self._fitted(), share) * self._line(length)

    def expected(self, length: int) -> float:
        """Return the mean duration of a generation of this length; 0 when unknown."""
        return self._line(length) if self._fitted() else 0.0

    def chance(self, seconds: float, length: int) -> float:
        """Return the share of generations of this length that take at most `seconds`; 1 when unknown.

        Where some of about this length or shorter were late with about as much time, it is at most the share that ended
        of those that tell: a longer one that was cut short tells nothing of this length, nor a shorter one that ended.
        """
        shares = self._fitted()
        if not any(each.whole or each.length <= _ABOUT * length for each in self._window):
            return 1.0
        chance = bisect_right(shares, seconds / self._line(length)) / len(shares)
        late = sum(each.length <= _ABOUT * length and _ABOUT * each.seconds >= seconds for each in self._late)
        if not late:
            return chance
        ended = sum(each.whole and _ABOUT * each.length >= length and each.seconds <= seconds for each in self._window)
        return min(chance, ended / (ended + late))

    @property
    def mean(self) -> float:
        """Mean duration in seconds; 0 when unknown."""
        self._forget()
        return sum(self._sorted) / len(self._sorted) if self._sorted else 0.0

    def fastest_of_last(self, count: int) -> float:
        """Return the shortest of the last `count` durations; 0 when there are fewer."""
        self._forget()
        if len(self._window) < count:
            return 0.0
        return min(self._window[-number].seconds for number in range(1, count + 1))

    def clear(self) -> None:
        """Forget everything: another process, perhaps another model, answers from now on."""
        self._window.clear()
        self._sorted.clear()
        self._late.clear()
        self._shares = None

    def _line(self, length: int) -> float:
        return self._base + self._slope * length

    def _fitted(self) -> list[float]:
        """Return the sorted ratios to the least-squares line, fitted to the window with a slope of at least 0."""
        self._forget()
        if self._shares is None:
            self._fit()
            base, slope = self._base, self._slope
            self._shares = sorted([seconds / (base + slope * length) for _, seconds, length, _ in self._window])
        return self._shares

    def _fit(self) -> None:
        if not (count := len(self._window)):
            return
        most = _OUTLIER * _quantile(self._sorted, 0.5)
        lengths = [seen.length for seen in self._window]
        seconds = [each if each < most else most for _, each, *_ in self._window]
        mean_length, mean_seconds = sum(lengths) / count, sum(seconds) / count
        longer = [length - mean_length for length in lengths]
        covariance = sum(map(mul, longer, [each - mean_seconds for each in seconds]))
        variance = sum(map(mul, longer, longer))
        steepest = mean_seconds / mean_length if mean_length else 0.0  # slope of the line through the origin
        self._slope = min(max(covariance / (variance + _FLAT_PRIOR), 0.0), steepest)
        self._base = max(mean_seconds - self._slope * mean_length, 1e-6)

    def _forget(self) -> None:
        oldest = self._clock() - MAX_AGE_SECONDS
        while (count := len(self._window)) > KEPT and (count > WINDOW or self._window[0].at < oldest):
            self._sorted.remove(self._window.popleft().seconds)
            self._shares = None
        while self._late and self._late[0].at < oldest:
            self._late.popleft()


def _quantile(ordered: list[float], share: float) -> float:
    """Return the quantile, rounded down, so that one slow value of two does not decide; 0 for none."""
    return ordered[int(share * (len(ordered) - 1))] if ordered else 0.0
