"""One piece of work for all who ask for the same thing at the same time."""

import asyncio
import time
from collections.abc import Callable, Coroutine
from typing import Any, Generic, TypeVar

from service.engines.protocol import EngineError

T = TypeVar("T")


class FlightLateError(EngineError):
    """Another request's work for the same question took longer than this one's deadline allows."""


class _Flight(Generic[T]):
    """Work under way, and how many wait for it. It goes on while anybody does."""

    def __init__(self, work: Coroutine[Any, Any, T], deadline: float | None, on_end: Callable[[], None]) -> None:
        self.task = asyncio.ensure_future(work)
        self.task.add_done_callback(lambda done: done.cancelled() or done.exception())  # everybody may have left
        self.task.add_done_callback(lambda _: on_end())
        self.deadline = deadline
        self._on_end = on_end
        self._waiting = 0

    async def outcome(self, deadline: float | None) -> T:
        self._waiting += 1
        try:
            if deadline is None:
                return await asyncio.shield(self.task)
            await asyncio.wait({self.task}, timeout=max(deadline - time.monotonic(), 0))
        finally:
            self._waiting -= 1
            if not self._waiting and not self.task.done():
                self._on_end()  # before the cancellation is through, so that nobody joins it
                self.task.cancel()
        if not self.task.done():
            raise FlightLateError("the same question, asked before, was not answered in time")
        return self.task.result()

    def outlasts(self, deadline: float | None) -> bool:
        """Whether a request with this deadline has no more time than the flight had."""
        return self.deadline is None or (deadline is not None and deadline <= self.deadline)


class SingleFlight(Generic[T]):
    """Requests for the same key share one piece of work."""

    def __init__(self) -> None:
        self._flights: dict[str, _Flight[T]] = {}

    def has(self, key: str) -> bool:
        """Whether work for this key is under way."""
        return key in self._flights

    async def share(
        self, key: str, deadline: float | None, work: Callable[[], Coroutine[Any, Any, T]]
    ) -> tuple[T, bool]:
        """The work's outcome, and whether somebody else's work gave it. Raises what the work raises, FlightLateError.

        Work that fails fails for all who had no more time than it had; the others try for themselves. The first to ask
        may leave: the work goes on for the rest.
        """
        while (others := self._flights.get(key)) is not None:
            try:
                return await others.outcome(deadline), True
            except EngineError:
                if others.outlasts(deadline):
                    raise
                self._forget(key, others)
        own: _Flight[T] = _Flight(work(), deadline, lambda: self._forget(key, own))
        self._flights[key] = own
        return await own.outcome(None), False

    def _forget(self, key: str, flight: _Flight[T]) -> None:
        if self._flights.get(key) is flight:
            del self._flights[key]
