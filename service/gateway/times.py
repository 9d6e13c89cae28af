"""How long generations take: the last ones of a replica, or of all, and the quantiles that admission asks for."""

import time
from bisect import insort
from collections import deque
from collections.abc import Callable

WINDOW = 128  # generations
MAX_AGE_SECONDS = 15.0  # older ones say nothing of now; with none left, everything is worth a try again


class ServiceTimes:
    """A sliding window of durations in seconds, bounded in number and in age.

    A generation that was cut short counts as lasting until then, and only when that is longer than the median: of a
    client that left at once nothing can be learnt, of a deadline that passed a lot.
    """

    def __init__(self, clock: Callable[[], float] = time.monotonic) -> None:
        self._clock = clock
        self._window: deque[tuple[float, float]] = deque()  # (when, seconds), oldest first
        self._sorted: list[float] = []
        self._sum = 0.0

    def __len__(self) -> int:
        self._forget()
        return len(self._sorted)

    def add(self, seconds: float, *, whole: bool = True) -> None:
        """Note a generation's duration; `whole` False: it was cut short then."""
        if not whole and seconds <= self.quantile(0.5):
            return
        self._window.append((self._clock(), seconds))
        insort(self._sorted, seconds)
        self._sum += seconds
        self._forget()

    def quantile(self, share: float) -> float:
        """The duration that `share` of the window's generations stay within; 0 when nothing is known."""
        self._forget()
        return self._sorted[min(int(share * len(self._sorted)), len(self._sorted) - 1)] if self._sorted else 0.0

    @property
    def mean(self) -> float:
        """Mean duration; 0 when nothing is known."""
        self._forget()
        return self._sum / len(self._sorted) if self._sorted else 0.0

    def fastest_of_last(self, count: int) -> float:
        """The shortest of the last `count` durations; 0 when there are not so many."""
        self._forget()
        return min(self._window[-number][1] for number in range(1, count + 1)) if len(self._window) >= count else 0.0

    def clear(self) -> None:
        """Forget everything: another process, perhaps another model, answers from now on."""
        self._window.clear()
        self._sorted.clear()
        self._sum = 0.0

    def _forget(self) -> None:
        oldest_kept = self._clock() - MAX_AGE_SECONDS
        while self._window and (len(self._window) > WINDOW or self._window[0][0] < oldest_kept):
            _, seconds = self._window.popleft()
            self._sorted.remove(seconds)
            self._sum -= seconds
