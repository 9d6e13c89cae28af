"""The queue of requests that wait for a replica, bounded by time, not number: one that cannot finish does not wait.

It is pure: it knows deadlines and durations, neither replicas nor asyncio, and its clock may be simulated.
"""

import math
import time
from collections import deque
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from typing import Any

from service.engines.protocol import DegradedReason, EngineError
from service.settings.choices import Order

_OVERLOAD_SECONDS = 1.0  # after a refusal, during which the adaptive order still serves the newest first


class CapacityError(EngineError):
    """Raised when no replica can answer before the deadline; `reason` says why."""

    def __init__(self, message: str, reason: DegradedReason) -> None:
        super().__init__(message)
        self.reason = reason


@dataclass(eq=False, slots=True)
class QueuedRequest:
    """A request that asks for a replica; times in seconds on the queue's clock.

    `length` is its prompt's in characters, with which its duration grows; `worth` says how likely the model's plan is
    to be better than another one, for who routes by it; `client` is who asks. Admission sets the rest: its number in
    order of `arrival`;
    `seconds`, the expected duration; `latest_start`, when it must begin to be done in time; whether it is a trial,
    which is unlikely to succeed; and the `refusal`, if it gets no replica.
    """

    deadline: float
    length: int = 0
    worth: float = 0.0
    arrival: int = 0
    seconds: float = 0.0
    latest_start: float = math.inf
    is_trial: bool = False
    refusal: CapacityError | None = field(default=None)
    client: str = ""


Worth = Callable[[QueuedRequest], Any]
Use = Callable[[QueuedRequest], float]  # by the client who asks: seconds of replicas beyond its share; least goes first


class RequestQueue:
    """Waiting requests. "oldest" first is fair, "newest" wastes the least under overload, "adaptive" switches.

    Under overload the newest has the most time left: it surely finishes, while the oldest would start too late and be
    cancelled half-done. So a queue that is too long refuses those with the least time left, at once.

    Where clients' `use` is given, all of this is among those with the same use; who has more waits behind them, and is
    never the reason why one of them is refused.
    """

    def __init__(self, order: Order = "adaptive", clock: Callable[[], float] = time.monotonic) -> None:
        self._order = order
        self._clock = clock
        self._waiting: deque[QueuedRequest] = deque()  # oldest first
        self._overloaded_until = -math.inf

    def __len__(self) -> int:
        return len(self._waiting)

    @property
    def serves_newest(self) -> bool:
        """Whether the newest request is served first now."""
        return self._order == "newest" or (self._order == "adaptive" and self._clock() < self._overloaded_until)

    def __iter__(self) -> Iterator[QueuedRequest]:
        return iter(self._waiting)

    def join(
        self, newest: QueuedRequest, replicas: int, worth: Worth | None = None, use: Use | None = None
    ) -> list[QueuedRequest]:
        """Add one request, with `replicas` in service; return the refused ones, possibly itself.

        Given `worth`, by which `next` is going to choose, the excess is what is worth least.
        """
        self._waiting.append(newest)
        return self._shorten(newest, replicas, worth, use)

    def next(self, worth: Worth | None = None, use: Use | None = None) -> QueuedRequest | None:
        """Take out the request with the highest `worth`, or else the next in order; None when none waits."""
        if not self._waiting:
            return None
        first = self._first(use)
        in_order = first[-1] if self.serves_newest else first[0]
        best = in_order if worth is None else max(first, key=worth)
        self._waiting.remove(best)
        return best

    def all_in_time(self, replicas: int, use: Use | None = None) -> bool:
        """Tell whether everybody whose turn it may be begins in time although the oldest goes first.

        With so many `replicas` in service.
        """
        now, before = self._clock(), 0.0
        for request in self._first(use):
            if now + before / replicas > request.latest_start:
                return False
            before += request.seconds
        return True

    def least(self, worth: Worth) -> QueuedRequest:
        """Return the waiting request with the lowest worth. Raises ValueError when none waits."""
        return min(self._waiting, key=worth)

    def leave(self, request: QueuedRequest) -> None:
        """Remove a request, if it is still waiting."""
        if request in self._waiting:
            self._waiting.remove(request)

    def drop(self, request: QueuedRequest, message: str, reason: DegradedReason) -> list[QueuedRequest]:
        """Refuse one waiting request."""
        self.leave(request)
        return [_refused(request, message, reason)]

    def drop_late(self) -> list[QueuedRequest]:
        """Refuse those that can no longer finish in time."""
        now = self._clock()
        late = [request for request in self._waiting if request.latest_start <= now]
        if late:
            self._overloaded_until = now + _OVERLOAD_SECONDS
        for request in late:
            self.drop(request, "every replica stayed busy until it was too late", "capacity")
        return late

    def drop_all(self, message: str, reason: DegradedReason) -> list[QueuedRequest]:
        """Refuse all waiting requests."""
        everybody = list(self._waiting)
        for request in everybody:
            self.drop(request, message, reason)
        return everybody

    def _first(self, use: Use | None) -> Sequence[QueuedRequest]:
        """Return those who wait and have used least, oldest first."""
        if use is None:
            return self._waiting
        least = min(map(use, self._waiting), default=0.0)
        return [request for request in self._waiting if use(request) == least]

    def _shorten(
        self, newest: QueuedRequest, replicas: int, worth: Worth | None, use: Use | None
    ) -> list[QueuedRequest]:
        """Refuse the excess of a queue that is too long: worth least, newest in fair order, else with least time."""
        dropped: list[QueuedRequest] = []
        now, own = self._clock(), 0.0 if use is None else use(newest)
        while True:
            before, equals = self._waiting, self._waiting
            if use is not None:
                before = deque(request for request in self._waiting if use(request) <= own)
                equals = deque(request for request in before if use(request) == own)
            longest = self._longest_wait(newest, equals, is_fair=worth is None)
            if _seconds_before_last(before) / replicas <= longest - now:
                return dropped
            self._overloaded_until = now + _OVERLOAD_SECONDS
            if worth is not None:
                hopeless = min(equals, key=worth)
            else:
                hopeless = min(equals, key=_latest_start) if self.serves_newest else newest
            dropped += self.drop(hopeless, "every replica is busy past the deadline", "capacity")
            if hopeless is newest:
                return dropped

    def _longest_wait(self, newest: QueuedRequest, equals: Iterable[QueuedRequest], *, is_fair: bool) -> float:
        """Return until when a request may wait; where the order is not fair, anybody may be the last."""
        return newest.latest_start if is_fair and not self.serves_newest else max(map(_latest_start, equals))


def _seconds_before_last(requests: deque[QueuedRequest]) -> float:
    return sum(request.seconds for request in requests) - requests[-1].seconds


def _latest_start(request: QueuedRequest) -> float:
    return request.latest_start


def _refused(request: QueuedRequest, message: str, reason: DegradedReason) -> QueuedRequest:
    request.refusal = CapacityError(message, reason)
    return request
