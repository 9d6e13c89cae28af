"""An open-loop HTTP client: sends each request when it is due, whether or not earlier ones were answered.

Latency counts from the time a request was *meant* to be sent, so a stall of the service, or of this program, shows in
every request that it held up (no coordinated omission). The client does as little as possible while it runs, because it
shares the machine with the service: answers are kept as bytes and parsed afterwards.
"""

import asyncio
import contextlib
import gc
import math
import socket
import ssl
import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from typing import cast
from urllib.parse import urlsplit

_END_OF_HEAD = b"\r\n\r\n"
_READ_BYTES = 65536
_AHEAD = 0.0005  # seconds; what is due within this is sent now


@dataclass(frozen=True, slots=True)
class Shot:
    """A request: when it is due (seconds from the start), its JSON body, and its deadline (seconds)."""

    at: float
    body: bytes
    deadline: float = 0.3


@dataclass(slots=True)
class Sample:
    """The outcome of a shot. Times are seconds from the start; `status` 0 means no answer, and `error` says why."""

    at: float
    sent: float
    ended: float
    deadline: float
    status: int = 0
    body: bytes = b""
    error: str = ""

    @property
    def latency(self) -> float:
        """Seconds from when the request was meant to be sent."""
        return self.ended - self.at


@dataclass(frozen=True, slots=True)
class _Answer:
    status: int
    body: bytes
    closes: bool  # whether the server closes the connection after it


class _Connection(asyncio.Protocol):
    """One keep-alive connection with at most one request on it."""

    def __init__(self, on_idle: Callable[["_Connection"], None]) -> None:
        self._on_idle = on_idle
        self._buffer = bytearray()
        self._answer: asyncio.Future[_Answer] | None = None
        self._transport: asyncio.Transport | None = None
        self.open = False

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self._transport = cast(asyncio.Transport, transport)  # uvloop's are no subclass of it
        self.open = True

    def connection_lost(self, exc: Exception | None) -> None:
        self.open = False
        if self._answer is not None and not self._answer.done():
            self._answer.set_exception(ConnectionResetError(str(exc or "closed before the answer")))

    def ask(self, request: bytes) -> "asyncio.Future[_Answer]":
        """Send; the future gives the answer, or raises ConnectionError."""
        assert self._transport is not None
        self._buffer.clear()
        self._answer = asyncio.get_running_loop().create_future()
        self._transport.write(request)
        return self._answer

    def data_received(self, data: bytes) -> None:
        self._buffer += data
        answer = _whole_answer(self._buffer)
        if answer is None or self._answer is None or self._answer.done():
            return
        self._answer.set_result(answer)
        if answer.closes:
            self.close()
        else:
            self._on_idle(self)

    def close(self) -> None:
        self.open = False
        if self._transport is not None:
            self._transport.abort()


@contextlib.contextmanager
def _without_collections() -> Iterator[None]:
    """Suspend garbage collection, which would scan tens of thousands of kept samples again and again."""
    was_enabled = gc.isenabled()
    gc.disable()
    try:
        yield
    finally:
        if was_enabled:
            gc.enable()


class LoadGenerator:
    """Fires shots at one service and collects samples."""

    def __init__(
        self,
        url: str,
        *,
        timeout: float = 10.0,
        token: str = "",
        keep: bool = False,
        trust: ssl.SSLContext | None = None,
        source: str = "",
        path: str = "/plan",
    ) -> None:
        """Take `timeout`, seconds before an answer counts as lost; `keep` leaves connections open until `close`.

        `trust` verifies the service of an https:// URL, and `source` is the address of this machine to call from.
        """
        parts = urlsplit(url)
        self._trust = (trust or ssl.create_default_context()) if parts.scheme == "https" else None
        self._from = (source, 0) if source else None
        self._host, self._port = parts.hostname or "127.0.0.1", parts.port or (443 if self._trust else 80)
        self._timeout = timeout
        self._keep = keep
        self._head = f"POST {path} HTTP/1.1\r\nHost: {parts.netloc}\r\nContent-Type: application/json\r\n"
        self._head += f"Authorization: Bearer {token}\r\n" if token else ""
        self._idle: list[_Connection] = []
        self._started = 0.0

    async def fire(self, shots: Sequence[Shot], on_done: Callable[[Sample], object] = lambda _: None) -> list[Sample]:
        """Fire all shots when they are due, and wait for the answers. Samples are in the order of the shots."""
        with _without_collections():
            samples = await self._fire_all(shots, on_done)
        if not self._keep:
            self.close()
        return samples

    async def _fire_all(self, shots: Sequence[Shot], on_done: Callable[[Sample], object]) -> list[Sample]:
        self._started = time.perf_counter()
        tasks = []
        for shot in shots:
            wait = shot.at - self._now()
            if wait > _AHEAD:
                await asyncio.sleep(wait)
            tasks.append(asyncio.create_task(self._fire(shot, on_done)))
        return list(await asyncio.gather(*tasks))

    def close(self) -> None:
        """Close the connections that are kept for later shots."""
        for connection in self._idle:
            connection.close()
        self._idle.clear()

    async def _fire(self, shot: Shot, on_done: Callable[[Sample], object]) -> Sample:
        sample = Sample(at=shot.at, sent=self._now(), ended=0.0, deadline=shot.deadline)
        request = f"{self._head}Content-Length: {len(shot.body)}\r\n\r\n".encode() + shot.body
        connection: _Connection | None = None
        try:
            async with asyncio.timeout(self._timeout):
                connection = await self._connection()
                answer = await connection.ask(request)
                sample.status, sample.body = answer.status, answer.body
        except TimeoutError:
            sample.error = "no answer"
        except OSError as error:
            sample.error = type(error).__name__
        if sample.error and connection is not None:
            connection.close()
        sample.ended = self._now()
        on_done(sample)
        return sample

    async def _connection(self) -> _Connection:
        while self._idle:
            connection = self._idle.pop()
            if connection.open:
                return connection
        loop = asyncio.get_running_loop()
        _, made = await loop.create_connection(
            lambda: _Connection(self._idle.append), self._host, self._port, ssl=self._trust, local_addr=self._from
        )
        return made

    def _now(self) -> float:
        return time.perf_counter() - self._started


class Caller:
    """A closed-loop caller on a blocking socket, which costs the client least and delays no clock."""

    def __init__(self, url: str, timeout: float = 10.0) -> None:
        """Connect. Raises OSError where nothing listens."""
        parts = urlsplit(url)
        self._head = f"POST /plan HTTP/1.1\r\nHost: {parts.netloc}\r\nContent-Type: application/json\r\n"
        self._socket = socket.create_connection((parts.hostname or "127.0.0.1", parts.port or 80), timeout)
        self._socket.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)

    def ask(self, body: bytes) -> Sample:
        """Send one request and return its answer. Raises OSError."""
        request = f"{self._head}Content-Length: {len(body)}\r\n\r\n".encode() + body
        buffer = bytearray()
        started = time.perf_counter()
        self._socket.sendall(request)
        answer, received = None, started
        while answer is None:
            data = self._socket.recv(_READ_BYTES)
            received = time.perf_counter()  # parsing the answer is this program's own work
            if not data:
                raise ConnectionResetError("closed before the answer")
            buffer += data
            answer = _whole_answer(buffer)
        return Sample(0.0, 0.0, received - started, math.inf, answer.status, answer.body)

    def close(self) -> None:
        self._socket.close()


def _whole_answer(buffer: bytearray) -> _Answer | None:
    """Return the answer once it is complete."""
    end = buffer.find(_END_OF_HEAD)
    if end < 0:
        return None
    head = bytes(buffer[:end]).lower()
    start = head.find(b"content-length:")
    length = int(head[start + 15 :].split(b"\r\n", 1)[0]) if start >= 0 else 0
    body_start = end + len(_END_OF_HEAD)
    if len(buffer) < body_start + length:
        return None
    body = bytes(buffer[body_start : body_start + length])
    return _Answer(int(head[9:12]), body, b"connection: close" in head)
