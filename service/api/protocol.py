"""Uvicorn's fast HTTP protocol, with limits on a request's head in bytes and in time.

Without them a caller could hold a connection forever with a slow head, or send an endless one.
"""

import asyncio
from typing import Any

from uvicorn.protocols.http.httptools_impl import HttpToolsProtocol


class HttpProtocol(HttpToolsProtocol):
    """A connection. A head that is too large is answered 431; one that takes too long closes the connection."""

    max_header_bytes = 16 * 1024
    header_timeout_seconds = 10.0

    def __init__(self, *arguments: Any, **named: Any) -> None:
        super().__init__(*arguments, **named)
        self._in_head = True
        self._head_bytes = 0
        self._head_timer: asyncio.TimerHandle | None = None

    @classmethod
    def limited(cls, max_header_bytes: int, header_timeout_seconds: float) -> type["HttpProtocol"]:
        """Return the class with these limits; uvicorn makes the instances."""
        return type(
            "LimitedHttpProtocol",
            (cls,),
            {"max_header_bytes": max_header_bytes, "header_timeout_seconds": header_timeout_seconds},
        )

    def connection_made(self, transport: asyncio.Transport) -> None:  # type: ignore[override]
        super().connection_made(transport)
        self._start_timer()

    def connection_lost(self, exc: Exception | None) -> None:
        self._stop_timer()
        super().connection_lost(exc)

    def data_received(self, data: bytes) -> None:
        super().data_received(data)
        if self._in_head:
            self._head_bytes += len(data)
            if self._head_bytes > self.max_header_bytes:
                self._refuse()
            elif self._head_timer is None:  # nearly every head arrives whole, and then needs no timer
                self._start_timer()

    def on_message_begin(self) -> None:
        super().on_message_begin()
        if not self._in_head:  # the connection's next request has begun
            self._in_head, self._head_bytes = True, 0

    def on_headers_complete(self) -> None:
        self._in_head = False
        self._stop_timer()
        size = len(self.url) + sum(len(name) + len(value) for name, value in self.headers)
        if size > self.max_header_bytes:
            self._refuse()
        else:
            super().on_headers_complete()

    def on_body(self, body: bytes) -> None:
        if not self.transport.is_closing():
            super().on_body(body)

    def on_message_complete(self) -> None:
        if not self.transport.is_closing():
            super().on_message_complete()

    def _start_timer(self) -> None:
        self._head_timer = self.loop.call_later(self.header_timeout_seconds, self.transport.close)

    def _stop_timer(self) -> None:
        if self._head_timer is not None:
            self._head_timer.cancel()
            self._head_timer = None

    def _refuse(self) -> None:
        if not self.transport.is_closing():
            self.transport.write(b"HTTP/1.1 431 Request Header Fields Too Large\r\nconnection: close\r\n\r\n")
            self.transport.close()
