"""How many connections and requests on them the service holds, and what becomes of them as clients leave or it ends."""

import asyncio
import contextlib
import socket

import pytest

from service.__main__ import Server
from service.api.observation import CLIENT_CLOSED_REQUEST
from tests.api.connections import (
    CONNECTIONS,
    GET,
    HEAD,
    LAST,
    PLAN,
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


async def test_one_connection_serves_many_requests(port: int) -> None:
    async with connected(port) as [(reader, writer)]:
        for _ in range(5):
            writer.write(GET + b"\r\n")
            head = await reader.readuntil(b"\r\n\r\n")
            assert head.startswith(b"HTTP/1.1 200")
            await reader.readexactly(int(head.lower().split(b"content-length:")[1].split(b"\r\n")[0]))
            await asyncio.sleep(0.1)


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


async def test_a_full_host_still_answers_health_checks(port: int, server: Server, engine: FakeEngine) -> None:
    idle = server.config.http_protocol_class.idle  # type: ignore[union-attr]
    engine.hold()
    async with connected(port, CONNECTIONS) as clients:
        body = b'{"query": "red shoes", "deadline_ms": 2000}'  # one generation that all wait for
        for _, writer in clients:
            writer.write(HEAD + b"Content-Length: %d\r\n\r\n" % len(body) + body)
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
    body = b'{"query": "red shoes", "deadline_ms": 2000}'
    with caplog.at_level("INFO"):
        async with connected(port) as [(_, writer)]:
            writer.write(HEAD + b"Content-Length: %d\r\n\r\n" % len(body) + body + GET + b"\r\n")
            await until(lambda: bool(engine.served))
        await until(lambda: engine.cancelled == 1)
        await until(lambda: "POST /plan" in caplog.messages)
    (status,) = [vars(record)["status"] for record in caplog.records if record.message == "POST /plan"]
    assert status == CLIENT_CLOSED_REQUEST, "it was not the deadline that ended it"


async def test_events_know_when_every_replica_plans_and_wait_for_none_for_ever(
    server: Server, port: int, engine: FakeEngine
) -> None:
    turnstile = server.config.http_protocol_class.turnstile  # type: ignore[union-attr]
    assert not turnstile._is_busy()
    engine.hold()
    body = b'{"query": "red shoes", "deadline_ms": 2000}'
    event = b'{"action_name": "click", "query_id": "48bf"}'
    async with connected(port, 2) as [(_, planning), (events, reporting)]:
        planning.write(HEAD + b"Content-Length: %d\r\n\r\n" % len(body) + body)
        await until(lambda: bool(engine.served) and turnstile._is_busy())
        reporting.write(HEAD.replace(b"/plan", b"/outcomes") + b"Content-Length: %d\r\n\r\n" % len(event) + event)
        assert (await events.readuntil(b"\r\n\r\n")).startswith(b"HTTP/1.1 404"), "this service keeps none"
        engine.let_go()
