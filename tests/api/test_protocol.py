"""Limits on a request's head, and slow clients, over real sockets."""

import asyncio
from collections.abc import AsyncIterator

import pytest
import uvicorn

from service.__main__ import bind
from service.api.app import create_app, wire
from service.api.protocol import HttpProtocol
from service.gateway.pool import ReplicaPool
from service.settings import HttpSettings, Settings
from tests.fake_engines import FakeEngine

pytestmark = pytest.mark.anyio
GET = b"GET /healthz HTTP/1.1\r\nHost: x\r\n"


@pytest.fixture
async def port() -> AsyncIterator[int]:
    settings = Settings(
        replicas=1, http=HttpSettings(max_header_bytes=2048, header_timeout_seconds=0.3, body_timeout_seconds=0.3)
    )
    pool = ReplicaPool([FakeEngine()])
    await pool.start()
    services = wire(pool, settings)
    protocol = HttpProtocol.limited(settings.http.max_header_bytes, settings.http.header_timeout_seconds)
    config = uvicorn.Config(create_app(services, settings), http=protocol, lifespan="off", log_config=None)
    server = uvicorn.Server(config)
    with bind("127.0.0.1", 0) as listener:
        serving = asyncio.create_task(server.serve(sockets=[listener]))
        while not server.started:
            await asyncio.sleep(0.005)
        yield listener.getsockname()[1]
        server.should_exit = True
        await serving
    await services.close()


async def exchange(port: int, *pieces: bytes, pause: float = 0.0) -> bytes:
    """Send the pieces with pauses; return everything until the server closes the connection."""
    reader, writer = await asyncio.open_connection("127.0.0.1", port)
    try:
        for piece in pieces:
            writer.write(piece)
            await asyncio.sleep(pause)
        async with asyncio.timeout(20):
            return await reader.read()
    except ConnectionError:
        return b""
    finally:
        writer.close()


async def test_a_head_that_fits_is_served(port: int) -> None:
    padding = b"X-Padding: " + b"x" * 1500 + b"\r\n"
    answer = await exchange(port, GET + padding + b"Connection: close\r\n\r\n")
    assert answer.startswith(b"HTTP/1.1 200")


@pytest.mark.parametrize(
    "pieces",
    [
        [GET + b"X-Padding: " + b"x" * 3000 + b"\r\n\r\n"],
        [GET + b"X-Padding: " + b"x" * 3000],
        [GET, *[b"X-Padding: " + b"x" * 500 + b"\r\n"] * 4],
        [b"GET /" + b"x" * 4000 + b" HTTP/1.1\r\n\r\n"],
    ],
)
async def test_a_head_that_grows_too_large_is_refused(port: int, pieces: list[bytes]) -> None:
    assert (await exchange(port, *pieces, pause=0.005)).startswith(b"HTTP/1.1 431")


@pytest.mark.parametrize("pieces", [[], [b"GET"], [GET, b"X-A: b\r\n"]])
async def test_a_head_that_never_ends_is_given_up(port: int, pieces: list[bytes]) -> None:
    assert await exchange(port, *pieces) == b""


async def test_a_body_that_never_ends_is_answered(port: int) -> None:
    head = b"POST /plan HTTP/1.1\r\nHost: x\r\nContent-Type: application/json\r\nContent-Length: 100\r\n\r\n"
    assert (await exchange(port, head, b'{"query"')).startswith(b"HTTP/1.1 408")


async def test_one_connection_serves_many_requests(port: int) -> None:
    reader, writer = await asyncio.open_connection("127.0.0.1", port)
    for _ in range(5):
        writer.write(GET + b"\r\n")
        head = await reader.readuntil(b"\r\n\r\n")
        assert head.startswith(b"HTTP/1.1 200")
        await reader.readexactly(int(head.lower().split(b"content-length:")[1].split(b"\r\n")[0]))
        await asyncio.sleep(0.1)
    writer.close()


async def test_what_is_not_http_is_answered_400(port: int) -> None:
    assert (await exchange(port, b"\x16\x03\x01\x02\x00\x01\x00")).startswith(b"HTTP/1.1 400")
