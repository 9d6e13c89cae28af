"""`answer()` of both clients: typed events as they come, whatever a stream may do wrong, and the real service's own."""

import asyncio
import json
from collections.abc import AsyncIterator, Callable, Iterator
from typing import Any

import httpx
import pytest
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

from tests.clients.scripted import BODY, FIRST, SECOND, problem

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


def sent(events: list[tuple[str, Any]] = EVENTS) -> bytes:
    return b"".join(f"event: {name}\ndata: {json.dumps(data)}\n\n".encode() for name, data in events)


class Stream(httpx.SyncByteStream, httpx.AsyncByteStream):
    """A body in pieces; `closed` tells whether its reader is done with it."""

    def __init__(self, pieces: list[bytes], *, fails: bool = False) -> None:
        self._pieces, self._fails, self.closed = pieces, fails, False

    def __iter__(self) -> Iterator[bytes]:
        yield from self._pieces
        if self._fails:
            raise httpx.ReadError("gone")

    async def __aiter__(self) -> AsyncIterator[bytes]:
        for piece in self:
            yield piece

    def close(self) -> None:
        self.closed = True

    async def aclose(self) -> None:
        self.closed = True


def collect(handler: Callable[[httpx.Request], httpx.Response], *, is_async: bool, **options: Any) -> list[Event]:
    transport = httpx.MockTransport(handler)
    if not is_async:
        return list(Client([FIRST, SECOND], transport=transport).answer("red boots", ["boots"], **options))

    async def gather() -> list[Event]:
        async with AsyncClient([FIRST, SECOND], transport=transport) as client:
            return [event async for event in client.answer("red boots", ["boots"], **options)]

    return asyncio.run(gather())


both = pytest.mark.parametrize("is_async", [False, True], ids=["sync", "async"])


@both
@pytest.mark.parametrize("size", [1, 7, 100_000])
def test_events_are_typed_however_the_bytes_come(is_async: bool, size: int) -> None:
    asked = []

    def handler(request: httpx.Request) -> httpx.Response:
        asked.append(request)
        body = sent()
        return httpx.Response(
            200, headers=HEADERS, stream=Stream([body[at : at + size] for at in range(0, len(body), size)])
        )

    plan, options, more, done = collect(handler, is_async=is_async, deadline_ms=250)
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


@both
def test_another_endpoint_is_asked_until_one_streams(is_async: bool) -> None:
    def handler(request: httpx.Request) -> httpx.Response:
        if request.url.host == "first":
            return problem(503)
        return httpx.Response(200, headers=HEADERS, stream=Stream([sent()]))

    assert len(collect(handler, is_async=is_async)) == 4


@both
@pytest.mark.parametrize(
    ("response", "error", "words"),
    [
        (lambda: problem(429, {"retry-after": "9"}), RateLimitedError, "429"),
        (lambda: httpx.Response(429, headers=dict(REFUSED.headers), stream=Stream([REFUSED.content])),
         RateLimitedError, "what"),
        (lambda: httpx.Response(200, json=BODY), UnexpectedAnswerError, "no text/event-stream"),
        (lambda: httpx.Response(200, headers=HEADERS | {"content-encoding": "gzip"}, stream=Stream([b"x"])),
         UnexpectedAnswerError, "no text/event-stream"),
        (lambda: httpx.Response(200, headers=HEADERS, stream=Stream([sent(EVENTS[:2])])),
         UnavailableError, "broke off"),
        (lambda: httpx.Response(200, headers=HEADERS, stream=Stream([sent(EVENTS[:2])], fails=True)),
         UnavailableError, "broke off"),
        (lambda: httpx.Response(200, headers=HEADERS, stream=Stream([sent([("plan", {"no": "plan"})])])),
         UnexpectedAnswerError, "'plan' is none"),
        (lambda: httpx.Response(200, headers=HEADERS, stream=Stream([b"x" * 600_000] * 2)),
         UnexpectedAnswerError, "more than 1048576 bytes"),
    ],
)  # fmt: skip
def test_what_is_no_answer_says_so(
    is_async: bool, response: Callable[[], httpx.Response], error: type[PlannerError], words: str
) -> None:
    with pytest.raises(error, match=words):
        collect(lambda _: response(), is_async=is_async, timeout=0.3)


@both
def test_a_connection_that_fails_once_everything_is_there_costs_nothing(is_async: bool) -> None:
    def failing(events: list[tuple[str, Any]]) -> Callable[[httpx.Request], httpx.Response]:
        return lambda _: httpx.Response(200, headers=HEADERS, stream=Stream([sent(events)], fails=True))

    assert isinstance(collect(failing(EVENTS), is_async=is_async, timeout=20)[-1], Done)
    with pytest.raises(UnavailableError, match="broke off in the middle") as raised:
        collect(failing(EVENTS[:2]), is_async=is_async, timeout=20)
    assert isinstance(raised.value.__cause__, httpx.ReadError)


def test_who_stops_reading_ends_the_stream() -> None:
    stream = Stream([sent()])
    answer = Client(FIRST, transport=httpx.MockTransport(lambda _: httpx.Response(200, headers=HEADERS, stream=stream)))
    reading = answer.answer("red boots")
    assert isinstance(next(reading), Answer)
    assert not stream.closed
    reading.close()  # type: ignore[attr-defined]  # a generator's
    assert stream.closed


def test_a_stream_that_never_ends_is_given_up() -> None:
    class Endless(Stream):
        async def __aiter__(self) -> AsyncIterator[bytes]:
            yield sent(EVENTS[:1])
            await asyncio.Event().wait()

    seen: list[Event] = []

    async def read() -> None:
        transport = httpx.MockTransport(lambda _: httpx.Response(200, headers=HEADERS, stream=Endless([])))
        async with AsyncClient(FIRST, transport=transport) as client:
            async for event in client.answer("red boots", timeout=0.2):
                seen.append(event)

    with pytest.raises(UnavailableError, match="broke off"):
        asyncio.run(read())
    assert len(seen) == 1


def test_a_stream_that_never_goes_on_is_given_up_before_its_first_event() -> None:
    class Silent(Stream):
        async def __aiter__(self) -> AsyncIterator[bytes]:
            await asyncio.Event().wait()
            yield b""

    stream = Silent([])

    async def read() -> None:
        transport = httpx.MockTransport(lambda _: httpx.Response(200, headers=HEADERS, stream=stream))
        async with AsyncClient(FIRST, transport=transport) as client:
            async for _ in client.answer("red boots", timeout=0.1):
                pass

    with pytest.raises(UnavailableError, match="broke off in the middle"):
        asyncio.run(read())
    assert stream.closed, "its connection is free again"


def test_the_real_service_streams(planner_url: str) -> None:
    with Client(planner_url) as client:
        events = list(client.answer("red boots under $80", deadline_ms=2000, timeout=60))
    assert [type(event) for event in events if not isinstance(event, More)] == [Answer, Options, Done]
    options = next(event for event in events if isinstance(event, Options))
    assert options.options or options.reason
    for option in options.options:
        assert option.price <= 80
        assert "price" in {wish.kind for wish in option.met}
