"""Uvicorn's fast HTTP protocol, bounded: in bytes that are no body, in time, in requests a turn, in connections.

A request reaches the application once its body is in: a sender who stalls holds a connection, which is closed when its
time is up or another needs the room, and nothing else. What is refused here is answered in words, after the requests
that came before it, and read on for a moment, because a closed socket would destroy the answer on its way.
"""

import asyncio
import os
import re
import socket
import struct
import sys
import time
from collections.abc import Collection, Iterable
from functools import partial
from typing import Any, ClassVar, Literal

import httptools
from uvicorn.protocols.http.httptools_impl import HttpToolsProtocol, RequestResponseCycle

from service.api.overload import RequestFilter, StartLimit, refusal_text

HEALTH_PATHS = ("/healthz", "/readyz")
_HEALTH_URLS = tuple(path.encode() for path in HEALTH_PATHS)
_MOST_PIPELINED = 64  # requests of one connection that wait; what follows is for another connection
_MOST_PIPELINED_BYTES = 64 * 1024  # of their bodies
_MORE_FOR_HEALTH = 64  # connections beyond the limit, which only health checks may use
_LINGER_SECONDS = 2.0
_LAST_REQUEST_SECONDS = 0.5  # into a shutdown, for a request that is on its way
_FRAMING = 8  # times a body's bytes: a chunk of one byte takes five more


class HttpProtocol(HttpToolsProtocol):
    """A connection. `limited` makes the class with a server's own limits."""

    max_header_bytes = 16 * 1024
    header_timeout_seconds = 10.0
    max_body_bytes = 16 * 1024
    body_timeout_seconds = 10.0
    max_connections = 4096
    behind: ClassVar[Collection[str]] = ()  # paths whose requests begin when no other waits
    idle: ClassVar[dict["HttpProtocol", None]] = {}  # connections whose request has not begun, in order of age
    start_limit: ClassVar[StartLimit] = StartLimit()
    request_filter: ClassVar[RequestFilter | None] = None

    @staticmethod
    def on_refusal(request_id: str, status: int) -> None:
        """Take the identifier and the status of a request that was refused while it was read."""

    def __init__(self, *arguments: Any, **named: Any) -> None:
        super().__init__(*arguments, **named)
        self._owed: Literal["", "head", "body"] = "head"  # what the client has still to send
        self._watched: str | None = None  # the part of it that the timer is for
        self._timer: asyncio.TimerHandle | None = None
        self._unread: asyncio.TimerHandle | None = None
        self._overhead = self._body_bytes = 0  # of this message
        self._begun_here = 0  # bytes that have been read just now, where a message begins with them
        self._held: tuple[RequestResponseCycle, Any] | None = None  # waits for its body
        self._running: RequestResponseCycle | None = None
        self._refusal: tuple[int, str] | None = None
        self._deaf = False  # nothing more is read
        self._reads = False  # what has come is being parsed
        self._is_fresh = True  # no request has begun here
        self._crowded = False

    @classmethod
    def limited(cls, max_header_bytes: int, header_timeout_seconds: float, **more: Any) -> type["HttpProtocol"]:
        """Return the class with these limits, and more of its attributes; uvicorn makes the instances."""
        limits = {"max_header_bytes": max_header_bytes, "header_timeout_seconds": header_timeout_seconds, **more}
        return type("LimitedHttpProtocol", (cls,), {"idle": {}, "start_limit": StartLimit(), **limits})

    @property
    def _busy(self) -> bool:
        return bool(self.pipeline) or (self._running is not None and not self._running.response_complete)

    def connection_made(self, transport: asyncio.Transport) -> None:  # type: ignore[override]
        super().connection_made(transport)
        excess = len(self.connections) - self.max_connections
        if excess > 0 and self.idle:
            oldest = next(iter(self.idle))
            del self.idle[oldest]
            oldest.transport.abort()
        elif excess > _MORE_FOR_HEALTH:
            return transport.abort()
        else:
            self._crowded = excess > 0
        self.idle[self] = None
        self._watch_sender()
        return None

    def connection_lost(self, exc: Exception | None) -> None:
        self.idle.pop(self, None)
        self._owed, self._deaf, self._held = "", True, None
        self._watch_sender()
        self._unset_keepalive_if_required()
        if self._unread is not None:
            self._unread.cancel()
        if self._running is not None and self._running is not self.cycle:  # which uvicorn tells by itself
            self._running.disconnected = True
            self._running.message_event.set()
        super().connection_lost(exc)
        # Requests that never began, or still run, hold this connection: without them it is freed at once, not by the
        # garbage collector, which an attack would keep busy.
        self.pipeline.clear()
        self.cycle = self._running = None  # type: ignore[assignment]

    def data_received(self, data: bytes) -> None:
        self._unset_keepalive_if_required()
        self._overhead += len(data)
        self._begun_here = 0 if self._owed == "body" else len(data)
        self._reads = True
        while data and not self._deaf:
            try:
                self.parser.feed_data(data)
                break
            except httptools.HttpParserUpgrade as upgrade:
                data = self._without_upgrade() + data[upgrade.args[0] :]
            except httptools.HttpParserError:
                self._refuse(400, "This is no valid HTTP/1.1.")
        self._reads = False
        if self._owed and self._overhead > self.max_header_bytes + _FRAMING * self._body_bytes:
            self._refuse(431, f"What is no body has more than {self.max_header_bytes} bytes.")
        if not self._owed and not self._busy and not self._deaf:  # line ends between two messages
            self._owed = "head"
        self._watch_sender()

    def on_message_begin(self) -> None:
        if self._deaf:
            return
        super().on_message_begin()
        self._owed, self._watched, self._body_bytes = "head", None, 0
        self._overhead, self._begun_here = self._begun_here, 0  # the next one in what has been read begins later there

    def on_header(self, name: bytes, value: bytes) -> None:
        if self._owed == "head":  # those after the body, trailers, are of no use here
            super().on_header(name, value)

    def on_headers_complete(self) -> None:
        if self._deaf or self.parser.should_upgrade():
            return
        waiting = sum(len(cycle.body) for cycle, _ in self.pipeline)
        if len(self.pipeline) >= _MOST_PIPELINED or waiting > _MOST_PIPELINED_BYTES:
            self._deaf, self._owed = True, ""
        elif (objection := self._objection()) is not None:
            self._refuse(*objection)
        else:
            self._owed = "body"
            super().on_headers_complete()

    def on_body(self, body: bytes) -> None:
        self._overhead -= len(body)
        self._body_bytes += len(body)
        if self._deaf:
            return
        self.cycle.body += body
        if self._body_bytes > self.max_body_bytes:
            self._refuse(413, f"The body is larger than {self.max_body_bytes} bytes.")

    def on_message_complete(self) -> None:
        if self._deaf or self.parser.should_upgrade():
            return
        self._owed = ""
        super().on_message_complete()
        if self._held is not None:
            (cycle, app), self._held = self._held, None
            self._start_asgi_task(cycle, app)

    def on_response_complete(self) -> None:
        super().on_response_complete()
        if self._busy or self.transport.is_closing():
            return
        if self._deaf:
            self._end()
        else:
            self.idle[self] = None

    def shutdown(self) -> None:
        """Finish what there is; a request that is on its way may still come, whose answer closes the connection."""
        if self._busy or self._held is not None:
            super().shutdown()
        else:
            self.loop.call_later(_LAST_REQUEST_SECONDS, self._close_unless_busy)

    def pause_writing(self) -> None:
        """Give a client that does not read its answers as much time as one that does not send."""
        super().pause_writing()
        self._unread = self.loop.call_later(self.body_timeout_seconds, self.transport.abort)

    def resume_writing(self) -> None:
        super().resume_writing()
        if self._unread is not None:
            self._unread.cancel()

    def timeout_keep_alive_handler(self) -> None:
        self.transport.abort()  # `close` would wait for ever for a client that does not read

    def send_400_response(self, msg: str) -> None:
        self._refuse(400, msg)

    def _start_asgi_task(self, cycle: RequestResponseCycle, app: Any) -> None:
        """Start the application once the whole message is here and its turn has come; for health checks, at once."""
        if cycle.more_body:
            self._held = (cycle, app)
            if cycle.waiting_for_100_continue:
                self.transport.write(b"HTTP/1.1 100 Continue\r\n\r\n")
                cycle.waiting_for_100_continue = False
            return
        self.idle.pop(self, None)
        self._running = cycle
        waited = waited_seconds(self.transport) if self._reads else 0.0  # else it was pipelined, and its turn comes now
        cycle.scope["state"] |= {"arrived": time.monotonic() - waited, "is_fresh": self._is_fresh}
        self._is_fresh = False
        if cycle.scope["path"] in HEALTH_PATHS:
            super()._start_asgi_task(cycle, app)
        elif cycle.scope["path"] in self.behind:
            self.start_limit.enter_behind(partial(super()._start_asgi_task, cycle, app), len(cycle.body))
        else:
            client = self.client[0] if self.client else ""
            self.start_limit.enter(partial(self._begin, cycle, app), len(cycle.body), client)

    def _begin(self, cycle: RequestResponseCycle, app: Any) -> bool:
        """Start the application; return False if the client has left or the request is refused."""
        if cycle.disconnected:
            return False
        if self.request_filter is None or (refused := self.request_filter.refusal(cycle)) is None:
            super()._start_asgi_task(cycle, app)
            return True
        cycle.response_started = cycle.response_complete = True
        text, is_last = refused
        self.transport.write(text)
        if is_last:
            self.transport.close()
        cycle.on_response()
        return False

    def _objection(self) -> tuple[int, str] | None:
        """Return status and words for a head that is refused, or that there is no room for."""
        version = self.parser.get_http_version()
        objection = objection_to_head(version, self.url, self.headers, self.max_header_bytes, self.max_body_bytes)
        if objection is None and self._crowded and self.url.partition(b"?")[0] not in _HEALTH_URLS:
            return 503, "This host has as many connections as it can hold. Try again in a second."
        return objection

    def _without_upgrade(self) -> bytes:
        """Return this message's head without its wish for another protocol, for a new parser: the body is HTTP/1.1."""
        method, version = self.parser.get_method(), self.parser.get_http_version().encode()
        if method == b"CONNECT":
            self._refuse(400, "CONNECT is for proxies, and this is none.")
        self.parser = httptools.HttpRequestParser(self)
        lines = [b"%b: %b\r\n" % header for header in self.headers if header[0] != b"upgrade"]
        return b"%b %b HTTP/%b\r\n%b\r\n" % (method, self.url, version, b"".join(lines))

    def _watch_sender(self) -> None:
        """Set a timer while the client owes bytes; clear it otherwise."""
        if self._watched == self._owed:
            return
        self._watched = self._owed
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None
        if self._owed:
            seconds = self.header_timeout_seconds if self._owed == "head" else self.body_timeout_seconds
            self._timer = self.loop.call_later(seconds, self._on_late)

    def _on_late(self) -> None:
        if self._owed == "body":
            self._refuse(408, "The body did not arrive in time.")
        else:
            self.transport.close()

    def _refuse(self, status: int, detail: str) -> None:
        """Answer once the requests before this one have their answers, and read nothing more."""
        if self._deaf:
            return
        self._deaf, self._refusal, self._owed = True, (status, detail), ""
        if self._held is not None:
            self._held[0].response_complete, self._held = True, None
        elif self.pipeline and self.pipeline[0][0].more_body:
            self.pipeline.popleft()
        if not self._busy:
            self._end()

    def _end(self) -> None:
        """Say why, where a message was refused, and close once the client has had time to read it."""
        self._watch_sender()
        self._unset_keepalive_if_required()
        if self.transport.is_closing():
            return
        if self._refusal is not None:
            request_id, (status, detail) = os.urandom(16).hex(), self._refusal
            servers = self.server_state.default_headers
            self.transport.write(refusal_text(servers, request_id, status, detail, is_last=True))
            self.on_refusal(request_id, status)
        self.transport.write_eof()
        self.loop.call_later(_LINGER_SECONDS, self.transport.abort)

    def _close_unless_busy(self) -> None:
        if not self._busy and self._held is None:
            self.transport.close()


_LONGEST_LENGTH = 18  # digits of a Content-Length
_HOST = re.compile(rb"[\w.:%~\[\]-]*")  # a name or an address, and a port
_AUTHORITY = re.compile(rb"[A-Za-z][A-Za-z0-9+.-]*://([^/?#]*)")  # of a target that is a whole address


def objection_to_head(
    version: str, url: bytes, headers: Iterable[tuple[bytes, bytes]], max_header_bytes: int, max_body_bytes: int
) -> tuple[int, str] | None:
    """Return status and words for a head that is refused, else None; the names of `headers` are in lower case."""
    size, length = len(url), b"0"
    hosts: list[bytes] = []
    codings: list[bytes] = []
    for name, value in headers:
        size += len(name) + len(value)
        if name == b"host":
            hosts.append(value)
        elif name == b"content-length":
            length = value.strip()
        elif name == b"transfer-encoding":
            codings.append(value.lower())
    if size > max_header_bytes:
        return 431, f"The request's head has more than {max_header_bytes} bytes."
    if version not in ("1.1", "1.0"):  # the parser takes 0.9 and 2.0, too
        return 400, "This is no HTTP/1.1."
    if codings and (codings != [b"chunked"] or version == "1.0"):  # proxies may read what follows in another way
        return 400, "A body comes as it is or chunked, in HTTP/1.1, and in no other coding."
    if (hosts or version == "1.1") and not (len(hosts) == 1 and _HOST.fullmatch(hosts[0])):
        return 400, "A request names its Host once."
    if (named := _AUTHORITY.match(url)) and [named[1].lower()] != [host.lower() for host in hosts]:
        return 400, "A request's address and its Host name the same host."
    if not length.isdigit() or len(length) > _LONGEST_LENGTH:  # Python reads no number of 4,300 digits
        return 400, f"A Content-Length is a number of at most {_LONGEST_LENGTH} digits."
    if int(length) > max_body_bytes:
        return 413, f"The body is larger than {max_body_bytes} bytes."
    return None


_TCP_INFO = struct.Struct("52xI")  # as far as tcpi_last_data_recv: milliseconds since data came last


def waited_seconds(transport: asyncio.BaseTransport) -> float:
    """Return how long the bytes just read had waited, the time before their connection was accepted included.

    0 where the system does not tell: only Linux does, and only of TCP.
    """
    connection = transport.get_extra_info("socket")
    if sys.platform != "linux" or connection is None:
        return 0.0
    try:
        told: bytes = connection.getsockopt(socket.IPPROTO_TCP, socket.TCP_INFO, _TCP_INFO.size)
    except (OSError, ValueError):  # no TCP, or closed by now
        return 0.0
    return float(_TCP_INFO.unpack(told)[0]) / 1000 if len(told) == _TCP_INFO.size else 0.0
