"""An engine whose model lives in a process of its own, so that no forward pass ever holds up the web server.

The server's end of the socket is non-blocking: a replica that hangs or is stopped in the middle of a message costs the
event loop nothing. A replica that does not answer a cancellation within `grace` seconds is killed.
"""

import asyncio
import contextlib
import logging
import os
import socket
import subprocess
import sys
from pathlib import Path
from typing import cast

import service
from service.engines.frames import Cancel, Decoder, Failure, FrameError, Hello, Message, ModelSource, Ready, encode
from service.engines.protocol import (
    EngineUnavailableError,
    GenerationRequest,
    GenerationResult,
    RequestRefusedError,
)

logger = logging.getLogger(__name__)

START_SECONDS = 1800.0  # the first start fetches the base weights
GRACE_SECONDS = 2.0
_SOURCE_ROOT = Path(service.__file__).parents[1]


class ReplicaLink(asyncio.Protocol):
    """The server's end of a replica's socket: at most one awaited message at a time."""

    def __init__(self) -> None:
        self.gone = asyncio.Event()
        self._decoder = Decoder()
        self._transport: asyncio.Transport | None = None
        self._awaited: asyncio.Future[Message] | None = None

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self._transport = cast(asyncio.Transport, transport)  # uvloop's are no subclass of it

    def data_received(self, data: bytes) -> None:
        try:
            messages = self._decoder.feed(data)
        except FrameError as error:
            logger.error("a replica answered with bytes that are no answer", extra={"reason": str(error)})
            return self.close()
        for message in messages:
            if self._awaited is not None and not self._awaited.done():
                self._awaited.set_result(message)
        return None

    def connection_lost(self, exc: Exception | None) -> None:  # noqa: ARG002
        self.gone.set()
        if self._awaited is not None and not self._awaited.done():
            self._awaited.set_exception(EngineUnavailableError("the replica's process ended"))

    def send(self, message: Message) -> None:
        """Queue a message; one to a process that is gone is dropped."""
        if self._transport is not None and not self._transport.is_closing():
            self._transport.write(encode(message))

    def expect(self) -> asyncio.Future[Message]:
        """The next message to come in. Raises EngineUnavailableError when the process ends first."""
        self._awaited = asyncio.get_running_loop().create_future()
        if self.gone.is_set():
            self._awaited.set_exception(EngineUnavailableError("the replica's process has ended"))
        return self._awaited

    def close(self) -> None:
        if self._transport is not None:
            self._transport.abort()


class ReplicaEngine:
    """One replica process as an `Engine`."""

    def __init__(
        self,
        source: ModelSource,
        *,
        threads: int = 1,
        start_seconds: float = START_SECONDS,
        grace_seconds: float = GRACE_SECONDS,
    ) -> None:
        self._source = source
        self._threads = threads
        self._start_seconds = start_seconds
        self._grace_seconds = grace_seconds
        self._process: subprocess.Popen[bytes] | None = None
        self._link: ReplicaLink | None = None
        self._model_id = ""
        self._ready = False  # between a start that succeeded and the next stop

    @property
    def model_id(self) -> str:
        return self._model_id

    @property
    def available(self) -> bool:
        return self._ready and self._link is not None and not self._link.gone.is_set()

    @property
    def pid(self) -> int | None:
        """The replica's process id; None before the first start."""
        return None if self._process is None else self._process.pid

    async def start(self) -> None:
        """Start the process and wait for its model. Raises EngineUnavailableError with the replica's own reason."""
        await self._stop()
        ours, theirs = socket.socketpair()
        try:
            with theirs:
                self._process = self._spawn(theirs)
        except EngineUnavailableError:
            ours.close()
            raise
        _, self._link = await asyncio.get_running_loop().create_unix_connection(ReplicaLink, sock=ours)
        self._link.send(Hello(self._source, os.getpid()))
        try:
            async with asyncio.timeout(self._start_seconds):
                answer = await self._link.expect()
        except TimeoutError:
            await self._stop()
            raise EngineUnavailableError(f"the replica was not ready after {self._start_seconds:.0f} s") from None
        except BaseException:
            await self._stop()
            raise
        if not isinstance(answer, Ready):
            await self._stop()
            raise EngineUnavailableError(answer.reason if isinstance(answer, Failure) else "the replica gave no model")
        self._model_id, self._ready = answer.model_id, True

    async def generate(self, request: GenerationRequest) -> GenerationResult:
        """See `Engine.generate`. When cancelled it waits for the replica to stop, and kills one that does not."""
        if self._link is None or not self._ready:
            raise EngineUnavailableError("the replica is not started")
        link = self._link
        answer = link.expect()
        link.send(request)
        try:
            message = await asyncio.shield(answer)
        except asyncio.CancelledError:
            link.send(Cancel())
            await self._settle(link, answer)
            raise
        if isinstance(message, GenerationResult):
            return message
        if isinstance(message, Failure) and message.refused:
            raise RequestRefusedError(message.reason)
        if isinstance(message, Failure):
            raise EngineUnavailableError(message.reason)
        link.close()
        raise EngineUnavailableError("the replica lost its way")

    async def failed(self) -> None:
        if self._link is not None:
            await self._link.gone.wait()

    async def close(self) -> None:
        await self._stop()

    async def _settle(self, link: ReplicaLink, answer: asyncio.Future[Message]) -> None:
        """Wait until the replica is free again. Nobody reads the cancelled request's answer, so mark it as seen."""
        answer.add_done_callback(lambda done: done.cancelled() or done.exception())
        await asyncio.wait({answer}, timeout=self._grace_seconds)
        if not answer.done():
            link.close()
            if self._process is not None:
                self._process.kill()

    def _spawn(self, stream: socket.socket) -> subprocess.Popen[bytes]:
        """A fresh interpreter in a process group of its own, so that Ctrl-C in a terminal does not reach it."""
        command = [sys.executable, "-P", "-m", "service.engines.replica_process", str(stream.fileno())]
        environment = {
            **os.environ,
            "PYTHONPATH": os.pathsep.join([str(_SOURCE_ROOT), *filter(None, sys.path)]),
            "OMP_NUM_THREADS": str(self._threads),
            "MKL_NUM_THREADS": str(self._threads),
            "TOKENIZERS_PARALLELISM": "false",
        }
        try:
            return subprocess.Popen(
                command, stdin=subprocess.DEVNULL, pass_fds=[stream.fileno()], env=environment, process_group=0
            )
        except OSError as error:
            raise EngineUnavailableError(f"no process for the replica: {error}") from error

    async def _stop(self) -> None:
        self._ready = False
        if self._link is not None:
            self._link.close()
        if self._process is not None:
            with contextlib.suppress(ProcessLookupError):
                self._process.kill()
            await asyncio.to_thread(self._process.wait)
        self._link, self._process = None, None
