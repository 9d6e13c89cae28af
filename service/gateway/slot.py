"""One replica's place in the pool: what it is known to take, whether it is trusted, and its restarts."""

import asyncio
import logging
import time
from collections.abc import Callable

from service.engines.protocol import Engine, EngineError
from service.gateway.request_queue import QueuedRequest
from service.gateway.service_times import ServiceTimes

logger = logging.getLogger(__name__)

MIN_BACKOFF = 0.05
_MAX_BACKOFF = 30.0
_STABLE_SECONDS = 60.0  # a replica that lived this long died of something new
_MOST_FAILURES = 3  # in a row


class Slot:
    """An engine and what the gateway thinks of it. The engine may be another one after a reload."""

    def __init__(self, engine: Engine, version: str = "") -> None:
        self.engine = engine
        self.version = version
        self.times = ServiceTimes()
        self.restarts = 0
        self._request: QueuedRequest | None = None  # that has it
        self._freed = asyncio.Event()
        self._freed.set()
        self._quarantined = asyncio.Event()
        self._failures = 0
        self._leaving = False

    @property
    def usable(self) -> bool:
        """Whether it may be given a request, were it free."""
        return self.engine.available and not self._quarantined.is_set() and not self._leaving

    @property
    def busy(self) -> bool:
        return not self._freed.is_set()

    def take(self, request: QueuedRequest) -> None:
        self._request = request
        self._freed.clear()

    def free(self) -> QueuedRequest | None:
        """The request that had it."""
        request, self._request = self._request, None
        self._freed.set()
        return request

    def succeeded(self) -> None:
        self._failures = 0

    def failed(self, reason: str) -> None:
        """Note a request that got no sound answer here; too many in a row and the replica is started anew."""
        self._failures += 1
        if self._failures >= _MOST_FAILURES:
            self.quarantine(reason)

    def quarantine(self, reason: str) -> None:
        """Trust it no more: give it nothing, start it anew."""
        if not self._quarantined.is_set():
            logger.error("replica taken out", extra={"reason": reason})
            self._quarantined.set()

    async def keep_alive(self, on_down: Callable[[], None], on_up: Callable[["Slot"], None]) -> None:
        """Start the engine again whenever it fails or is quarantined, ever more patiently while that happens soon."""
        backoff = MIN_BACKOFF
        while True:
            started = time.monotonic()
            await self._until_lost()
            on_down()
            lived = time.monotonic() - started
            backoff = MIN_BACKOFF if lived > _STABLE_SECONDS else min(backoff * 2, _MAX_BACKOFF)
            logger.error("replica down", extra={"lived_seconds": round(lived, 3), "backoff_seconds": backoff})
            while not self.usable:
                await asyncio.sleep(backoff)
                try:
                    await self._restart()
                except EngineError as error:
                    backoff = min(backoff * 2, _MAX_BACKOFF)
                    logger.error("replica restart failed", extra={"reason": str(error), "backoff_seconds": backoff})
            logger.info("replica up again")
            on_up(self)

    async def replace(self, engine: Engine, version: str) -> None:
        """Let the current request finish, then put another engine, already started, in the old one's place."""
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
        self.times.clear()
        self._failures = 0
        self._quarantined.clear()

    async def _until_lost(self) -> None:
        ends = [asyncio.ensure_future(self.engine.failed()), asyncio.ensure_future(self._quarantined.wait())]
        try:
            await asyncio.wait(ends, return_when=asyncio.FIRST_COMPLETED)
        finally:
            for end in ends:
                end.cancel()
