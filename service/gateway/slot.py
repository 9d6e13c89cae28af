"""One replica's slot in the pool: its service times, its health and restarts, and its current request.

A request runs in a task of its own: its caller leaves at the deadline, and the engine is free later.
"""

import asyncio
import logging
import math
import time
from collections import deque
from collections.abc import Callable, Sequence

from service.engines.protocol import Engine, EngineError, GenerationRequest, GenerationResult
from service.gateway.request_queue import CapacityError, QueuedRequest
from service.gateway.service_times import ServiceTimes
from service.telemetry.logs import error_location

logger = logging.getLogger(__name__)
OnEnd = Callable[[GenerationResult | None, Exception | None, float], None]

MIN_BACKOFF = 0.05
_MAX_BACKOFF = 30.0
_STABLE_SECONDS = 60.0  # a replica that lived this long failed for a new reason
_MOST_FAILURES = 3  # consecutive failures
_LAG_FACTOR = 4  # on a busy machine one replica may well be twice as slow as another for a while
_LAG_COUNT = 8
_MOST_PROMPTS = 256  # about as many single questions as a prefix cache of the usual size holds
_LEAST_SECONDS = 0.01  # what takes less is timed by the event loop and the machine's other processes, not by a replica


class Slot:
    """An engine and its state for the gateway. A reload may put another engine in its place."""

    def __init__(self, engine: Engine, version: str = "") -> None:
        self.engine = engine
        self.version = version
        self.slowness = ServiceTimes()  # times what all replicas take for prompts of the same length
        self.restarts = 0
        self._prompts = deque[int](maxlen=_MOST_PROMPTS)  # hashes of the last ones that it was given
        self._request: QueuedRequest | None = None  # the request that holds it
        self._freed = asyncio.Event()
        self._freed.set()
        self._quarantined = asyncio.Event()
        self._failures = 0
        self._leaving = False
        self.why_down = ""  # since it was lost last
        self._down_since = math.inf

    @property
    def usable(self) -> bool:
        """Whether it may be given a request when it is free."""
        return self.engine.available and not self._quarantined.is_set() and not self._leaving

    @property
    def busy(self) -> bool:
        return not self._freed.is_set()

    @property
    def request(self) -> QueuedRequest | None:
        """The request that holds it."""
        return self._request

    @property
    def down_seconds(self) -> float:
        """How long restarts have failed; 0 of one that is up."""
        return max(0.0, time.monotonic() - self._down_since)

    def take(self, request: QueuedRequest) -> None:
        self._request = request
        self._freed.clear()

    def free(self) -> QueuedRequest | None:
        """Free the slot and return the request that held it."""
        request, self._request = self._request, None
        self._freed.set()
        return request

    def reads(self, request: GenerationRequest) -> None:
        """Remember a prompt that its engine is about to read, as long as a prefix cache may know it."""
        self._prompts.append(hash((request.cache_salt, request.prompt)))

    def has_read(self, request: GenerationRequest) -> bool:
        """Tell whether it was given the conversation's turn before this one."""
        earlier = request.prompt[: request.earlier]
        return bool(earlier) and hash((request.cache_salt, earlier)) in self._prompts

    def succeeded(self) -> None:
        self._failures = 0

    def failed(self, reason: str) -> None:
        """Record a request without a valid answer; after too many in a row the replica is restarted."""
        self._failures += 1
        if self._failures >= _MOST_FAILURES:
            self.quarantine(reason)

    def took(self, seconds: float, usual: float) -> None:
        """Record how long a generation took whose prompt's length usually takes `usual`."""
        self.slowness.add(max(seconds, _LEAST_SECONDS) / max(usual, _LEAST_SECONDS))

    def lags_behind(self, slots: Sequence["Slot"]) -> bool:
        """Tell whether its last answers all took far longer than those of every other replica."""
        others = [other.slowness.quantile(0.5) for other in slots if other is not self and other.usable]
        return bool(others) and self.slowness.fastest_of_last(_LAG_COUNT) > _LAG_FACTOR * max(others) > 0

    def quarantine(self, reason: str) -> None:
        """Take it out of service and restart it."""
        if not self._quarantined.is_set():
            logger.error("replica taken out", extra={"reason": reason})
            self.why_down = reason
            self._quarantined.set()

    async def keep_alive(self, on_down: Callable[[], None], on_up: Callable[["Slot"], None]) -> None:
        """Restart the engine whenever it fails or is quarantined, with exponential backoff, whatever happens."""
        backoff = MIN_BACKOFF
        while True:
            started = time.monotonic()
            self.why_down = await self._until_lost()
            self._down_since = time.monotonic()
            on_down()
            lived = self._down_since - started
            backoff = MIN_BACKOFF if lived > _STABLE_SECONDS else min(backoff * 2, _MAX_BACKOFF)
            fields = {"reason": self.why_down, "lived_seconds": round(lived, 3), "backoff_seconds": backoff}
            logger.error("replica down", extra=fields)
            while not self.usable:
                await asyncio.sleep(backoff)
                try:
                    await self._restart()
                except Exception as error:  # the host may be out of descriptors, processes, memory: for now
                    self.why_down = str(error) if isinstance(error, EngineError) else error_location(error)
                    backoff = min(backoff * 2, _MAX_BACKOFF)
                    fields = {"reason": self.why_down, "backoff_seconds": backoff}
                    logger.error("replica restart failed", extra=fields)
            self._down_since = math.inf
            logger.info("replica up again")
            on_up(self)

    async def replace(self, engine: Engine, version: str) -> None:
        """Let the current request finish, then put another engine, already started, in its place."""
        self._leaving = True
        try:
            await self._freed.wait()
        except BaseException:
            self._leaving = False
            raise
        old, self.engine, self.version = self.engine, engine, version
        self._forgive()
        self._leaving = False
        await old.close()

    async def _restart(self) -> None:
        self.restarts += 1
        await self.engine.start()
        self._forgive()

    def _forgive(self) -> None:
        self.slowness.clear()
        self._prompts.clear()
        self._failures = 0
        self._quarantined.clear()

    async def _until_lost(self) -> str:
        """Return why, once the engine has failed or is quarantined."""
        failed = asyncio.ensure_future(self.engine.failed())
        quarantined = asyncio.ensure_future(self._quarantined.wait())
        try:
            await asyncio.wait([failed, quarantined], return_when=asyncio.FIRST_COMPLETED)
            return self.why_down if quarantined.done() else failed.result() or "it failed"
        except Exception as error:
            return error_location(error)
        finally:
            failed.cancel()
            quarantined.cancel()


class GaveWayError(CapacityError):
    """Raised where a generation was stopped for a client who has used far less of the replicas."""

    def __init__(self) -> None:
        super().__init__("others, who have used less, needed the replica", "capacity")


class GenerationTask:
    """A running generation: `outcome` becomes the result or error; cancel `task` to leave before."""

    def __init__(self, engine: Engine, request: GenerationRequest, seconds: float, on_end: OnEnd) -> None:
        """Start; after `seconds` the outcome is a TimeoutError.

        `on_end` is called once the engine is free, with the result, or the error, or neither if it was cut short, and
        with the seconds.
        """
        self._on_end: OnEnd | None = on_end
        self._started = time.monotonic()
        loop = asyncio.get_running_loop()
        self.outcome: asyncio.Future[GenerationResult] = loop.create_future()
        self._timer = loop.call_later(max(seconds, 0), self._time_out) if seconds < math.inf else None
        self.task = asyncio.create_task(self._run(engine, request))
        self.task.add_done_callback(lambda _: self._end(None, None))  # for a task that is cancelled before it begins

    def give_way(self) -> None:
        """Stop: the outcome is a GaveWayError, and the engine is free soon."""
        if not self.outcome.done():
            self.outcome.set_exception(GaveWayError())
            self.task.cancel()

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
        """Report the end from inside the task: a done callback would come one event-loop iteration later."""
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
