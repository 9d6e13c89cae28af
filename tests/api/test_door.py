"""What is turned away before anything is made for it, and that it is answered as the application would."""

import asyncio
from typing import Any

import pytest

from service.__main__ import Server
from service.api.door import BUSY
from service.api.middleware import SAFE_HEADERS, RequestContext
from service.gateway.load_shedder import LoadShedder
from tests.api.connections import BODY, GET, HEAD, LAST, connected, engine, exchange, port, problem_of, server

__all__ = ["engine", "port", "server"]
pytestmark = pytest.mark.anyio
LENGTH = b"Content-Length: %d\r\n" % len(BODY)
PLAN = HEAD + LENGTH + b"\r\n" + BODY
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
