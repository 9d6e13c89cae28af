"""Answers as streams of events, and as tools of an MCP server."""

import asyncio
import json
import os
import socket
import subprocess
import sys
from collections.abc import AsyncIterator, Callable, Iterator
from pathlib import Path
from typing import Any

import httpx
import pytest
from mcp.client import Client as Assistant
from mcp.client.stdio import StdioServerParameters
from peakplan_client import (
    Answer,
    AsyncClient,
    Client,
    Done,
    Event,
    More,
    Options,
    PlannerError,
    RateLimitedError,
    UnavailableError,
    UnexpectedAnswerError,
)

from tests.clients.scripted import BODY, FIRST, Clock, Handler, Pieces, problem, waits
from tests.processes import eventually
from tests.redis_server import free_port

PRODUCT = {
    "id": "p", "name": "Red Boots", "price": 60.0, "category": "footwear", "snippet": "Fine.",
    "met": [{"kind": "price", "says": "up to 80 USD"}], "unmet": [],
    "unknown": [{"kind": "facet", "says": "color: red"}],
}  # fmt: skip
EVENTS = [
    ("plan", BODY),
    ("options", {"options": [PRODUCT] * 3, "milliseconds": 41.5, "of_tomorrow": 1}),
    ("of_tomorrow", {"x": 1}),
    ("more", {"options": [PRODUCT]}),
    ("done", {"plan_ms": 40.0, "first_ms": 41.5, "total_ms": 43.0}),
]
REFUSED = problem(429, {"retry-after": "9"})
HEADERS = {"content-type": "text/event-stream; charset=utf-8"}


PLAN = b"event: plan\ndata: %b\n\n" % json.dumps(BODY).encode()
END = b'event: done\ndata: {"total_ms": 43.0}\n\n'
MOST_BYTES = 1 << 20
Using = Callable[..., Any]


def sent(events: list[tuple[str, Any]] = EVENTS) -> bytes:
    return b"".join(f"event: {name}\ndata: {json.dumps(data)}\n\n".encode() for name, data in events)


@pytest.mark.parametrize("size", [1, 7, 100_000])
def test_events_are_typed_however_the_bytes_come(using: Using, size: int) -> None:
    asked = []

    def handler(request: httpx.Request) -> httpx.Response:
        asked.append(request)
        body = sent()
        return httpx.Response(
            200, headers=HEADERS, stream=Pieces([body[at : at + size] for at in range(0, len(body), size)])
        )

    plan, options, more, done = using(handler, "answer", "red boots", ["boots"], deadline_ms=250, timeout=20)
    assert isinstance(plan, Answer)
    assert plan.plan.queries == ["red boots"]
    assert isinstance(options, Options)
    assert [each.name for each in options.options] == ["Red Boots"] * 3
    assert options.options[0].met[0].says == "up to 80 USD"
    assert isinstance(more, More)
    assert done == Done(plan_ms=40.0, first_ms=41.5, total_ms=43.0)
    (request,) = asked
    assert str(request.url) == f"{FIRST}/answer"
    assert json.loads(request.content) == {"query": "red boots", "deadline_ms": 250, "history": ["boots"]}
    assert request.headers["accept-encoding"] == "identity"
    assert "traceparent" in request.headers


def test_another_endpoint_is_asked_until_one_streams(using: Using) -> None:
    def handler(request: httpx.Request) -> httpx.Response:
        if request.url.host == "first":
            return problem(503)
        return httpx.Response(200, headers=HEADERS, stream=Pieces([sent()]))

    assert len(using(handler, "answer", "red boots")) == 4


@pytest.mark.parametrize(
    ("response", "error", "words"),
    [
        (lambda: problem(429, {"retry-after": "9"}), RateLimitedError, "429"),
        (lambda: httpx.Response(429, headers=dict(REFUSED.headers), stream=Pieces([REFUSED.content])),
         RateLimitedError, "what"),
        (lambda: httpx.Response(200, json=BODY), UnexpectedAnswerError, "no text/event-stream"),
        (lambda: httpx.Response(200, headers=HEADERS | {"content-encoding": "gzip"}, stream=Pieces([b"x"])),
         UnexpectedAnswerError, "no text/event-stream"),
        (lambda: httpx.Response(200, headers=HEADERS, stream=Pieces([sent(EVENTS[:2])])),
         UnavailableError, "broke off"),
        (lambda: httpx.Response(200, headers=HEADERS, stream=Pieces([sent(EVENTS[:2])], fails=True)),
         UnavailableError, "broke off"),
        (lambda: httpx.Response(200, headers=HEADERS, stream=Pieces([sent([("plan", {"no": "plan"})])])),
         UnexpectedAnswerError, "'plan' is none"),
    ],
)  # fmt: skip
def test_what_is_no_answer_says_so(
    using: Using, response: Callable[[], httpx.Response], error: type[PlannerError], words: str
) -> None:
    with pytest.raises(error, match=words):
        using(lambda _: response(), "answer", "red boots", timeout=0.3)


def test_a_connection_that_fails_once_everything_is_there_costs_nothing(using: Using) -> None:
    failing = Pieces([sent()], fails=True)
    found = using(lambda _: httpx.Response(200, headers=HEADERS, stream=failing), "answer", "red boots", timeout=20)
    assert isinstance(found[-1], Done)


def test_who_stops_reading_ends_the_stream() -> None:
    stream = Pieces([sent()])
    answer = Client(FIRST, transport=httpx.MockTransport(lambda _: httpx.Response(200, headers=HEADERS, stream=stream)))
    reading = answer.answer("red boots")
    assert isinstance(next(reading), Answer)
    assert not stream.closed
    reading.close()  # type: ignore[attr-defined]  # a generator's
    assert stream.closed


@pytest.mark.parametrize("begins", [False, True])
def test_a_stream_that_does_not_go_on_is_given_up_and_its_connection_is_free_again(begins: bool) -> None:
    class Silent(Pieces):
        async def __aiter__(self) -> AsyncIterator[bytes]:
            if begins:
                yield sent(EVENTS[:1])
            await asyncio.Event().wait()
            yield b""

    seen, stream = list[Event](), Silent([])

    async def read() -> None:
        transport = httpx.MockTransport(lambda _: httpx.Response(200, headers=HEADERS, stream=stream))
        async with AsyncClient(FIRST, transport=transport) as client:
            async for event in client.answer("red boots", timeout=0.2):
                seen.append(event)

    with pytest.raises(UnavailableError, match="broke off in the middle"):
        asyncio.run(read())
    assert (len(seen), stream.closed) == (begins, True)


def test_the_real_service_streams(planner_url: str) -> None:
    with Client(planner_url) as client:
        events = list(client.answer("red boots under $80", deadline_ms=2000, timeout=60))
    assert [type(event) for event in events if not isinstance(event, More)] == [Answer, Options, Done]
    options = next(event for event in events if isinstance(event, Options))
    assert options.options or options.reason
    for option in options.options:
        assert option.price <= 80
        assert "price" in {wish.kind for wish in option.met}


def answer(handler: Handler, **options: Any) -> list[Event]:
    with Client(FIRST, transport=httpx.MockTransport(handler)) as client:
        return list(client.answer("red boots", **options))


def streams(*pieces: bytes | float, clock: Clock | None = None) -> Handler:
    return lambda _: httpx.Response(200, headers=HEADERS, stream=Pieces(pieces, clock))


def test_it_asks_for_300_ms_and_waits_a_second_more_for_the_search(clock: Clock) -> None:
    asked: list[httpx.Request] = []

    def service(request: httpx.Request) -> httpx.Response:
        asked.append(request)
        return streams(PLAN, END)(request)

    assert [type(event) for event in answer(service)] == [Answer, Done]
    answer(service, timeout=0.25)
    assert clock.paused == []
    assert [json.loads(request.content)["deadline_ms"] for request in asked] == [300, 250]
    assert [waits(request) for request in asked] == pytest.approx([1.4, 0.25])


@pytest.mark.parametrize(("seconds", "is_late"), [(2.0, False), (2.01, True)])
def test_a_stream_that_goes_on_past_the_call_s_time_is_given_up(clock: Clock, seconds: float, is_late: bool) -> None:
    handler = streams(PLAN, seconds, END, clock=clock)
    if is_late:
        with pytest.raises(UnavailableError, match="does not end its answer in time"):
            answer(handler)
    else:
        assert len(answer(handler)) == 2


@pytest.mark.parametrize("more", [0, 1])
def test_a_stream_has_a_megabyte_at_most(more: int) -> None:
    padding = b": %b\n" % (b"x" * (MOST_BYTES + more - len(PLAN) - len(END) - 3))
    if more:
        with pytest.raises(UnexpectedAnswerError, match=f"more than {MOST_BYTES} bytes"):
            answer(streams(PLAN, padding, END), timeout=20)
    else:
        assert [type(event) for event in answer(streams(PLAN, padding, END), timeout=20)] == [Answer, Done]


def test_what_the_format_of_events_allows_is_read() -> None:
    """Lines that end as in DOS, data in several lines, comments, and events without a name."""
    lines = json.dumps(BODY, indent=1).encode().split(b"\n")
    plan = b": hello\r\nevent:plan\r\n%b\r\n\r\n" % b"\r\n".join(b"data: " + line for line in lines)
    others = (b"data: 1\n\n", b": nothing yet\n\n", END)
    for pieces in ([plan], [bytes([byte]) for byte in plan]):
        found = answer(streams(*pieces, *others), timeout=20)
        assert [type(event) for event in found] == [Answer, Done]
        assert isinstance(found[0], Answer)
        assert found[0].plan.queries == ["red boots"]


def test_what_follows_the_end_makes_it_no_end() -> None:
    with pytest.raises(UnavailableError, match="broke off in the middle"):
        answer(streams(PLAN, END, PLAN), timeout=20)


CLIENTS = Path(__file__).parents[2] / "clients"
MODULE = "peakplan_client.mcp_server"


def over_stdio(url: str) -> StdioServerParameters:
    environment = {"PYTHONPATH": str(CLIENTS)}
    return StdioServerParameters(command=sys.executable, args=["-m", MODULE, "--url", url], env=environment)


@pytest.fixture
def over_http(planner_url: str) -> Iterator[str]:
    """Run the server on a free port."""
    port = free_port()
    command = [sys.executable, "-m", MODULE, "--url", planner_url, "--port", str(port)]
    with subprocess.Popen(command, env=os.environ | {"PYTHONPATH": str(CLIENTS)}) as process:

        def listens() -> bool:
            with socket.socket() as asking:
                return asking.connect_ex(("127.0.0.1", port)) == 0

        try:
            eventually(listens, "the server does not listen")
            yield f"http://127.0.0.1:{port}/mcp"
        finally:
            process.kill()


@pytest.mark.anyio
@pytest.mark.slow
async def test_an_assistant_finds_two_tools_and_calls_them(planner_url: str) -> None:
    async with Assistant(over_stdio(planner_url)) as assistant:
        tools = (await assistant.list_tools()).tools
        assert {tool.name for tool in tools} == {"plan", "answer"}
        for tool in tools:
            assert tool.description
            assert tool.input_schema["required"] == ["query"]
            assert tool.annotations is not None
            assert tool.annotations.read_only_hint
        planned = await assistant.call_tool("plan", {"query": "red boots under $80, not suede"})
        assert not planned.is_error
        assert planned.structured_content["plan"]["price"]["max"] == 80
        found = (
            await assistant.call_tool("answer", {"query": "boots under $80", "history": ["hello"]})
        ).structured_content
        assert found["options"] or found["reason"]
        assert all(option["price"] <= 80 for option in found["options"])
        assert found["first_ms"] > 0
        refused = await assistant.call_tool("plan", {"query": ""})
        assert refused.is_error


@pytest.mark.anyio
@pytest.mark.slow
async def test_the_same_over_http(over_http: str) -> None:
    async with Assistant(over_http) as assistant:
        for _ in range(2):  # a connection is not one call
            planned = await assistant.call_tool("plan", {"query": "boots under $80"})
            assert planned.structured_content["plan"]["price"]["max"] == 80


@pytest.mark.anyio
@pytest.mark.slow
async def test_a_service_that_is_not_there_is_said_in_words() -> None:
    async with Assistant(over_stdio(f"http://127.0.0.1:{free_port()}")) as assistant:
        refused = await assistant.call_tool("answer", {"query": "boots"})
    assert refused.is_error
    (told,) = refused.content
    assert "cannot be reached" in getattr(told, "text", "")
    assert "Traceback" not in getattr(told, "text", "")


@pytest.mark.slow
@pytest.mark.parametrize(
    ("arguments", "words"),
    [(["--port", "99999"], "from 1 to 65535, not 99999"), (["--url", "here"], "names no endpoint")],
)
def test_wrong_arguments_are_named(arguments: list[str], words: str) -> None:
    done = subprocess.run(
        [sys.executable, "-m", MODULE, *arguments],
        env=os.environ | {"PYTHONPATH": str(CLIENTS)},
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 2
    assert words in done.stderr
    assert "Traceback" not in done.stderr
