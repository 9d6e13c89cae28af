"""Messages between the server and a replica process: pickles with length and checksum before them, over one socket.

Both ends are our own processes and the socket has no name, so the pickles are trusted. The checksum is for a replica
whose memory or device has gone bad: bytes that are not what was written are no answer. The server's end is
`ReplicaConnection`, the replica's is `Channel`.
"""

import asyncio
import logging
import pickle
import socket
import struct
import zlib
from collections.abc import Mapping
from dataclasses import dataclass
from typing import cast

from service.engines.protocol import EngineUnavailableError, GenerationRequest, GenerationResult

_HEAD = struct.Struct("!II")  # length of the body, its CRC-32
_MAX_BODY_BYTES = 16 * 1024 * 1024
_READ_BYTES = 65536

logger = logging.getLogger(__name__)


class FrameError(Exception):
    """Raised for invalid input: its length is absurd, its checksum wrong, or it does not unpickle."""


@dataclass(frozen=True, slots=True)
class ModelSource:
    """How a replica gets its model: `loader` is "module:function", called with keyword `arguments`.

    It is a name and not the function itself, so that the server need not import torch. Sources of equal `version` give
    equal answers: cached plans of one are valid for the other. `check` names a function that returns the version of
    what is there now, from the same arguments. A `forkable` model lives in one thread on the CPU, and therefore
    survives a fork of its process. One of several `slots` decodes so many requests together, for as many engines.
    `python` is the interpreter that has the model's libraries, "" for the server's own.
    """

    loader: str
    arguments: Mapping[str, object]
    version: str = ""
    forkable: bool = False
    check: str = ""
    slots: int = 1
    python: str = ""


@dataclass(frozen=True, slots=True)
class LoadModel:
    """The first message to a replica's process: what to load, its parent, and whether to serve or to fork."""

    source: ModelSource
    parent_pid: int
    forks: bool = False


@dataclass(frozen=True, slots=True)
class Ready:
    """Reports that the model is loaded and has answered once."""

    model_id: str
    kernel: str = ""  # what computes the model: "avx2 int8"


@dataclass(frozen=True, slots=True)
class Forked:
    """Reports that a replica was forked."""

    pid: int


@dataclass(frozen=True, slots=True)
class Cancel:
    """Asks to stop the current generation; its result still follows, cut short."""


@dataclass(frozen=True, slots=True)
class Failure:
    """Reports a failed load or request. `refused` marks a request that no replica would take."""

    reason: str
    refused: bool = False


Message = LoadModel | Ready | Forked | Cancel | Failure | GenerationRequest | GenerationResult


def encode(message: Message) -> bytes:
    body = pickle.dumps(message, protocol=pickle.HIGHEST_PROTOCOL)
    return _HEAD.pack(len(body), zlib.crc32(body)) + body


class Decoder:
    """Collects bytes and returns whole messages, however the bytes are split."""

    def __init__(self) -> None:
        self._buffer = bytearray()

    def feed(self, data: bytes) -> list[Message]:
        """Return the messages that `data` completes, in order. Raises FrameError; the stream is unusable then."""
        self._buffer += data
        messages: list[Message] = []
        while len(self._buffer) >= _HEAD.size:
            length, checksum = _HEAD.unpack_from(self._buffer)
            if length > _MAX_BODY_BYTES:
                raise FrameError(f"a message of {length} bytes")
            end = _HEAD.size + length
            if len(self._buffer) < end:
                break
            messages.append(_decode(bytes(self._buffer[_HEAD.size : end]), checksum))
            del self._buffer[:end]
        return messages


def _decode(body: bytes, checksum: int) -> Message:
    if zlib.crc32(body) != checksum:
        raise FrameError("a message with a wrong checksum")
    try:
        message: Message = pickle.loads(body)
    except Exception as error:  # unpickling may raise anything
        raise FrameError(f"a message that does not unpickle: {type(error).__name__}") from error
    return message


class Channel:
    """The replica's blocking end of the socket."""

    def __init__(self, stream: socket.socket) -> None:
        self._stream = stream
        self._decoder = Decoder()
        self._waiting: list[Message] = []

    def fileno(self) -> int:
        return self._stream.fileno()

    def send(self, message: Message) -> None:
        self._stream.sendall(encode(message))

    def receive(self) -> Message | None:
        """Return the next message; None once the other end is gone."""
        while not self._waiting:
            data = self._stream.recv(_READ_BYTES)
            if not data:
                return None
            self._waiting += self._decoder.feed(data)
        return self._waiting.pop(0)

    def interrupted(self) -> bool:
        """Tell, without blocking or reading, whether anything has arrived or the other end is gone since `receive`."""
        if self._waiting:
            return True
        try:
            self._stream.recv(1, socket.MSG_PEEK | socket.MSG_DONTWAIT)
        except BlockingIOError:
            return False
        return True


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
