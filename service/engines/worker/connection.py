"""The server's end of a replica's socket, non-blocking."""

import asyncio
import logging
from typing import cast

from service.engines.protocol import EngineUnavailableError
from service.engines.worker.messages import Decoder, FrameError, Message, encode

logger = logging.getLogger(__name__)


class ReplicaConnection(asyncio.Protocol):
    """The server's end of a replica's socket: at most one awaited message at a time."""

    def __init__(self) -> None:
        self.gone = asyncio.Event()
        self.owes = False  # whether a message is still expected, awaited or not
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
            self.owes = False
            if self._awaited is not None and not self._awaited.done():
                self._awaited.set_result(message)
        return None

    def connection_lost(self, _: Exception | None) -> None:
        self.gone.set()
        if self._awaited is not None and not self._awaited.done():
            self._awaited.set_exception(EngineUnavailableError("the replica's process ended"))

    def send(self, message: Message) -> None:
        """Queue a message; one to an ended process is dropped."""
        if self._transport is not None and not self._transport.is_closing():
            self._transport.write(encode(message))

    def expect(self) -> asyncio.Future[Message]:
        """Return a future of the next message. Raises EngineUnavailableError when the process ends first."""
        self.owes = True
        self._awaited = asyncio.get_running_loop().create_future()
        if self.gone.is_set():
            self._awaited.set_exception(EngineUnavailableError("the replica's process has ended"))
        return self._awaited

    def close(self) -> None:
        if self._transport is not None:
            self._transport.abort()
