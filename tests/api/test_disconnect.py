"""Clients that disconnect, over real sockets: the work they asked for ends with them."""

import asyncio
import json
from collections.abc import AsyncIterator

import pytest
import uvicorn

from service.__main__ import bind
from service.api.app import create_app, wire
from service.gateway.pool import ReplicaPool
from service.settings import Settings
from tests.fake_engines import FakeEngine

pytestmark = pytest.mark.anyio


@pytest.fixture
async def engine_and_port() -> AsyncIterator[tuple[FakeEngine, int]]:
    engine, settings = FakeEngine(hold=True), Settings(replicas=1)
    pool = ReplicaPool([engine])
    await pool.start()
    config = uvicorn.Config(create_app(wire(pool, settings), settings), lifespan="off", log_config=None)
    server = uvicorn.Server(config)
    with bind("127.0.0.1", 0) as listener:
        port = listener.getsockname()[1]
        serving = asyncio.create_task(server.serve(sockets=[listener]))
        while not server.started:
            await asyncio.sleep(0.005)
        yield engine, port
        server.should_exit = True
        await serving
    await pool.close()


async def ask(port: int, path: str = "/plan") -> tuple[asyncio.StreamReader, asyncio.StreamWriter]:
    """Return the connection of a client that has asked for red shoes."""
    question = {"query": "red shoes", "deadline_ms": 2000}
    body = json.dumps({"requests": [question] * 3} if path == "/plans" else question).encode()
    head = f"POST {path} HTTP/1.1\r\nHost: localhost\r\nContent-Type: application/json\r\n"
    head += f"Content-Length: {len(body)}\r\n\r\n"
    reader, writer = await asyncio.open_connection("127.0.0.1", port)
    writer.write(head.encode() + body)
    return reader, writer


@pytest.mark.parametrize("path", ["/plan", "/plans", "/answer", "/trace"])
async def test_a_client_that_leaves_cancels_its_generation(engine_and_port: tuple[FakeEngine, int], path: str) -> None:
    engine, port = engine_and_port
    _, writer = await ask(port, path)
    async with asyncio.timeout(20):
        while not engine.served:
            await asyncio.sleep(0.001)
        writer.close()
        while not engine.cancelled:
            await asyncio.sleep(0.001)
    assert (len(engine.served), engine.cancelled) == (1, 1)


async def test_a_client_that_leaves_takes_nothing_from_who_asked_the_same(
    engine_and_port: tuple[FakeEngine, int],
) -> None:
    engine, port = engine_and_port
    _, leaving = await ask(port)
    async with asyncio.timeout(20):
        while not engine.served:
            await asyncio.sleep(0.001)
        reader, staying = await ask(port)
        await asyncio.sleep(0.05)  # until it has joined
        leaving.close()
        await asyncio.sleep(0.05)  # until that is noticed
        engine.let_go()
        assert (await reader.readline()).startswith(b"HTTP/1.1 200 ")
    staying.close()
    assert (len(engine.served), engine.cancelled) == (1, 0)
