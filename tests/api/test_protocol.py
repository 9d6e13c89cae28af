"""Limits on what a request may send, and how long it may take, over real sockets."""

import asyncio
import contextlib

import pytest

from service.__main__ import Server
from tests.api.connections import BODY, GET, HEAD, LAST, connected, engine, exchange, port, problem_of, server

__all__ = ["engine", "port", "server"]
pytestmark = pytest.mark.anyio


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
    head = b"POST /plan HTTP/1.1\r\nHost: localhost\r\nContent-Type: application/json\r\nContent-Length: 100\r\n\r\n"
    assert (await exchange(port, head, b'{"query"')).startswith(b"HTTP/1.1 408")


async def test_what_is_not_http_is_answered_400(port: int) -> None:
    assert (await exchange(port, b"\x16\x03\x01\x02\x00\x01\x00")).startswith(b"HTTP/1.1 400")


CHUNKED = HEAD + b"Transfer-Encoding: chunked\r\n\r\n" + b"%x\r\n%b\r\n0\r\n" % (len(BODY), BODY)


async def test_trailers_are_dropped(port: int) -> None:
    answer = await exchange(port, CHUNKED + b"Host: y\r\nX-Request-Id: mine\r\n\r\n" + GET + LAST)
    assert answer.count(b"HTTP/1.1 200") == 2
    assert b"mine" not in answer


async def test_a_trailer_may_close_the_connection(port: int) -> None:
    assert (await exchange(port, CHUNKED + LAST)).count(b"HTTP/1.1 200") == 1


async def test_trailers_without_end_are_refused(port: int) -> None:
    trailers = [b"X-Trailer-%d: %b\r\n" % (number, b"x" * 1000) for number in range(200)]
    assert (await exchange(port, CHUNKED, *trailers)).startswith(b"HTTP/1.1 431")


@pytest.mark.parametrize("body", [BODY, b""])
async def test_a_wish_for_http_2_is_ignored(port: int, body: bytes) -> None:
    upgrade = b"Connection: Upgrade, HTTP2-Settings\r\nUpgrade: h2c\r\nHTTP2-Settings: AAMAAABkAAQAoAAAAAIAAAAA\r\n"
    request = HEAD + upgrade + b"Content-Length: %d\r\n\r\n" % len(body) + body
    answer = await exchange(port, request[:100], request[100:] + GET + upgrade + b"\r\n" + GET + LAST, pause=0.01)
    assert answer.count(b"HTTP/1.1 200") == (3 if body else 2)


@pytest.mark.parametrize(
    ("head", "status"),
    [
        (b"Host: localhost\r\nContent-Length: " + b"0" * 1500 + b"30\r\n", 400),
        (b"Host: localhost\r\nContent-Length: 99999999999999999999\r\n", 400),
        (b"Host: localhost\r\nContent-Length: 20000\r\nExpect: 100-continue\r\n", 413),
        (b"", 400),
        (b"Host: localhost\r\nHost: y\r\n", 400),
        (b"Host: localhost\r\nContent-Length: 3\r\nTransfer-Encoding: chunked\r\n", 400),
        (b"Host: localhost\r\nTransfer-Encoding: gzip, chunked\r\n", 400),
        (b"Host: localhost\r\nTransfer-Encoding: identity\r\nTransfer-Encoding: chunked\r\n", 400),
        (b"Host: localhost/plan?\r\n", 400),
        (b"Host: localhost y\r\n", 400),
    ],
)
async def test_a_head_that_is_wrong_is_refused_in_words(port: int, head: bytes, status: int) -> None:
    answer = await exchange(port, b"POST /plan HTTP/1.1\r\n" + head + b"\r\n")
    assert answer.startswith(b"HTTP/1.1 %d" % status)
    assert problem_of(answer)["detail"].endswith(".")


@pytest.mark.parametrize("version", [b"", b" HTTP/2.0", b" HTTP/1.0\r\nTransfer-Encoding: chunked"])
async def test_other_versions_and_what_they_do_not_know_are_refused(port: int, version: bytes) -> None:
    """Without a version a request is HTTP/0.9, whose answer would have no head: nobody may take it for a plan."""
    answer = await exchange(port, b"GET /plan" + version + b"\r\nHost: localhost\r\n\r\n")
    assert answer.startswith(b"HTTP/1.1 400")
    assert "HTTP/1.1" in problem_of(answer)["detail"]


@pytest.mark.parametrize(
    "request_line",
    [
        b"/%64rain", b"http://x/drain", b"http://x@y/drain?/healthz", b"//drain", b"/drain/", b"/drain;/healthz",
        b"/healthz/../drain", b"/drain#/healthz", b"/drain?/healthz", b"@x/drain", b"*/drain", b"/drain%2f",
    ],
)  # fmt: skip
async def test_no_spelling_of_a_path_gets_around_the_check_of_who_asks(
    port: int, server: Server, request_line: bytes
) -> None:
    head = b"POST %b HTTP/1.1\r\nHost: localhost\r\nContent-Length: 0\r\n" % request_line
    answer = await exchange(port, head + LAST)
    assert int(answer.split()[1]) in (400, 403, 404)
    assert not server.should_exit
    assert (await exchange(port, GET + LAST)).startswith(b"HTTP/1.1 200")


@pytest.mark.parametrize(
    ("start", "drop"),
    [(HEAD.replace(b"/plan", b"/nothing") + b"Content-Length: 1000\r\n\r\n", b"x"), (GET + b"\r\n", b"\r\n")],
)
async def test_bytes_that_drip_are_given_up(port: int, start: bytes, drop: bytes) -> None:
    async with connected(port) as [(reader, writer)]:
        writer.write(start)
        reading = asyncio.create_task(reader.read())
        while not reading.done():
            writer.write(drop)
            await asyncio.sleep(0.01)
        with contextlib.suppress(ConnectionError):
            assert (await reading).split(b"\r\n")[0] in (b"HTTP/1.1 408 Request Timeout", b"HTTP/1.1 200 OK")
