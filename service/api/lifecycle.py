"""Readiness, whether the service would answer a plan now, shown by a recent inference; and reloads of the model.

It also warns, once in the log and on the page, where most of a slow machine's plans would be late.
"""

import asyncio
import logging
import math
import time
from collections.abc import Callable
from functools import partial

from service.engines.protocol import Engine, EngineError
from service.engines.worker.messages import ModelSource
from service.gateway.drain import Drain
from service.gateway.pool import ReplicaPool
from service.planner.planner import Planner
from service.planner.question import Question
from service.telemetry.logs import error_location

logger = logging.getLogger(__name__)

_PROBE = Question.parse("red shoes")
_PROBE_SECONDS = 2.0  # a plan that takes longer is none
_PATIENCE_SECONDS = 0.06  # a health check is answered within 0.1 s
_WANTED_SECONDS = 60.0  # after a health check
_SLOW_QUANTILE = 0.9
_NEARLY = 0.98  # a generation cut short at the deadline counts as lasting until then
_LOOK_SECONDS = 10.0
_MOST_DEADLINE_MS = 2000  # the maximum that a request may set


class Readiness:
    """Tells why the service is not ready, or None, at once. A recent success counts: a busy service runs no probes."""

    def __init__(
        self,
        pool: ReplicaPool,
        planner: Planner,
        drain: Drain,
        fresh_seconds: float,
        min_replicas: int = 1,
        lost_seconds: float = 0,
    ) -> None:
        """Be not ready with fewer replicas, or with one that has not come up again for `lost_seconds` (0: whatever)."""
        self._pool = pool
        self._planner = planner
        self._drain = drain
        self._fresh_seconds = fresh_seconds
        self._min_replicas = min_replicas
        self._lost_seconds = lost_seconds or math.inf
        self._proving: asyncio.Task[str | None] | None = None
        self._asked = -math.inf
        self._last_failure: str | None = (
            "no plan has been made since the start"  # of the last probe; None where it succeeded
        )

    async def why_not(self) -> str | None:
        """Return None when a model would make a plan now; at most one probe runs at a time.

        A probe that takes longer than a health check may wait does not speak against the service, which has busy
        neighbours or a slow machine: the probe before it counts until this one has ended.
        """
        self._asked = time.monotonic()
        if (reason := self._known_reason()) or self._age() < self._fresh_seconds:
            return reason
        proving = self._prove()
        await asyncio.wait({proving}, timeout=_PATIENCE_SECONDS)
        if not proving.done():
            return self._known_reason() or self._last_failure
        return proving.result() or self._known_reason()

    async def prove_once(self, seconds: float) -> None:
        """Wait for a first trial plan, so long at most; where no replica is up there is none to wait for."""
        if self._known_reason() is None:
            await asyncio.wait({self._prove()}, timeout=seconds)

    async def watch(self) -> None:
        """Keep the proof fresh while somebody asks for it, until cancelled: a plan may take longer than an answer."""
        while True:
            await asyncio.sleep(self._fresh_seconds / 4)
            is_wanted = time.monotonic() - self._asked < _WANTED_SECONDS
            if is_wanted and self._age() > self._fresh_seconds / 2 and not self._known_reason():
                await asyncio.wait({self._prove()})

    def _prove(self) -> asyncio.Task[str | None]:
        if self._proving is None or self._proving.done():
            self._proving = asyncio.create_task(self._try())
        return self._proving

    async def _try(self) -> str | None:
        self._last_failure = await self._why_no_plan()
        return self._last_failure

    async def _why_no_plan(self) -> str | None:
        try:
            await self._planner.plan_with_model(self._planner.task(_PROBE, time.monotonic() + _PROBE_SECONDS))
        except (EngineError, ValueError) as error:
            words = str(error) if isinstance(error, EngineError) else type(error).__name__
            return f"a trial plan failed: {words}"
        return None

    def _known_reason(self) -> str | None:
        if self._drain.draining:
            return "the service is shutting down"
        if not (usable := self._pool.usable_count):
            return f"no replica of the model is up: {self._pool.why_down}"
        if usable < self._min_replicas:
            missing = f"only {usable} of {self._pool.replica_count} replicas are up, and {self._min_replicas} must be"
            return f"{missing}: {self._pool.why_down}"
        if (lost := self._pool.down_seconds) >= self._lost_seconds:
            return (
                f"a replica has not come up again for {lost:.0f} s, this host must be replaced: {self._pool.why_down}"
            )
        return None

    def _age(self) -> float:
        """Return the seconds since a model last made a plan."""
        return time.monotonic() - self._pool.last_success


class DeadlineWatch:
    """Detects that plans take longer here than the default deadline allows."""

    def __init__(self, pool: ReplicaPool, deadline_ms: int) -> None:
        self._pool = pool
        self._deadline_ms = deadline_ms
        self._told = False

    def notice(self) -> str | None:
        """Return the problem and its remedy; None where most plans are in time."""
        slowest_ms = self._pool.quantile(_SLOW_QUANTILE) * 1000
        if slowest_ms < _NEARLY * self._deadline_ms:
            return None
        enough_ms = min(100 * math.ceil(1.5 * slowest_ms / 100), _MOST_DEADLINE_MS)
        return (
            f"One plan in ten takes the model {slowest_ms:.0f} ms or more on this machine, and requests that name no "
            f"deadline allow {self._deadline_ms} ms: the small reader plans what would be late. Send "
            f'"deadline_ms": {enough_ms} with a request, or start the service with PEAKPLAN_DEADLINE_MS={enough_ms}; '
            "what decodes here, and what would be faster, stands in the log's first lines."
        )

    async def watch(self, seconds: float = _LOOK_SECONDS) -> None:
        """Check every `seconds` until cancelled, and log the problem the first time."""
        while True:
            if not self._told and (notice := self.notice()) is not None:
                logger.warning("plans take longer here than the deadline", extra={"detail": notice})
                self._told = True
            await asyncio.sleep(seconds)


_LOOK_AT_FILES_SECONDS = 5.0


class ReloadBusyError(Exception):
    """Raised when a reload is already running."""


class Reloader:
    """Runs one reload at a time; each replica is replaced once its successor is up."""

    def __init__(
        self,
        pool: ReplicaPool,
        find: Callable[[], ModelSource],
        read: Callable[[], Callable[[], None]],
        make_engine: Callable[[ModelSource, int], Engine],
    ) -> None:
        """Take `find`, which reads the model to serve: it may be slow and is called in a thread.

        `read` reads what planning must know of it, and raises EngineError where that is missing; what it returns is
        called once the model answers.
        """
        self._pool = pool
        self._find = find
        self._read = read
        self._make_engine = make_engine
        self._task: asyncio.Task[None] | None = None

    async def reload(self) -> str:
        """Return the new version. Raises ReloadBusyError, or EngineError when the new model does not start."""
        if self._task is not None and not self._task.done():
            raise ReloadBusyError
        self._task = asyncio.create_task(self._reload())
        await asyncio.shield(self._task)  # the caller may leave; half a reload is worse than none
        return self._pool.version

    def request(self) -> None:
        """Start a reload in the background; on SIGHUP."""
        if self._task is None or self._task.done():
            self._task = asyncio.create_task(self._reload())
            self._task.add_done_callback(lambda done: done.cancelled() or done.exception())

    async def close(self) -> None:
        if self._task is not None:
            self._task.cancel()
            await asyncio.gather(self._task, return_exceptions=True)

    async def watch(self, seconds: float = _LOOK_SECONDS) -> None:
        """Reload where replicas are missing and the files have changed, for they cannot start under the old version.

        Until cancelled; a reload that fails is tried again when the files change once more.
        """
        tried = ""
        while True:
            await asyncio.sleep(seconds)
            if self._pool.usable_count < self._pool.replica_count and (self._task is None or self._task.done()):
                found = await self._version()
                if found not in (self._pool.version, tried, ""):
                    tried = found
                    logger.warning("the model's files have changed, and replicas are missing: reloading")
                    self.request()

    async def _version(self) -> str:
        """Return the version of the files as they are; "" where they cannot be read now."""
        try:
            return (await asyncio.to_thread(self._find)).version
        except Exception as error:
            logger.warning("the model's files cannot be read", extra={"reason": type(error).__name__})
            return ""

    async def _reload(self) -> None:
        try:
            source, adopt = await asyncio.to_thread(self._find), await asyncio.to_thread(self._read)
            logger.info("reloading", extra={"version": source.version})
            await self._pool.reload(partial(self._make_engine, source), source.version)
        except EngineError as error:
            logger.error("reload failed: the old model stays", extra={"reason": str(error)})
            raise
        except Exception as fault:  # a bug of ours: logged, because perhaps no caller waits
            logger.error("reload failed: the old model stays", extra={"exception": error_location(fault)})
            raise
        adopt()
        logger.info("reloaded", extra={"version": source.version})
