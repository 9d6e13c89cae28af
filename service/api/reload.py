"""Reloads: roll the replicas over to the current content of the model folder."""

import asyncio
import logging
from collections.abc import Callable
from functools import partial

from service.engines.protocol import Engine, EngineError
from service.engines.worker.messages import ModelSource
from service.gateway.pool import ReplicaPool
from service.telemetry.logs import error_location

logger = logging.getLogger(__name__)


_LOOK_SECONDS = 5.0


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
        """Cancel a running reload."""
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
        except Exception as fault:  # a bug of ours, that nobody might wait for
            logger.error("reload failed: the old model stays", extra={"exception": error_location(fault)})
            raise
        adopt()
        logger.info("reloaded", extra={"version": source.version})
