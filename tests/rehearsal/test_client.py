"""Tests of the load generator against small servers that misbehave on purpose."""

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager

import pytest

from rehearsal.client import LoadGenerator, Shot

pytestmark = pytest.mark.anyio
Handler = Callable[[asyncio.StreamReader, asyncio.StreamWriter], Awaitable[None]]
OK = b"HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\n{}"


@asynccontextmanager
async def server(handler: Handler) -> AsyncIterator[str]:
    writers: list[asyncio.StreamWriter] = []

    async def handle(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        writers.append(writer)
        try:
            await handler(reader, writer)
        except (asyncio.IncompleteReadError, ConnectionError):
            pass
        finally:
            writer.close()

    listener = await asyncio.start_server(handle, "127.0.0.1", 0)
    yield f"http://127.0.0.1:{listener.sockets[0].getsockname()[1]}"
    for writer in writers:
        writer.close()
    listener.close()
    await asyncio.sleep(0.05)


async def read_request(reader: asyncio.StreamReader) -> bytes:
    head = await reader.readuntil(b"\r\n\r\n")
    return await reader.readexactly(int(head.lower().split(b"content-length:")[1].split(b"\r\n")[0]))


async def test_answers_in_pieces_over_kept_connections() -> None:
    bodies: list[bytes] = []
    connections = 0

    async def handler(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        nonlocal connections
        connections += 1
        while True:
            bodies.append(await read_request(reader))
            for start in range(0, len(OK), 7):
                writer.write(OK[start : start + 7])
                await asyncio.sleep(0)

    async with server(handler) as url:
        samples = await LoadGenerator(url).fire([Shot(number * 0.02, b"%d" % number) for number in range(5)])
    assert [(sample.status, sample.body, sample.error) for sample in samples] == [(200, b"{}", "")] * 5
    assert bodies == [b"0", b"1", b"2", b"3", b"4"]
    assert connections < 5


async def test_a_stall_shows_in_every_request_that_it_held_up() -> None:
    """Check that a stall is counted; a closed loop would have sent one request and called the rest fast."""
    release = asyncio.Event()

    async def handler(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        while True:
            await read_request(reader)
            await release.wait()
            writer.write(OK)

    async with server(handler) as url:
        asyncio.get_running_loop().call_later(0.5, release.set)
        samples = await LoadGenerator(url).fire([Shot(number * 0.05, b"x") for number in range(6)])
    for number, sample in enumerate(samples):
        assert sample.latency >= 0.5 - number * 0.05 - 0.02


@pytest.mark.parametrize(
    ("answer", "error"), [(b"", "ConnectionResetError"), (b"HTTP/1.1 200", "ConnectionResetError")]
)
async def test_a_connection_that_ends_too_soon_is_a_failure(answer: bytes, error: str) -> None:
    async def handler(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        await read_request(reader)
        writer.write(answer)

    async with server(handler) as url:
        (sample,) = await LoadGenerator(url).fire([Shot(0.0, b"x")])
    assert (sample.status, sample.error) == (0, error)


async def test_an_answer_that_never_comes_is_given_up() -> None:
    async def handler(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:  # noqa: ARG001
        await reader.read()

    async with server(handler) as url:
        (sample,) = await LoadGenerator(url, timeout=0.05).fire([Shot(0.0, b"x")])
    assert (sample.status, sample.error) == (0, "no answer")


async def test_connection_close_is_honoured() -> None:
    async def handler(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        await read_request(reader)
        writer.write(OK.replace(b"\r\n\r\n", b"\r\nConnection: close\r\n\r\n"))

    async with server(handler) as url:
        samples = await LoadGenerator(url).fire([Shot(number * 0.02, b"x") for number in range(3)])
    assert [sample.status for sample in samples] == [200] * 3


async def test_nobody_there_is_a_failure_and_no_crash() -> None:
    (sample,) = await LoadGenerator("http://127.0.0.1:9").fire([Shot(0.0, b"x")])
    assert sample.error == "ConnectionRefusedError"
