"""The replicas and who may use one when: a request gets an idle replica, waits in line for one, or learns at once that
none will be free in time.

A pool is itself an `Engine`. It knows requests and deadlines, not plans.
"""

import asyncio
import contextlib
import dataclasses
import logging
import time
from collections import deque
from collections.abc import AsyncIterator, Sequence
from typing import Any, TypeVar

from service.engines.protocol import (
    Engine,
    EngineError,
    EngineUnavailableError,
    GenerationRequest,
    GenerationResult,
)

logger = logging.getLogger(__name__)
T = TypeVar("T")

_MEMORY = 0.1  # weight of the newest generation in the expected one
_FIRST_EXPECTATION = 0.15  # seconds; replaced by the first generation
_MIN_BACKOFF = 0.05
_MAX_BACKOFF = 30.0
_STABLE_SECONDS = 60.0  # a replica that lived this long died of something new


class CapacityError(EngineError):
    """No replica can answer before the deadline."""


class ReplicaPool:
    """Engines side by side behind one line of waiting requests, first come, first served."""

    def __init__(self, engines: Sequence[Engine]) -> None:
        if not engines:
            raise ValueError("a pool needs at least one engine")
        self._engines = list(engines)
        self._idle: deque[Engine] = deque()
        self._busy: set[Engine] = set()
        self._waiting: deque[asyncio.Future[Engine]] = deque()
        self._expected_seconds = 0.0
        self._last_success = float("-inf")
        self._tasks: set[asyncio.Task[Any]] = set()
        self._closing = False

    @property
    def model_id(self) -> str:
        return self._engines[0].model_id

    @property
    def available(self) -> bool:
        return any(engine.available for engine in self._engines)

    @property
    def expected_seconds(self) -> float:
        """How long a generation is expected to take, from those before it."""
        return self._expected_seconds or _FIRST_EXPECTATION

    @property
    def last_success(self) -> float:
        """When a generation last came back whole, on the `time.monotonic` clock."""
        return self._last_success

    async def start(self) -> None:
        """Start every engine, the first one alone: it may have to fetch weights that the others then find.

        Raises EngineError, with everything closed again, when one does not start.
        """
        first, *rest = self._engines
        try:
            await first.start()
            outcomes = await asyncio.gather(*(engine.start() for engine in rest), return_exceptions=True)
            for outcome in outcomes:
                if outcome is not None:
                    raise outcome
        except BaseException:
            await self.close()
            raise
        for engine in self._engines:
            self._offer(engine)
            self._track(asyncio.create_task(self._keep_alive(engine)))

    async def close(self) -> None:
        """Refuse who waits, stop what runs, close every engine."""
        self._closing = True
        for waiter in self._waiting:
            if not waiter.done():
                waiter.set_exception(EngineUnavailableError("the service is shutting down"))
        for task in list(self._tasks):
            task.cancel()
        await asyncio.gather(*self._tasks, return_exceptions=True)
        await asyncio.gather(*(engine.close() for engine in self._engines))

    async def failed(self) -> None:
        """Return once no engine is left; the pool restarts them by itself all the same."""
        while self.available:
            await asyncio.gather(*(engine.failed() for engine in self._engines if engine.available))

    async def generate(self, request: GenerationRequest) -> GenerationResult:
        """Run a request on the next free replica, once more on another one if its replica dies.

        Returns at the deadline at the latest, though the replica may then be busy for one more forward pass. Raises
        CapacityError when the deadline passes or surely would; RequestRefusedError; EngineUnavailableError.
        """
        started = time.monotonic()
        for attempt in (1, 2):
            engine = await self._acquire(request.deadline)
            queue_seconds = time.monotonic() - started
            try:
                result = await self._run(engine, request)
            except EngineUnavailableError as error:
                logger.warning("replica lost a request", extra={"attempt": attempt, "reason": str(error)})
                if attempt == 2:
                    raise
            else:
                return dataclasses.replace(result, queue_seconds=queue_seconds)
        raise AssertionError("unreachable")

    @contextlib.asynccontextmanager
    async def lease(self, deadline: float | None = None) -> AsyncIterator[Engine]:
        """One replica for several requests in a row. Raises CapacityError, EngineUnavailableError."""
        engine = await self._acquire(deadline)
        try:
            yield engine
        finally:
            self._release(engine)

    async def _run(self, engine: Engine, request: GenerationRequest) -> GenerationResult:
        """Generate in a task of its own: the caller leaves at the deadline, the engine is offered once free."""
        work = self._track(asyncio.create_task(engine.generate(request)))
        work.add_done_callback(lambda done: self._finish(engine, done))
        timeout = None if request.deadline is None else max(request.deadline - time.monotonic(), 0)
        try:
            await asyncio.wait({work}, timeout=timeout)
        finally:
            if not work.done():
                work.cancel()
        if not work.done() or work.cancelled():
            raise CapacityError("the deadline passed during the generation")
        result = work.result()
        if result.stop_reason == "cancelled":
            raise CapacityError("the deadline passed during the generation")
        return result

    def _finish(self, engine: Engine, work: asyncio.Task[GenerationResult]) -> None:
        if not work.cancelled() and work.exception() is None and work.result().stop_reason != "cancelled":
            self._last_success = time.monotonic()
            seconds = work.result().seconds
            self._expected_seconds += (seconds - self._expected_seconds) * (_MEMORY if self._expected_seconds else 1)
        self._release(engine)

    async def _acquire(self, deadline: float | None) -> Engine:
        """The next free engine; the caller must `_release` it."""
        if not self.available or self._closing:
            raise CapacityError("no replica is up")
        while self._idle:
            engine = self._idle.popleft()
            if engine.available:
                self._busy.add(engine)
                return engine
        patience = None if deadline is None else deadline - self.expected_seconds - time.monotonic()
        if patience is not None and self._surely_waits() > patience:
            raise CapacityError("every replica is busy past the deadline")
        waiter: asyncio.Future[Engine] = asyncio.get_running_loop().create_future()
        self._waiting.append(waiter)
        try:
            async with asyncio.timeout(patience):
                return await self._handed_over(waiter)
        except TimeoutError:
            raise CapacityError("every replica stayed busy until it was too late") from None

    def _surely_waits(self) -> float:
        """Seconds that the line alone takes, were every running generation to end now."""
        ready = sum(engine.available for engine in self._engines)
        return len(self._waiting) // max(ready, 1) * self.expected_seconds

    async def _handed_over(self, waiter: asyncio.Future[Engine]) -> Engine:
        try:
            return await waiter
        except BaseException:
            with contextlib.suppress(ValueError):
                self._waiting.remove(waiter)
            if waiter.done() and not waiter.cancelled() and waiter.exception() is None:
                self._release(waiter.result())  # handed over in the very moment of giving up
            raise

    def _release(self, engine: Engine) -> None:
        self._busy.discard(engine)
        self._offer(engine)

    def _offer(self, engine: Engine) -> None:
        """Hand a free engine to who has waited longest."""
        if self._closing or not engine.available or engine in self._busy or engine in self._idle:
            return
        while self._waiting:
            waiter = self._waiting.popleft()
            if not waiter.done():
                self._busy.add(engine)
                waiter.set_result(engine)
                return
        self._idle.append(engine)

    async def _keep_alive(self, engine: Engine) -> None:
        """Start an engine again whenever it fails, ever more patiently while it fails soon after its start."""
        backoff = _MIN_BACKOFF
        while True:
            started = time.monotonic()
            await engine.failed()
            lived = time.monotonic() - started
            backoff = _MIN_BACKOFF if lived > _STABLE_SECONDS else min(backoff * 2, _MAX_BACKOFF)
            logger.error("replica down", extra={"lived_seconds": round(lived, 3), "backoff_seconds": backoff})
            while not engine.available:
                await asyncio.sleep(backoff)
                try:
                    await engine.start()
                except EngineError as error:
                    backoff = min(backoff * 2, _MAX_BACKOFF)
                    logger.error("replica restart failed", extra={"reason": str(error), "backoff_seconds": backoff})
            logger.info("replica up again")
            self._offer(engine)

    def _track(self, task: asyncio.Task[T]) -> asyncio.Task[T]:
        """Hold on to a task until it is done, so that `close` can end it."""
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)
        return task
