"""One piece of work for all concurrent requests of the same key, whoever leaves first and whatever fails."""

import asyncio
import time
from collections.abc import Awaitable, Callable
from typing import Any, Generic, TypeVar

from service.engines.protocol import EngineError

T = TypeVar("T")


class FlightLateError(EngineError):
    """Raised when another request's work for the same question takes longer than this deadline allows."""

    reason = "deadline"


class _AbandonedError(Exception):
    """Raised when the request that did the work was cancelled."""


class _Flight(Generic[T]):
    """Work in progress in the task of its first requester, and the other requesters that wait for its outcome."""

    def __init__(self, deadline: float | None) -> None:
        self.worker = asyncio.current_task()
        self.alone = asyncio.Event()
        self.alone.set()
        self._deadline = deadline
        self._waiting: dict[asyncio.Future[T], None] = {}  # in order of arrival

    async def outcome(self, deadline: float | None) -> T:
        """Return the work's result. Raises its error, FlightLateError at the deadline, or _AbandonedError."""
        waiter: asyncio.Future[T] = asyncio.get_running_loop().create_future()
        self._waiting[waiter] = None
        self.alone.clear()
        try:
            async with asyncio.timeout(None if deadline is None else max(deadline - time.monotonic(), 0)):
                return await waiter
        except TimeoutError:
            raise FlightLateError("the same question, asked before, was not answered in time") from None
        finally:
            del self._waiting[waiter]
            if not self._waiting:
                self.alone.set()

    def land(self, outcome: T) -> None:
        """Give everybody the outcome."""
        for waiter in self._waiting:
            if not waiter.done():
                waiter.set_result(outcome)

    def fail(self, error: Exception) -> None:
        """Raise the error in every waiting request."""
        for waiter in self._waiting:
            if not waiter.done():
                waiter.set_exception(error)

    def outlasts(self, deadline: float | None) -> bool:
        """Tell whether a request with this deadline has no more time than the work had."""
        return self._deadline is None or (deadline is not None and deadline <= self._deadline)


class SingleFlight(Generic[T]):
    """Lets requests for the same key share one piece of work."""

    def __init__(self) -> None:
        self._flights: dict[str, _Flight[T]] = {}

    def has(self, key: str) -> bool:
        """Tell whether work for this key is in progress."""
        return key in self._flights

    async def share(self, key: str, deadline: float | None, work: Callable[[], Awaitable[T]]) -> tuple[T, bool]:
        """Return the work's outcome, and whether it was shared. Raises the work's errors, and FlightLateError.

        A failure counts for all requests that had no more time than the work; the others try for themselves. The first
        requester works in its own task: another task would cost every plan more than sharing saves. So a caller that
        wants to leave awaits `unwanted` first. If it is cancelled anyway, the others take over the work.
        """
        while (others := self._flights.get(key)) is not None:
            try:
                return await others.outcome(deadline), True
            except _AbandonedError:
                continue
            except EngineError:
                if others.outlasts(deadline):
                    raise
                self._forget(key, others)
        own = self._flights[key] = _Flight[T](deadline)
        try:
            outcome = await work()
        except BaseException as error:
            self._forget(key, own)
            own.fail(error if isinstance(error, Exception) else _AbandonedError())
            raise
        self._forget(key, own)
        own.land(outcome)
        return outcome, False

    async def unwanted(self, worker: asyncio.Task[Any]) -> None:
        """Return once nobody else waits for the work of this task."""
        for flight in list(self._flights.values()):
            if flight.worker is worker:
                await flight.alone.wait()

    def _forget(self, key: str, flight: _Flight[T]) -> None:
        if self._flights.get(key) is flight:
            del self._flights[key]
