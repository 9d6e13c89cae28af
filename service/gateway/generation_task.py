"""One request on one replica, in a task of its own: its caller leaves at the deadline, the engine is free later."""

import asyncio
import math
import time
from collections.abc import Callable

from service.engines.protocol import Engine, GenerationRequest, GenerationResult
from service.gateway.request_queue import CapacityError

OnEnd = Callable[[GenerationResult | None, Exception | None, float], None]


class GenerationTask:
    """`outcome` becomes the engine's result or error; cancel `task` to leave before."""

    def __init__(self, engine: Engine, request: GenerationRequest, seconds: float, on_end: OnEnd) -> None:
        """After so many `seconds` the outcome is a TimeoutError.

        `on_end` is told once that the engine is free: the result, or the error, or neither if it was cut short; and
        the seconds.
        """
        self._on_end: OnEnd | None = on_end
        self._started = time.monotonic()
        loop = asyncio.get_running_loop()
        self.outcome: asyncio.Future[GenerationResult] = loop.create_future()
        self._timer = loop.call_later(max(seconds, 0), self._time_out) if seconds < math.inf else None
        self.task = asyncio.create_task(self._run(engine, request))
        self.task.add_done_callback(lambda _: self._end(None, None))  # one that is cancelled before it begins

    async def _run(self, engine: Engine, request: GenerationRequest) -> None:
        result: GenerationResult | None = None
        error: Exception | None = None
        try:
            result = await engine.generate(request)
        except Exception as raised:
            error = raised
        finally:
            self._end(result, error)

    def _end(self, result: GenerationResult | None, error: Exception | None) -> None:
        """Before the task's end, and not by it: that would be heard of a turn of the event loop later."""
        if self._on_end is None:
            return
        on_end, self._on_end = self._on_end, None
        if self._timer is not None:
            self._timer.cancel()
        on_end(result, error, time.monotonic() - self._started)
        if self.outcome.done():
            return
        if result is not None:
            self.outcome.set_result(result)
        else:
            self.outcome.set_exception(error or CapacityError("the generation was given up", "engine"))

    def _time_out(self) -> None:
        if not self.outcome.done():
            self.outcome.set_exception(TimeoutError())
