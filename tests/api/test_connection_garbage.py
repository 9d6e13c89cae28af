"""A connection that breaks off is freed at once, whatever it was doing: nothing waits for the garbage collector."""

import asyncio
import gc
import socket
import struct
import weakref
from collections.abc import Iterator

import pytest

from service.__main__ import Server
from service.api.protocol import HttpProtocol
from tests.api.connections import GET, HEAD, PLAN, Client, connected, engine, port, server
from tests.fake_engines import FakeEngine, until

__all__ = ["engine", "port", "server"]
pytestmark = pytest.mark.anyio

_RESET = struct.pack("ii", 1, 0)  # SO_LINGER: closing sends a reset


@pytest.fixture
def uncollected() -> Iterator[None]:
    gc.collect()
    gc.disable()
    yield
    gc.enable()


def break_off(client: Client, *, reset: bool) -> None:
    connection: socket.socket = client[1].get_extra_info("socket")
    if reset:
        connection.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, _RESET)
    client[1].transport.abort()


@pytest.mark.parametrize("reset", [False, True], ids=["closed", "reset"])
@pytest.mark.parametrize(
    "sent",
    [
        b"",
        GET,
        b"nonsense\r\n\r\n",
        HEAD + b"Content-Length: 20\r\n\r\n{",
        HEAD + b"Content-Length: 20\r\nExpect: 100-continue\r\n\r\n",
        GET + b"\r\n",
        PLAN,
        PLAN + PLAN + GET + b"\r\n",
    ],
    ids=["silent", "half a head", "nonsense", "half a body", "expects", "answered", "planning", "pipelined"],
)
@pytest.mark.usefixtures("uncollected")
async def test_it_leaves_nothing_to_the_garbage_collector(
    server: Server, port: int, engine: FakeEngine, sent: bytes, *, reset: bool
) -> None:
    engine.hold()
    seen: list[weakref.ref[HttpProtocol]] = []

    async with connected(port) as [client]:
        client[1].write(sent)
        await client[1].drain()
        await until(lambda: len(server.server_state.connections) == 1)
        seen += [weakref.ref(each) for each in server.server_state.connections]  # type: ignore[arg-type]
        await asyncio.sleep(0.05)
        break_off(client, reset=reset)

    await until(lambda: not server.server_state.connections and not server.server_state.tasks)
    await until(lambda: seen[0]() is None)
