"""Limits on what a connection may send, hold and wait for, over real sockets."""

import asyncio
import contextlib
import json
import socket
from collections.abc import AsyncIterator
from functools import partial
from typing import Any

import pytest
import uvicorn

from service.__main__ import Server, bind, http_protocol
from service.api.app import create_app, wire
from service.api.observation import CLIENT_CLOSED_REQUEST
from service.api.turnstile import Turnstile
from service.gateway.pool import ReplicaPool
from service.settings import Settings
from service.settings.groups import HttpSettings
from tests.fake_engines import FakeEngine, until

pytestmark = pytest.mark.anyio
GET = b"GET /healthz HTTP/1.1\r\nHost: localhost\r\n"
BODY = b'{"query": "red shoes"}'
HEAD = b"POST /plan HTTP/1.1\r\nHost: localhost\r\nContent-Type: application/json\r\n"
PLAN = HEAD + b"Content-Length: %d\r\n\r\n" % len(BODY) + BODY
LAST = b"Connection: close\r\n\r\n"
CONNECTIONS = 40
Client = tuple[asyncio.StreamReader, asyncio.StreamWriter]


@pytest.fixture
def engine() -> FakeEngine:
    return FakeEngine()


@pytest.fixture
async def server(engine: FakeEngine) -> AsyncIterator[Server]:
    http = HttpSettings(
        max_header_bytes=2048, header_timeout_seconds=1.0, body_timeout_seconds=3.0, max_connections=CONNECTIONS
    )
    settings = Settings(replicas=1, http=http)
    pool = ReplicaPool([engine])
    await pool.start()
    services = wire(pool, settings)
    protocol = http_protocol(settings, services)
    config = uvicorn.Config(
        create_app(services, settings), http=protocol, lifespan="off", log_config=None, timeout_keep_alive=3600
    )
    server = Server(config, services)
    with bind("127.0.0.1", 0) as listener:
        serving = asyncio.create_task(server.serve(sockets=[listener]))
        while not server.started:
            await asyncio.sleep(0.005)
        yield server
        server.should_exit = True
        await serving
    await services.close()


@pytest.fixture
def port(server: Server) -> int:
    port: int = server.servers[0].sockets[0].getsockname()[1]
    return port


@contextlib.asynccontextmanager
async def connected(port: int, count: int = 1) -> AsyncIterator[list[Client]]:
    """Open so many connections, and close them whatever happens."""
    clients = [await asyncio.open_connection("127.0.0.1", port) for _ in range(count)]
    try:
        async with asyncio.timeout(20):
            yield clients
    finally:
        for _, writer in clients:
            writer.close()
            with contextlib.suppress(ConnectionError):
                await writer.wait_closed()


async def exchange(port: int, *pieces: bytes, pause: float = 0.0) -> bytes:
    """Send the pieces with pauses; return everything until the server closes the connection."""
    async with connected(port) as [(reader, writer)]:
        with contextlib.suppress(ConnectionError):
            for piece in pieces:
                writer.write(piece)
                await asyncio.sleep(pause)
            return await reader.read()
    return b""


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


async def test_one_connection_serves_many_requests(port: int) -> None:
    async with connected(port) as [(reader, writer)]:
        for _ in range(5):
            writer.write(GET + b"\r\n")
            head = await reader.readuntil(b"\r\n\r\n")
            assert head.startswith(b"HTTP/1.1 200")
            await reader.readexactly(int(head.lower().split(b"content-length:")[1].split(b"\r\n")[0]))
            await asyncio.sleep(0.1)


async def test_what_is_not_http_is_answered_400(port: int) -> None:
    assert (await exchange(port, b"\x16\x03\x01\x02\x00\x01\x00")).startswith(b"HTTP/1.1 400")


def problem_of(answer: bytes) -> dict[str, Any]:
    head, _, body = answer.partition(b"\r\n\r\n")
    assert b"content-type: application/problem+json" in head
    problem: dict[str, Any] = json.loads(body)
    return problem


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


async def test_a_full_host_still_answers_health_checks(port: int, engine: FakeEngine) -> None:
    engine.hold()
    async with connected(port, CONNECTIONS) as clients:
        body = b'{"query": "red shoes", "deadline_ms": 2000}'  # one generation that all wait for
        for _, writer in clients:
            writer.write(HEAD + b"Content-Length: %d\r\n\r\n" % len(body) + body)
        await until(lambda: bool(engine.served))
        await asyncio.sleep(0.05)
        assert (await exchange(port, GET + LAST)).startswith(b"HTTP/1.1 200")
        refused = await exchange(port, PLAN)
        engine.let_go()
        assert refused.startswith(b"HTTP/1.1 503")
        assert b"retry-after: 1" in refused
        assert "connections" in problem_of(refused)["detail"]
        for reader, _ in clients:
            assert (await reader.readline()).startswith(b"HTTP/1.1 200")


async def test_few_requests_begin_in_one_turn_and_in_order() -> None:
    turnstile, begun, turns = Turnstile(), list[int](), 0
    for number in range(200):
        turnstile.enter(partial(begun.append, number))
    first = len(begun)
    while len(begun) < 200:
        before, turns = len(begun), turns + 1
        await asyncio.sleep(0)
        assert len(begun) - before <= first
    assert turns >= 200 // first - 1
    assert begun == list(range(200))


async def test_long_bodies_take_the_places_of_several() -> None:
    """Five milliseconds of the rules each may they cost, where an ordinary question costs a fraction of one."""
    turnstile, begun, turns = Turnstile(lambda: 0.0), list[int](), 0
    for number in range(60):
        turnstile.enter(partial(begun.append, number), 5000 if number < 30 else 100)
    while len(begun) < 30:
        before, turns = len(begun), turns + 1
        await asyncio.sleep(0)
        assert len(begun) - before <= 1
    await asyncio.sleep(0)
    assert len(begun) >= 30 + 7
    while len(begun) < 60:
        await asyncio.sleep(0)
    assert begun == list(range(60))


async def test_fewer_requests_begin_while_turns_are_slow_and_more_again_once_they_are_not() -> None:
    now = 0.0
    turnstile, begun = Turnstile(lambda: now), list[int]()
    for number in range(1000):
        turnstile.enter(partial(begun.append, number))

    async def next_turn(seconds: float) -> int:
        nonlocal now
        now += seconds
        before = len(begun)
        await asyncio.sleep(0)
        return len(begun) - before

    quick = [await next_turn(0.001) for _ in range(5)][-1]
    slow = [await next_turn(0.1) for _ in range(5)][-1]
    again = [await next_turn(0.001) for _ in range(20)][-1]

    assert 0 < slow < quick == again
    assert begun == list(range(len(begun)))


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
    body = b'{"query": "red shoes", "deadline_ms": 2000}'
    with caplog.at_level("INFO"):
        async with connected(port) as [(_, writer)]:
            writer.write(HEAD + b"Content-Length: %d\r\n\r\n" % len(body) + body + GET + b"\r\n")
            await until(lambda: bool(engine.served))
        await until(lambda: engine.cancelled == 1)
        await until(lambda: "POST /plan" in caplog.messages)
    (status,) = [vars(record)["status"] for record in caplog.records if record.message == "POST /plan"]
    assert status == CLIENT_CLOSED_REQUEST, "it was not the deadline that ended it"


async def test_what_nobody_waits_for_begins_behind_plans_and_is_never_shut_out() -> None:
    turnstile, begun = Turnstile(lambda: 0.0), list[str]()
    for _ in range(3):
        turnstile.enter_behind(partial(begun.append, "event"))
    for _ in range(100):
        turnstile.enter(partial(begun.append, "plan"))
    assert "event" not in begun
    while len(begun) < 103:
        before = len(begun)
        await asyncio.sleep(0)
        turn = begun[before:]
        assert turn.count("event") <= 1
        assert "event" not in turn[:-1], "plans that wait begin first"
    assert begun.count("event") == 3
    assert begun.index("event") < begun.count("plan"), "however many plans there are, events go on"
