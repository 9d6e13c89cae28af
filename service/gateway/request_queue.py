"""The line of requests that wait for a replica. It is bounded in time: who could not finish in time does not wait.

It knows deadlines and durations; which replica becomes free, and when, is the pool's business.
"""

import asyncio
import math
import time
from collections import deque
from dataclasses import dataclass, field
from typing import Any, Generic, Literal, TypeVar

from service.engines.protocol import EngineError

Order = Literal["oldest", "newest", "adaptive"]
Refusal = Literal["late", "busy", "down", "closing"]
T = TypeVar("T")

_MUCH_SHORTER = 2 / 3
_OVERLOAD_SECONDS = 1.0  # how long after a refusal the adaptive order still serves the newest first


class CapacityError(EngineError):
    """No replica can answer before the deadline. `refusal` says why in one word, for metrics."""

    def __init__(self, message: str, refusal: Refusal) -> None:
        super().__init__(message)
        self.refusal: Refusal = refusal


@dataclass(eq=False, slots=True)
class QueuedRequest(Generic[T]):
    """One waiting request. `latest_start` is when it must begin to be done in time (`time.monotonic`, seconds).

    `length` is that of its prompt in characters: what it will take grows with it.
    """

    latest_start: float
    turn: asyncio.Future[T]
    length: int
    timer: asyncio.TimerHandle | None = field(default=None)


class RequestQueue(Generic[T]):
    """Who waits for a `T`. "oldest" is fair, "newest" wastes the least under overload, "adaptive" is each in its time.

    Under overload the newest has the most time left: it surely finishes, while the oldest would start too late and be
    cancelled half-done. So a full line gives up who has least time left, and they learn it at once.
    """

    def __init__(self, order: Order = "adaptive") -> None:
        self._order = order
        self._waiters: deque[QueuedRequest[T]] = deque()  # oldest first
        self._overloaded_until = -math.inf

    def __len__(self) -> int:
        return len(self._waiters)

    @property
    def serves_newest(self) -> bool:
        """Whether the newest goes first now."""
        return self._order == "newest" or (self._order == "adaptive" and time.monotonic() < self._overloaded_until)

    def join(self, latest_start: float, turn_seconds: float, length: int = 0) -> QueuedRequest[T]:
        """A place in the line, when one comes free every `turn_seconds`; who gets none learns it by its `turn`.

        Raises CapacityError when even an empty line would be too long.
        """
        slack = latest_start - time.monotonic()
        if slack < 0:
            raise CapacityError("there is too little time left to wait for a replica", "late")
        loop = asyncio.get_running_loop()
        waiter = QueuedRequest(latest_start, loop.create_future(), length)
        if latest_start < math.inf:
            waiter.timer = loop.call_later(slack, self._expire, waiter)
        self._waiters.append(waiter)
        self._trim(waiter, turn_seconds)
        return waiter

    def next(self) -> asyncio.Future[T] | None:
        """Take out whose turn it is; None when nobody waits."""
        while self._waiters:
            waiter = self._waiters.pop() if self.serves_newest else self._waiters.popleft()
            self._settle(waiter)
            if not waiter.turn.done():
                return waiter.turn
        return None

    def would_yield_to(self, length: int) -> bool:
        """Whether somebody waits with a much longer request than one of this length."""
        return any(length < _MUCH_SHORTER * waiter.length for waiter in self._waiters)

    def give_up_longest(self) -> None:
        """Refuse who would take the most of a replica's time."""
        longest = max(self._waiters, key=lambda waiter: waiter.length)
        self._drop(longest, "many shorter requests can be done in the time of this one", "busy")

    def leave(self, waiter: QueuedRequest[T]) -> None:
        """Give up a place, if it is still held."""
        self._settle(waiter)
        if waiter in self._waiters:
            self._waiters.remove(waiter)

    def refuse_all(self, error: EngineError) -> None:
        """Send everybody away."""
        while (turn := self.next()) is not None:
            turn.set_exception(error)

    def _trim(self, newest: QueuedRequest[T], turn_seconds: float) -> None:
        """Refuse whom the line is too long for: the newest where the oldest goes first, else who has least time."""
        while (len(self._waiters) - 1) * turn_seconds > self._timeout(newest) - time.monotonic():
            self._overloaded_until = time.monotonic() + _OVERLOAD_SECONDS
            hopeless = min(self._waiters, key=_latest_start) if self.serves_newest else newest
            self._drop(hopeless, "every replica is busy past the deadline", "busy")
            if hopeless is newest:
                return

    def _timeout(self, newest: QueuedRequest[T]) -> float:
        """Until when the line may last."""
        return max(map(_latest_start, self._waiters)) if self.serves_newest else newest.latest_start

    def _expire(self, waiter: QueuedRequest[T]) -> None:
        self._overloaded_until = time.monotonic() + _OVERLOAD_SECONDS
        self._drop(waiter, "every replica stayed busy until it was too late", "late")

    def _drop(self, waiter: QueuedRequest[T], message: str, refusal: Refusal) -> None:
        self.leave(waiter)
        if not waiter.turn.done():
            waiter.turn.set_exception(CapacityError(message, refusal))

    @staticmethod
    def _settle(waiter: QueuedRequest[T]) -> None:
        if waiter.timer is not None:
            waiter.timer.cancel()


def _latest_start(waiter: QueuedRequest[Any]) -> float:
    return waiter.latest_start
