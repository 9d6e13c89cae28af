"""How many requests begin in one turn of the event loop, and which."""

import asyncio
import json
import socket
import sys
import time
from collections.abc import Callable
from functools import partial
from typing import Any

import pytest
import uvloop

from service.__main__ import Server
from service.api.middleware import SAFE_HEADERS, RequestContext
from service.api.overload import BUSY, StartLimit
from service.api.protocol import waited_seconds
from service.gateway import load_shedder
from service.gateway.load_shedder import LoadShedder
from tests.api.client import BODY, GET, HEAD, LAST, PLAN, connected, engine, exchange, port, problem_of, server

__all__ = ["engine", "port", "server"]
pytestmark = pytest.mark.anyio
on_linux = pytest.mark.skipif(sys.platform != "linux", reason="only Linux tells how long data lay there")


async def test_few_requests_begin_in_one_turn_and_in_order() -> None:
    start_limit, begun, turns = StartLimit(), list[int](), 0
    for number in range(200):
        start_limit.enter(partial(begun.append, number))
    first = len(begun)
    while len(begun) < 200:
        before, turns = len(begun), turns + 1
        await asyncio.sleep(0)
        assert len(begun) - before <= first
    assert turns >= 200 // first - 1
    assert begun == list(range(200))


async def test_long_bodies_take_the_places_of_several() -> None:
    """Five milliseconds of the rules each may they cost, where an ordinary question costs a fraction of one."""
    start_limit, begun, turns = StartLimit(lambda: 0.0), list[int](), 0
    for number in range(60):
        start_limit.enter(partial(begun.append, number), 5000 if number < 30 else 100)
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
    start_limit, begun = StartLimit(lambda: now), list[int]()
    for number in range(1000):
        start_limit.enter(partial(begun.append, number))

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


async def drained(begun: list[str], count: int) -> list[list[str]]:
    """Return what began, turn by turn, until so many have."""
    turns: list[list[str]] = []
    while len(begun) < count:
        before = len(begun)
        await asyncio.sleep(0)
        turns.append(begun[before:])
    return [turn for turn in turns if turn]


async def test_what_nobody_waits_for_is_gathered_and_begins_behind_plans(monkeypatch: pytest.MonkeyPatch) -> None:
    start_limit, begun, due = StartLimit(lambda: 0.0), list[str](), timers(monkeypatch)
    for number in range(10):
        start_limit.enter_behind(partial(begun.append, f"event {number}"))
    await asyncio.sleep(0)
    assert (begun, len(due)) == ([], 1), "one timer for all of them, and nothing else wakes the loop"
    for _ in range(100):
        start_limit.enter(partial(begun.append, "plan"))
    due.pop()()
    turns = await drained(begun, 110)
    events = [each for each in begun if each != "plan"]
    assert events == [f"event {number}" for number in range(10)]
    for turn in turns:
        assert sum(each != "plan" for each in turn) <= 4
        assert "plan" not in turn[[each == "plan" for each in [*turn, "x"]].index(False) :], "plans begin first"
    assert begun.index("event 9") < 109, "however many plans there are, events go on"
    assert not due


async def test_while_every_replica_plans_events_wait_but_not_for_ever(monkeypatch: pytest.MonkeyPatch) -> None:
    now, busy = 0.0, True
    start_limit, begun, due = StartLimit(lambda: now, lambda: busy), list[str](), timers(monkeypatch)

    async def wake(seconds: float) -> list[str]:
        nonlocal now
        now += seconds
        due.pop()()
        await asyncio.sleep(0)
        await asyncio.sleep(0)
        return begun

    start_limit.enter_behind(partial(begun.append, "first"))
    assert await wake(0.02) == []
    start_limit.enter_behind(partial(begun.append, "second"))
    busy = False
    assert await wake(0.01) == ["first", "second"]
    busy = True
    start_limit.enter_behind(partial(begun.append, "third"))
    waited = [await wake(0.02) == ["first", "second"], *[await wake(0.01) == ["first", "second"] for _ in range(5)]]
    assert waited == [True] * 6
    assert await wake(0.011) == ["first", "second", "third"], "the longest that they wait is known"
    assert not due


def timers(monkeypatch: pytest.MonkeyPatch) -> list[Callable[[], object]]:
    """Return what this loop is asked to call later, instead of calling it then."""
    due: list[Callable[[], object]] = []
    monkeypatch.setattr(asyncio.get_running_loop(), "call_later", lambda _, call: due.append(call))
    return due


async def test_clients_take_turns_so_that_nobody_waits_for_hundreds_of_another() -> None:
    start_limit, begun = StartLimit(lambda: 0.0), list[str]()
    for number in range(200):
        start_limit.enter(partial(begun.append, f"flood {number}"), client="flood")
    for number in range(3):
        start_limit.enter(partial(begun.append, f"other {number}"), client="other")
    first = len(begun)
    while len(begun) < 203:
        await asyncio.sleep(0)
    later = begun[first:]
    assert [at for at, name in enumerate(later) if name.startswith("other")] == [1, 3, 5]
    for client in ("flood", "other"):
        own = [int(name.split()[1]) for name in begun if name.startswith(client)]
        assert own == sorted(own), "each in its order"


async def test_what_is_turned_away_takes_no_place_but_not_without_end() -> None:
    """A queue of thousands that come too late stood for seconds where eight of them were told so in a turn."""
    start_limit, begun = StartLimit(lambda: 0.0), list[str]()

    def refuse() -> bool:
        begun.append("refused")
        return False

    for _ in range(8):
        start_limit.enter(partial(begun.append, "plan"))
    for _ in range(100):
        start_limit.enter(refuse)
    start_limit.enter(partial(begun.append, "plan"))
    assert begun == ["plan"] * 8
    await asyncio.sleep(0)
    assert begun[8:].count("refused") == 64 + 8
    await asyncio.sleep(0)
    assert begun[-1] == "plan"
    assert len(begun) == 109


LENGTH = b"Content-Length: %d\r\n" % len(BODY)
PIPELINED = 60


@pytest.fixture
def crowd(monkeypatch: pytest.MonkeyPatch) -> None:
    """Let a queue stand."""
    monkeypatch.setattr(LoadShedder, "admits", lambda *_, **__: False)


@pytest.fixture
def in_the_application(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """The paths of what comes as far as the application."""
    paths: list[str] = []
    call = RequestContext.__call__

    async def noted(self: RequestContext, scope: Any, receive: Any, send: Any) -> None:
        paths.append(scope["path"])
        await call(self, scope, receive, send)

    monkeypatch.setattr(RequestContext, "__call__", noted)
    return paths


async def number_of(port: int, name: str) -> float:
    told = (await exchange(port, GET.replace(b"/healthz", b"/metrics") + LAST)).decode()
    return sum(float(line.split()[-1]) for line in told.splitlines() if line.startswith(f"{name} "))


@pytest.mark.usefixtures("crowd")
async def test_a_request_that_is_turned_away_costs_no_application_and_is_counted(
    port: int, in_the_application: list[str]
) -> None:
    head = HEAD + LENGTH + b"X-Request-Id: mine\r\nX-Request-Id: another\r\n"  # the application reads the first
    answer = await exchange(port, head + LAST + BODY)
    assert answer.startswith(b"HTTP/1.1 503")
    problem = problem_of(answer)
    assert problem["detail"] == BUSY
    lines = answer.partition(b"\r\n\r\n")[0].split(b"\r\n")
    assert {b"retry-after: 1", b"x-callers-request-id: mine", b"connection: close"} <= set(lines)
    assert b"x-request-id: " + problem["request_id"].encode() in lines
    assert {b"%b: %b" % header for header in SAFE_HEADERS} <= set(lines)
    other = problem_of(await exchange(port, HEAD + LENGTH + LAST + BODY))
    assert other["request_id"] != problem["request_id"]
    assert in_the_application == []
    assert await number_of(port, "peakplan_requests_total") == 2
    assert await number_of(port, "peakplan_shed_total") == 2


async def test_what_a_request_waited_before_it_was_read_counts(port: int, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("service.api.protocol.waited_seconds", lambda _: 5.0)
    monkeypatch.setattr(LoadShedder, "admits", lambda _, waited, **__: waited < 5.0)
    assert problem_of(await exchange(port, HEAD + LENGTH + LAST + BODY))["detail"] == BUSY


@pytest.mark.usefixtures("crowd")
async def test_a_connection_outlives_what_is_turned_away_on_it(port: int, in_the_application: list[str]) -> None:
    answer = await exchange(port, PLAN * PIPELINED + GET + LAST)
    assert answer.count(b"HTTP/1.1 503") == PIPELINED
    assert answer.count(b"HTTP/1.1 200") == 1
    assert in_the_application == ["/healthz"]


@pytest.mark.usefixtures("crowd")
async def test_a_page_of_another_origin_is_told_by_the_application(port: int, in_the_application: list[str]) -> None:
    """Whose headers alone let the page read the answer."""
    answer = await exchange(port, HEAD + LENGTH + b"Origin: https://shop.example\r\n" + LAST + BODY)
    assert answer.startswith(b"HTTP/1.1 503")
    assert problem_of(answer)["detail"] == BUSY
    assert in_the_application == ["/plan"]


@pytest.mark.usefixtures("crowd")
async def test_only_what_costs_the_rules_is_turned_away(port: int) -> None:
    for path in (b"/healthz", b"/vocabulary", b"/metrics"):
        assert (await exchange(port, GET.replace(b"/healthz", path) + LAST)).startswith(b"HTTP/1.1 200")


@pytest.mark.usefixtures("crowd")
async def test_while_it_drains_a_refusal_ends_its_connection(port: int, server: Server) -> None:
    async with connected(port) as [(reader, writer)]:
        server._drain.begin()
        writer.write(PLAN)
        assert b"connection: close" in await reader.read()
    server._drain.end()


async def test_whoever_has_left_before_its_turn_costs_nothing(
    port: int, server: Server, in_the_application: list[str]
) -> None:
    """They all come, and leave, in one turn of the event loop: few of them may begin before the others have left."""
    assert server.started
    async with connected(port, 30) as clients:
        for _, writer in clients:
            writer.write(PLAN)
            writer.write_eof()
        while server.server_state.connections:
            await asyncio.sleep(0.001)
    assert len(in_the_application) < len(clients)


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


@on_linux
async def test_time_counts_from_when_a_request_came_and_not_from_when_somebody_looked(port: int) -> None:
    assert total(await asked_while_the_loop_was_busy(port, PLAN)) >= LATE - 0.01


@on_linux
async def test_a_pipelined_request_has_its_time_from_its_turn_on(port: int) -> None:
    answer = await asked_while_the_loop_was_busy(port, *[PLAN] * 2)
    first, second = (part for part in answer.split(b"HTTP/1.1 ") if part)
    assert total(first) >= LATE - 0.01
    assert total(second) < total(first)


@on_linux
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


@on_linux
async def test_a_queue_that_stands_is_refused_and_health_is_not(
    port: int, server: Server, monkeypatch: pytest.MonkeyPatch
) -> None:
    """On a busy machine 300 fresh connections a second had their plans after 5 s each, and nobody a 503."""
    assert server.started
    assert (await asked_while_the_loop_was_busy(port, PLAN)).startswith(b"HTTP/1.1 200"), "one hiccup"
    monkeypatch.setattr(load_shedder._Queue, "stands", lambda _queue, _now, waited, most: waited > most)
    refused = await asked_while_the_loop_was_busy(port, PLAN)
    assert refused.startswith(b"HTTP/1.1 503")
    assert b"retry-after: 1\r\n" in refused.lower()
    assert (await asked_while_the_loop_was_busy(port, GET + b"\r\n")).startswith(b"HTTP/1.1 200")


@on_linux
async def test_it_is_told_whether_a_request_is_its_connections_first(
    port: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    seen: list[tuple[bool, bool, str]] = []

    def admits(_: LoadShedder, waited: float, *, is_fresh: bool = False, client: str = "") -> bool:
        seen.append((waited >= LATE - 0.01, is_fresh, client))
        return True

    monkeypatch.setattr(LoadShedder, "admits", admits)
    with socket.create_connection(("127.0.0.1", port)) as kept:
        for _ in range(2):
            await asked_while_the_loop_was_busy(port, PLAN, connection=kept)
            kept.setblocking(True)
    assert seen == [(True, True, "127.0.0.1"), (True, False, "127.0.0.1")]
