"""An engine whose model lives in a process of its own, so that no forward pass ever holds up the web server.

The server's end of the socket is non-blocking: a replica that hangs or is stopped in the middle of a message costs the
event loop nothing. A replica that does not answer a cancellation within `grace` seconds, or the time of its longest
generation, is killed.
"""

import asyncio
import contextlib
import logging
import os
import signal
import socket
import time

from service.engines.protocol import (
    GRACE_SECONDS,
    EngineUnavailableError,
    GenerationRequest,
    GenerationResult,
    RequestRefusedError,
)
from service.engines.worker.messages import Cancel, Failure, LoadModel, Message, ModelSource, Ready, ReplicaConnection
from service.engines.worker.spawn import ForkServer, Process, can_fork, spawn

logger = logging.getLogger(__name__)

START_SECONDS = 1800.0  # the first start fetches the base weights
_MOST_GRACE_SECONDS = 10.0
_END_SECONDS = 1.0  # for a process whose socket is closed
_FORKED_SECONDS = 15.0  # for a forked replica to be ready: it has its model, and takes milliseconds


class ReplicaEngine:
    """One replica process as an `Engine`, or one of the slots of a process that decodes several requests together."""

    def __init__(
        self,
        source: ModelSource,
        *,
        start_seconds: float = START_SECONDS,
        grace_seconds: float = GRACE_SECONDS,
    ) -> None:
        self._source = source
        self._start_seconds = start_seconds
        self._grace_seconds = grace_seconds
        self._shares = source.slots > 1 and can_fork()
        self._fork_server = ForkServer.join(source) if self._shares or (source.forkable and can_fork()) else None
        self._process: Process | None = None
        self._link: ReplicaConnection | None = None
        self.model_id = ""
        self.kernel = ""
        self._longest = 0.0  # seconds of its generations
        self._ready = False  # between a start that succeeded and the next stop

    @property
    def available(self) -> bool:
        return self._ready and self._link is not None and not self._link.gone.is_set()

    @property
    def pid(self) -> int | None:
        """Process id of the replica; None before the first start."""
        return None if self._process is None else self._process.pid

    async def start(self) -> None:
        """Start the process and wait for its model. Raises EngineUnavailableError with the replica's own reason."""
        await self._stop()
        try:
            async with asyncio.timeout(self._start_seconds):
                answer = await self._begin()
        except TimeoutError:
            await self._stop()
            raise EngineUnavailableError(f"the replica was not ready after {self._start_seconds:.0f} s") from None
        except BaseException:
            await self._stop()
            raise
        if not isinstance(answer, Ready):
            await self._stop()
            raise EngineUnavailableError(answer.reason if isinstance(answer, Failure) else "the replica gave no model")
        self.model_id, self.kernel, self._ready = answer.model_id, answer.kernel, True

    async def generate(self, request: GenerationRequest) -> GenerationResult:
        """See `Engine.generate`. When cancelled it waits for the replica to stop, and kills one that does not."""
        if self._link is None or not self._ready:
            raise EngineUnavailableError("the replica is not started")
        link = self._link
        answer = link.expect()
        link.send(request)
        started = time.monotonic()
        try:
            message = await answer
        except asyncio.CancelledError:
            if link.owes:  # the answer may have arrived since the cancellation
                link.send(Cancel())
                await self._settle(link)
            raise
        if isinstance(message, GenerationResult):
            self._longest = max(self._longest, time.monotonic() - started)
            return message
        if isinstance(message, Failure) and message.refused:
            raise RequestRefusedError.of(message.reason)
        if isinstance(message, Failure):
            raise EngineUnavailableError(message.reason)
        link.close()
        raise EngineUnavailableError("the replica sent an unexpected message")

    async def failed(self) -> str:
        """Return how the process ended, once it has."""
        if self._link is None or self._process is None:
            return "it was never started"
        await self._link.gone.wait()
        try:
            async with asyncio.timeout(_END_SECONDS):
                code = await asyncio.to_thread(self._process.wait)
        except TimeoutError:
            return "its process closed the connection"
        return f"its process ended with {code}" if code >= 0 else f"its process ended by {signal.Signals(-code).name}"

    async def close(self) -> None:
        await self._stop()
        if self._fork_server is not None:
            fork_server, self._fork_server = self._fork_server, None
            await fork_server.leave()

    async def _begin(self) -> Message:
        """Start a process and return its first message."""
        ours, theirs = socket.socketpair()
        try:
            with theirs:
                if self._fork_server is None:
                    self._process = spawn(theirs, self._source.python)
                else:
                    self._process = await self._fork_server.fork(theirs)
        except BaseException:
            ours.close()
            raise
        _, self._link = await asyncio.get_running_loop().create_unix_connection(ReplicaConnection, sock=ours)
        self._link.send(LoadModel(self._source, os.getpid()))  # a process speaks only after this
        try:
            async with asyncio.timeout(None if self._fork_server is None else _FORKED_SECONDS):
                return await self._link.expect()
        except TimeoutError:
            raise EngineUnavailableError(f"the forked replica was not ready after {_FORKED_SECONDS:.0f} s") from None

    async def _settle(self, link: ReplicaConnection) -> None:
        """Wait until the replica is free again. The cancelled request's answer is marked as retrieved."""
        answer = link.expect()
        answer.add_done_callback(lambda done: done.cancelled() or done.exception())
        # A replica looks up between two layers, or two forwards where they are compiled: a generation of it is ample.
        grace = max(self._grace_seconds, min(self._longest, _MOST_GRACE_SECONDS))
        await asyncio.wait({answer}, timeout=grace)
        if not answer.done():
            logger.error("a cancelled replica did not come free: killed", extra={"seconds": round(grace, 3)})
            link.close()
            if self._process is not None:
                self._process.kill()

    async def _stop(self) -> None:
        self._ready = False
        if self._link is not None:
            self._link.close()
        if self._process is not None and not self._shares:  # what others share ends with the last of them
            with contextlib.suppress(ProcessLookupError):
                self._process.kill()
            await asyncio.to_thread(self._process.wait)
        self._link, self._process = None, None
