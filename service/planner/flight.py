"""One piece of work for all who ask for the same thing at the same time."""

import asyncio
import time
from collections.abc import Awaitable, Callable
from typing import Any, Generic, TypeVar

from service.engines.protocol import EngineError

T = TypeVar("T")


class FlightLateError(EngineError):
    """Another request's work for the same question took longer than this one's deadline allows."""

    reason = "deadline"


class _AbandonedError(Exception):
    """Who did the work was cancelled."""


class _Flight(Generic[T]):
    """Work under way in the task of who asked first, and who waits for its outcome besides."""

    def __init__(self, deadline: float | None) -> None:
        self.worker = asyncio.current_task()
        self.alone = asyncio.Event()
        self.alone.set()
        self._deadline = deadline
        self._waiting: dict[asyncio.Future[T], None] = {}  # in the order of their coming

    async def outcome(self, deadline: float | None) -> T:
        """What the work gives, or raises. Raises FlightLateError at the deadline, _AbandonedError."""
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
        """Raise the error for everybody."""
        for waiter in self._waiting:
            if not waiter.done():
                waiter.set_exception(error)

    def outlasts(self, deadline: float | None) -> bool:
        """Whether a request with this deadline has no more time than the flight had."""
        return self._deadline is None or (deadline is not None and deadline <= self._deadline)


class SingleFlight(Generic[T]):
    """Requests for the same key share one piece of work."""

    def __init__(self) -> None:
        self._flights: dict[str, _Flight[T]] = {}

    def has(self, key: str) -> bool:
        """Whether work for this key is under way."""
        return key in self._flights

    async def share(self, key: str, deadline: float | None, work: Callable[[], Awaitable[T]]) -> tuple[T, bool]:
        """The work's outcome, and whether somebody else's work gave it. Raises what the work raises, FlightLateError.

        Work that fails fails for all who had no more time than it had; the others try for themselves. Who asks first
        works in the caller's own task: a task more would cost every plan more than the rare flight saves. So a caller
        that would leave awaits `unwanted` first. One that is cancelled all the same leaves the work to the rest.
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
        """Return once nobody else waits for what this task works on."""
        for flight in list(self._flights.values()):
            if flight.worker is worker:
                await flight.alone.wait()

    def _forget(self, key: str, flight: _Flight[T]) -> None:
        if self._flights.get(key) is flight:
            del self._flights[key]
