"""Limits on what a request may send, and how long it may take, over real sockets."""

import asyncio
import contextlib
import gc
import json
import socket
import struct
import weakref
from collections.abc import Iterator

import pytest

from service.__main__ import Server
from service.api.observation import CLIENT_CLOSED_REQUEST
from service.api.protocol import HttpProtocol, objection_to_head
from tests.api.client import (
    BODY,
    CONNECTIONS,
    GET,
    HEAD,
    LAST,
    PLAN,
    Client,
    connected,
    engine,
    exchange,
    port,
    problem_of,
    server,
)
from tests.fake_engines import FakeEngine, until

__all__ = ["engine", "port", "server"]
pytestmark = pytest.mark.anyio


CHUNKED = HEAD + b"Transfer-Encoding: chunked\r\n\r\n" + b"%x\r\n%b\r\n0\r\n" % (len(BODY), BODY)


@pytest.mark.parametrize(
    ("pieces", "status"),
    [
        ([GET + b"X-Padding: " + b"x" * 3000 + b"\r\n\r\n"], 431),
        ([GET + b"X-Padding: " + b"x" * 3000], 431),
        ([GET, *[b"X-Padding: " + b"x" * 500 + b"\r\n"] * 4], 431),
        ([b"GET /" + b"x" * 4000 + b" HTTP/1.1\r\n\r\n"], 431),
        ([CHUNKED, b"".join(b"X-Trailer-%d: %b\r\n" % (number, b"x" * 1000) for number in range(200))], 431),
        ([HEAD + b"Content-Length: 100\r\n\r\n", b'{"query"'], 408),
        ([b"\x16\x03\x01\x02\x00\x01\x00"], 400),
    ],
    ids=["head", "open head", "many lines", "address", "trailers", "a body that never ends", "no http"],
)
async def test_what_grows_too_large_or_never_ends_or_is_not_http_is_refused(
    port: int, pieces: list[bytes], status: int
) -> None:
    assert (await exchange(port, *pieces, pause=0.005)).startswith(b"HTTP/1.1 %d" % status)


@pytest.mark.parametrize("pieces", [[], [b"GET"], [GET, b"X-A: b\r\n"]])
async def test_a_head_that_never_ends_is_given_up(port: int, pieces: list[bytes]) -> None:
    assert await exchange(port, *pieces) == b""


async def test_trailers_are_dropped(port: int) -> None:
    answer = await exchange(port, CHUNKED + b"Host: y\r\nX-Request-Id: mine\r\n\r\n" + GET + LAST)
    assert answer.count(b"HTTP/1.1 200") == 2
    assert b"mine" not in answer


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


HOST = (b"host", b"localhost")


def status(*headers: tuple[bytes, bytes], version: str = "1.1", url: bytes = b"/plan") -> int | None:
    refused = objection_to_head(version, url, [HOST, *headers], max_header_bytes=100, max_body_bytes=30)
    return refused and refused[0]


def test_a_body_has_at_most_so_many_bytes() -> None:
    assert status() is None
    assert status((b"content-length", b" 30 ")) is None
    assert status((b"content-length", b"31")) == 413
    assert status((b"content-length", b"9" * 19)) == 400
    assert status((b"content-length", b"t")) == 400


@pytest.mark.parametrize(
    ("url", "refused"),
    [
        (b"http://localhost/plan", None),
        (b"HTTP://LOCALHOST?x", None),
        (b"http://evil.example/plan", 400),
        (b"http://localhost:81/plan", 400),
        (b"http://user@localhost/plan", 400),
        (b"http://evil.example#/plan", 400),
        (b"/plan?http://evil.example/", None),
        (b"*", None),
    ],
)
def test_a_whole_address_names_the_host_that_the_header_names(url: bytes, refused: int | None) -> None:
    assert status(url=url) == refused


def test_a_whole_address_without_a_host_is_refused() -> None:
    assert objection_to_head("1.0", b"http://evil.example/", [], max_header_bytes=100, max_body_bytes=30) is not None
    assert objection_to_head("1.0", b"/plan", [], max_header_bytes=100, max_body_bytes=30) is None


async def test_bodies_that_wait_behind_others_are_few_bytes(port: int, engine: FakeEngine) -> None:
    engine.hold()
    large = HEAD + b"Content-Length: 16000\r\n\r\n" + b" " * 16_000
    async with connected(port) as [(reader, writer)]:
        writer.write(PLAN + large * 40)
        await until(lambda: bool(engine.served))
        await asyncio.sleep(0.05)
        engine.let_go()
        answers = await reader.read()
    assert 2 < answers.count(b"HTTP/1.1 ") < 10


async def test_a_refusal_waits_for_the_answers_before_it(port: int) -> None:
    answer = await exchange(port, PLAN * 3 + b"GET / HTTP/1.1\r\n\r\n" + PLAN)
    assert [int(part[:3]) for part in answer.split(b"HTTP/1.1 ")[1:]] == [200, 200, 200, 400]


async def test_pipelined_requests_are_all_answered_although_they_are_many_bytes(port: int) -> None:
    requests = PLAN * 50 + GET + LAST
    assert len(requests) > 2048
    assert (await exchange(port, requests[:4000], requests[4000:], pause=0.02)).count(b"HTTP/1.1 200") == 51


async def test_a_connection_pipelines_so_many_requests_and_no_more(port: int) -> None:
    answered = (await exchange(port, (GET + b"\r\n") * 5000)).count(b"HTTP/1.1 200")
    assert 50 < answered < 200


async def test_half_sent_bodies_hold_up_nobody(port: int) -> None:
    async with connected(port, CONNECTIONS - 2) as half:
        for _, writer in half:
            writer.write(PLAN[:-5])
        await asyncio.sleep(0.05)
        assert (await exchange(port, PLAN.replace(b"\r\n\r\n", b"\r\n" + LAST))).startswith(b"HTTP/1.1 200")
        for reader, writer in half:
            writer.write(PLAN[-5:])
            assert (await reader.readline()).startswith(b"HTTP/1.1 200")


async def test_past_the_limit_the_connection_idle_longest_makes_room(port: int) -> None:
    async with connected(port, CONNECTIONS) as clients:
        reader, writer = clients[0]
        writer.write(GET + b"\r\n")  # the oldest one is in use, and no longer idle longest
        await reader.readuntil(b"}")
        assert (await exchange(port, GET + LAST)).startswith(b"HTTP/1.1 200")
        writer.write(GET + b"\r\n")
        assert (await reader.readline()).startswith(b"HTTP/1.1 200")
        with contextlib.suppress(ConnectionError):
            assert await clients[1][0].read() == b""


def asking(writer: asyncio.StreamWriter, path: str = "/plan") -> None:
    """Ask for red shoes."""
    question = {"query": "red shoes", "deadline_ms": 2000}
    body = json.dumps({"requests": [question] * 3} if path == "/plans" else question).encode()
    writer.write(HEAD.replace(b"/plan", path.encode()) + b"Content-Length: %d\r\n\r\n" % len(body) + body)


async def test_a_full_host_still_answers_health_checks(port: int, server: Server, engine: FakeEngine) -> None:
    idle = server.config.http_protocol_class.idle  # type: ignore[union-attr]
    engine.hold()
    async with connected(port, CONNECTIONS) as clients:
        for _, writer in clients:
            asking(writer)  # one generation that all wait for
        await until(lambda: bool(engine.served) and not idle)  # an idle connection makes room
        assert (await exchange(port, GET + LAST)).startswith(b"HTTP/1.1 200")
        refused = await exchange(port, PLAN)
        engine.let_go()
        assert refused.startswith(b"HTTP/1.1 503")
        assert b"retry-after: 1" in refused
        assert "connections" in problem_of(refused)["detail"]
        for reader, _ in clients:
            assert (await reader.readline()).startswith(b"HTTP/1.1 200")


async def test_requests_that_are_on_their_way_at_the_end_are_answered(port: int, server: Server) -> None:
    async with connected(port, 20) as fresh:
        server.should_exit = True
        for _, writer in fresh:
            writer.write(PLAN)
        waiting = [socket.create_connection(("127.0.0.1", port)) for _ in range(20)]  # which nobody accepts meanwhile
        for client in waiting:
            client.sendall(PLAN)
            client.setblocking(False)
        for reader, _ in fresh:
            assert (await reader.readline()).startswith(b"HTTP/1.1 200")
        for client in waiting:
            with client:
                assert (await asyncio.get_running_loop().sock_recv(client, 1024)).startswith(b"HTTP/1.1 200")


async def test_a_body_that_is_on_its_way_at_the_end_is_waited_for(port: int, server: Server) -> None:
    async with connected(port) as [(reader, writer)]:
        writer.write(PLAN[:-5])
        await asyncio.sleep(0.05)
        server.should_exit = True
        await asyncio.sleep(0.6)
        writer.write(PLAN[-5:])
        assert (await reader.readline()).startswith(b"HTTP/1.1 200")


async def test_a_client_that_does_not_read_its_answers_is_given_up(port: int, server: Server) -> None:
    async with connected(port) as [(reader, writer)]:
        writer.write(GET + b"\r\n")
        await reader.readuntil(b"}")
        (connection,) = server.server_state.connections
        connection.pause_writing()  # as the transport does where nothing is taken any more
        with contextlib.suppress(ConnectionError):
            assert await reader.read() == b""
    await until(lambda: not server.server_state.connections)


async def test_a_client_that_leaves_with_a_request_behind_the_first_cancels_the_first(
    port: int, engine: FakeEngine, caplog: pytest.LogCaptureFixture
) -> None:
    """Uvicorn tells the request that came last alone that its client is gone."""
    engine.hold()
    with caplog.at_level("INFO"):
        async with connected(port) as [(_, writer)]:
            asking(writer)
            writer.write(GET + b"\r\n")
            await until(lambda: bool(engine.served))
        await until(lambda: engine.cancelled == 1)
        await until(lambda: "POST /plan" in caplog.messages)
    (status,) = [vars(record)["status"] for record in caplog.records if record.message == "POST /plan"]
    assert status == CLIENT_CLOSED_REQUEST, "it was not the deadline that ended it"


async def test_events_know_when_every_replica_plans_and_wait_for_none_for_ever(
    server: Server, port: int, engine: FakeEngine
) -> None:
    start_limit = server.config.http_protocol_class.start_limit  # type: ignore[union-attr]
    assert not start_limit._is_busy()
    engine.hold()
    event = b'{"action_name": "click", "query_id": "48bf"}'
    async with connected(port, 2) as [(_, planning), (events, reporting)]:
        asking(planning)
        await until(lambda: bool(engine.served) and start_limit._is_busy())
        reporting.write(HEAD.replace(b"/plan", b"/outcomes") + b"Content-Length: %d\r\n\r\n" % len(event) + event)
        assert (await events.readuntil(b"\r\n\r\n")).startswith(b"HTTP/1.1 404"), "this service keeps none"
        engine.let_go()


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
        b"", GET, b"nonsense\r\n\r\n", HEAD + b"Content-Length: 20\r\n\r\n{",
        HEAD + b"Content-Length: 20\r\nExpect: 100-continue\r\n\r\n", GET + b"\r\n", PLAN, PLAN + PLAN + GET + b"\r\n",
    ],
    ids=["silent", "half a head", "nonsense", "half a body", "expects", "answered", "planning", "pipelined"],
)  # fmt: skip
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


@pytest.mark.parametrize("path", ["/plan", "/plans", "/answer", "/trace"])
async def test_a_client_that_leaves_cancels_its_generation(port: int, engine: FakeEngine, path: str) -> None:
    engine.hold()
    before = len(engine.served)  # the proof at the start
    async with connected(port) as [(_, writer)]:
        asking(writer, path)
        await until(lambda: len(engine.served) > before)
    await until(lambda: bool(engine.cancelled))
    assert (len(engine.served) - before, engine.cancelled) == (1, 1)


async def test_a_client_that_leaves_takes_nothing_from_who_asked_the_same(port: int, engine: FakeEngine) -> None:
    engine.hold()
    before = len(engine.served)
    async with connected(port, 2) as [(_, leaving), (reader, staying)]:
        asking(leaving)
        await until(lambda: len(engine.served) > before)
        asking(staying)
        await asyncio.sleep(0.05)  # until it has joined
        leaving.close()
        await asyncio.sleep(0.05)  # until that is noticed
        engine.let_go()
        assert (await reader.readline()).startswith(b"HTTP/1.1 200 ")
    assert (len(engine.served) - before, engine.cancelled) == (1, 0)
