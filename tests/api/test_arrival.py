"""Since when a request is here, and what becomes of those that wait where nobody counts them."""

import asyncio
import json
import socket
import sys
import time
from typing import Any

import pytest
import uvloop

from service.__main__ import Server
from service.api.arrival import waited_seconds
from service.gateway import load_shedder
from service.gateway.load_shedder import LoadShedder
from tests.api.connections import BODY, GET, HEAD, engine, port, server

__all__ = ["engine", "port", "server"]
pytestmark = [
    pytest.mark.anyio,
    pytest.mark.skipif(sys.platform != "linux", reason="only Linux tells how long data lay there"),
]
PLAN = HEAD + b"Content-Length: %d\r\n" % len(BODY)
LATE = 0.25  # seconds for which the event loop does something else


async def asked_while_the_loop_was_busy(port: int, *requests: bytes, connection: socket.socket | None = None) -> bytes:
    """Send requests that nobody reads, nor accepts, before the event loop has time; return the answers."""
    own = connection or socket.create_connection(("127.0.0.1", port))
    own.sendall(b"".join(requests))
    time.sleep(LATE)
    own.setblocking(False)
    answer = b""
    while answer.count(b"HTTP/1.1 ") < len(requests) or not answer.endswith(b"}"):
        answer += await asyncio.get_running_loop().sock_recv(own, 65536)
    if connection is None:
        own.close()
    return answer


def total(answer: bytes) -> float:
    """Return the seconds that the last answer says it took."""
    return float(json.loads(answer.rpartition(b"\r\n\r\n")[2])["timing_ms"]["total"]) / 1000


async def test_time_counts_from_when_a_request_came_and_not_from_when_somebody_looked(port: int) -> None:
    assert total(await asked_while_the_loop_was_busy(port, PLAN + b"\r\n" + BODY)) >= LATE - 0.01


async def test_a_pipelined_request_has_its_time_from_its_turn_on(port: int) -> None:
    answer = await asked_while_the_loop_was_busy(port, *[PLAN + b"\r\n" + BODY] * 2)
    first, second = (part for part in answer.split(b"HTTP/1.1 ") if part)
    assert total(first) >= LATE - 0.01
    assert total(second) < total(first)


async def test_what_tells_nothing_has_not_waited() -> None:
    class Without(asyncio.BaseTransport):
        connection: Any = None

        def get_extra_info(self, name: str, default: Any = None) -> Any:
            return self.connection if name == "socket" else default

    transport = Without()
    assert waited_seconds(transport) == 0.0
    left, right = socket.socketpair()
    with left, right:
        transport.connection = left
        assert waited_seconds(transport) == 0.0, "a unix socket is no TCP"
    assert waited_seconds(transport) == 0.0, "it is closed"


def test_of_a_connection_that_uvloop_has_closed_it_tells_nothing() -> None:
    """Whose descriptor is -1, for which Python raises a ValueError."""

    async def ask() -> float:
        loop = asyncio.get_running_loop()
        server = await loop.create_server(asyncio.Protocol, "127.0.0.1", 0)
        transport, _ = await loop.create_connection(asyncio.Protocol, *server.sockets[0].getsockname())
        connection = transport.get_extra_info("socket")
        transport.abort()
        await asyncio.sleep(0.01)
        server.close()

        class Kept(asyncio.BaseTransport):
            def get_extra_info(self, name: str, default: Any = None) -> Any:
                return connection if name == "socket" else default

        return waited_seconds(Kept())

    assert uvloop.run(ask()) == 0.0


async def test_a_queue_that_stands_is_refused_and_health_is_not(
    port: int, server: Server, monkeypatch: pytest.MonkeyPatch
) -> None:
    """On a busy machine 300 fresh connections a second had their plans after 5 s each, and nobody a 503."""
    assert server.started
    request = PLAN + b"\r\n" + BODY
    assert (await asked_while_the_loop_was_busy(port, request)).startswith(b"HTTP/1.1 200"), "one hiccup"
    monkeypatch.setattr(load_shedder._Queue, "stands", lambda _queue, _now, waited, most: waited > most)
    refused = await asked_while_the_loop_was_busy(port, request)
    assert refused.startswith(b"HTTP/1.1 503")
    assert b"retry-after: 1\r\n" in refused.lower()
    assert (await asked_while_the_loop_was_busy(port, GET + b"\r\n")).startswith(b"HTTP/1.1 200")


async def test_it_is_told_whether_a_request_is_its_connections_first(
    port: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    seen: list[tuple[bool, bool, str]] = []

    def admits(_: LoadShedder, waited: float, *, is_fresh: bool = False, client: str = "") -> bool:
        seen.append((waited >= LATE - 0.01, is_fresh, client))
        return True

    monkeypatch.setattr(LoadShedder, "admits", admits)
    request = PLAN + b"\r\n" + BODY
    with socket.create_connection(("127.0.0.1", port)) as kept:
        for _ in range(2):
            await asked_while_the_loop_was_busy(port, request, connection=kept)
            kept.setblocking(True)
    assert seen == [(True, True, "127.0.0.1"), (True, False, "127.0.0.1")]
