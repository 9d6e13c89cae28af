"""The client as its user sees it: plans, typed errors, and one deadline for everything that a call does."""

import asyncio
import contextlib
import gzip
import json
import random
import re
import socket
import threading
import time
import tracemalloc
import zlib
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Any

import httpx
import pytest
from peakplan_client import (
    Answer,
    AsyncClient,
    Client,
    InvalidRequestError,
    RateLimitedError,
    UnauthorizedError,
    UnavailableError,
    UnexpectedAnswerError,
)
from peakplan_client.body import Body

from tests.server_process import ServerProcess

MOST_BYTES = 1 << 20
FIRST, SECOND = "http://first", "http://second"
PLAN = {
    "mode": "keyword", "intent": "find_product", "vertical": "footwear", "facets": {"type": ["boots"]},
    "exclude": {"brand": ["nike"]}, "price": {"min": None, "max": 80.0, "currency": "USD"}, "rating": {"min": 4},
    "sort": "price_asc", "offers": ["in_stock"], "queries": ["red boots"], "parts": [], "sources": ["catalog"],
    "a_field_of_tomorrow": 1,
}  # fmt: skip
BODY = {"request_id": "r1", "plan": PLAN, "source": "model", "degraded": False, "timing_ms": {"total": 40.0}}
OK = httpx.Response(200, json=BODY)
Handler = Callable[[httpx.Request], httpx.Response]


def problem(status: int, headers: dict[str, str] | None = None, **fields: Any) -> httpx.Response:
    document = {"type": "about:blank", "title": "T", "status": status, "detail": "what", "request_id": "r9", **fields}
    content = json.dumps(document).encode()
    return httpx.Response(
        status, content=content, headers={"content-type": "application/problem+json", **(headers or {})}
    )


class Fake:
    """Endpoints that answer by a script; `asked` keeps every request."""

    def __init__(self, **answers: list[httpx.Response | type[httpx.TransportError]]) -> None:
        self._answers = answers
        self.asked: list[httpx.Request] = []

    def __call__(self, request: httpx.Request) -> httpx.Response:
        self.asked.append(request)
        answers = self._answers[request.url.host]
        answer = answers.pop(0) if len(answers) > 1 else answers[0]
        if isinstance(answer, httpx.Response):
            return httpx.Response(answer.status_code, headers=answer.headers, content=answer.content)
        raise answer("scripted", request=request)

    @property
    def hosts(self) -> list[str]:
        return [request.url.host for request in self.asked]


@pytest.fixture(params=["sync", "async"])
def ask(request: pytest.FixtureRequest) -> Callable[..., Answer]:
    """Return a function that asks through one client or the other: `ask(fake, client options, call options)`."""

    def ask(fake: Handler, query: str = "red boots", *, history: list[str] | None = None, **options: Any) -> Answer:
        own = {name: options.pop(name) for name in ("traceparent", "tracestate") if name in options}
        endpoints = options.pop("endpoints", [FIRST, SECOND])
        if request.param == "sync":
            with Client(endpoints, transport=httpx.MockTransport(fake), **options) as client:
                return client.plan(query, history or (), **own)

        async def once() -> Answer:
            async with AsyncClient(endpoints, transport=httpx.MockTransport(fake), **options) as client:
                return await client.plan(query, history or (), **own)

        return asyncio.run(once())

    return ask


def test_a_plan_is_typed_and_may_have_fields_of_tomorrow(ask: Callable[..., Answer]) -> None:
    fake = Fake(first=[OK])

    answer = ask(fake, history=["hello"], token="secret", deadline_ms=200)

    assert answer.request_id == "r1"
    assert answer.plan.price.max == 80
    assert answer.plan.exclude == {"brand": ["nike"]}
    assert answer.plan.offers == ["in_stock"]
    (request,) = fake.asked
    assert str(request.url) == f"{FIRST}/plan"
    assert request.headers["authorization"] == "Bearer secret"
    assert json.loads(request.content) == {"query": "red boots", "history": ["hello"], "deadline_ms": 200}


def test_a_long_conversation_is_sent_as_what_of_it_counts(ask: Callable[..., Answer]) -> None:
    fake = Fake(first=[OK])
    ask(fake, history=[f"message {number}" for number in range(8)] + ["x" * 600 + "size 9"])
    sent = json.loads(fake.asked[0].content)["history"]
    assert sent == [f"message {number}" for number in range(1, 8)] + ["x" * 506 + "size 9"]


@pytest.mark.parametrize("failure", [httpx.ConnectError, httpx.ReadTimeout, problem(503), problem(500), problem(429)])
def test_the_second_endpoint_is_asked_when_the_first_fails(ask: Callable[..., Answer], failure: Any) -> None:
    fake = Fake(first=[failure], second=[OK])

    assert ask(fake).request_id == "r1"
    assert fake.hosts == ["first", "second"]


def test_an_endpoint_that_failed_is_asked_last_for_a_while() -> None:
    fake = Fake(first=[httpx.ConnectError], second=[OK])
    with Client([FIRST, SECOND], transport=httpx.MockTransport(fake)) as client:
        client.plan("red boots")
        client.plan("red boots")

    assert fake.hosts == ["first", "second", "second"]


def test_a_passing_failure_is_tried_again_and_asks_for_less_time(ask: Callable[..., Answer]) -> None:
    fake = Fake(first=[httpx.ConnectError, problem(500), OK])

    assert ask(fake, endpoints=FIRST, deadline_ms=2000, timeout=1.9).request_id == "r1"
    deadlines = [json.loads(request.content)["deadline_ms"] for request in fake.asked]
    assert len(deadlines) == 3
    assert deadlines == sorted(deadlines, reverse=True)
    assert deadlines[-1] < 1900


def test_retries_end_with_the_call_s_timeout(ask: Callable[..., Answer]) -> None:
    fake = Fake(first=[httpx.ConnectError], second=[problem(503)])
    start = time.monotonic()

    with pytest.raises(UnavailableError, match="answered 503"):
        ask(fake, timeout=0.3)

    assert len(fake.asked) >= 2
    assert time.monotonic() - start < 30  # it ends; how soon depends on the machine


def test_retry_after_is_kept_and_told(ask: Callable[..., Answer]) -> None:
    fake = Fake(first=[problem(429, {"retry-after": "7"})])

    with pytest.raises(RateLimitedError, match="answered 429: what") as raised:
        ask(fake, endpoints=FIRST, timeout=0.5)

    assert raised.value.retry_after == 7
    assert len(fake.asked) == 1  # seven seconds are more than the call has


def test_a_short_retry_after_is_waited_for(ask: Callable[..., Answer]) -> None:
    fake = Fake(first=[problem(503, {"retry-after": "0.05"}), OK])

    assert ask(fake, endpoints=FIRST, timeout=20).request_id == "r1"


def test_a_wrong_request_says_which_field_and_is_not_repeated(ask: Callable[..., Answer]) -> None:
    fake = Fake(first=[problem(422, errors=[{"field": "query", "detail": "query must not be empty."}])], second=[OK])

    with pytest.raises(InvalidRequestError, match="what") as raised:
        ask(fake, "")

    assert [(each.field, each.detail) for each in raised.value.fields] == [("query", "query must not be empty.")]
    assert (raised.value.status, raised.value.request_id) == (422, "r9")
    assert fake.hosts == ["first"]


@pytest.mark.parametrize("status", [401, 403])
def test_a_missing_token_is_told(ask: Callable[..., Answer], status: int) -> None:
    with pytest.raises(UnauthorizedError, match="`token`"):
        ask(Fake(first=[problem(status)]))


@pytest.mark.parametrize(
    ("response", "why"),
    [
        (httpx.Response(200, text="<html>hello</html>"), "no plan's"),
        (httpx.Response(200, json={"request_id": "r"}), "plan is no plan's"),
        (httpx.Response(404, text="nothing here"), "404"),
        (httpx.Response(307, headers={"location": "http://elsewhere"}), "307"),
    ],
)
def test_what_is_no_planner_is_told_from_one(ask: Callable[..., Answer], response: httpx.Response, why: str) -> None:
    with pytest.raises(UnexpectedAnswerError, match=why):
        ask(Fake(first=[response]))


def test_a_trace_goes_on(ask: Callable[..., Answer]) -> None:
    fake = Fake(first=[OK])
    given = "00-4bf92f3577b34da6a3ce929d0e0e4736-00f067aa0ba902b7-01"

    ask(fake, traceparent=given, tracestate="vendor=1")

    assert fake.asked[0].headers["traceparent"] == given
    assert fake.asked[0].headers["tracestate"] == "vendor=1"


@pytest.mark.parametrize("given", [None, "nonsense", f"00-{'0' * 32}-00f067aa0ba902b7-01", "ff-" + "1" * 32])
def test_a_call_outside_of_a_trace_starts_one_for_all_its_tries(ask: Callable[..., Answer], given: str | None) -> None:
    fake = Fake(first=[problem(500)], second=[OK])

    ask(fake, traceparent=given)

    first, second = (request.headers["traceparent"] for request in fake.asked)
    assert re.fullmatch("00-[0-9a-f]{32}-[0-9a-f]{16}-01", first)
    assert first == second != given


def test_the_current_span_is_the_parent() -> None:
    trace = pytest.importorskip("opentelemetry.trace")
    fake = Fake(first=[OK])
    context = trace.SpanContext(0xABC, 0xDEF, is_remote=False, trace_flags=trace.TraceFlags(1))
    with trace.use_span(trace.NonRecordingSpan(context)), Client(FIRST, transport=httpx.MockTransport(fake)) as client:
        client.plan("red boots")

    assert fake.asked[0].headers["traceparent"] == f"00-{0xABC:032x}-{0xDEF:016x}-01"


@pytest.mark.parametrize("endpoints", [[], "", "127.0.0.1:8080", ["ftp://there"]])
def test_what_is_no_endpoint_is_refused(endpoints: Any) -> None:
    with pytest.raises(ValueError, match="names no endpoint"):
        Client(endpoints)


def test_a_deadline_that_the_service_does_not_take_is_refused(ask: Callable[..., Answer]) -> None:
    with pytest.raises(ValueError, match="from 10 to 2000"):
        ask(Fake(first=[OK]), deadline_ms=5)


@dataclass(frozen=True)
class Hostile:
    """An answer that never ends: these headers, then this part of a body again and again."""

    part: bytes
    headers: bytes = b""
    pause: float = 0.0


@pytest.fixture
def hostile(request: pytest.FixtureRequest) -> Iterator[str]:
    """Serve the answer that the test names."""
    answer: Hostile = request.param
    listener = socket.create_server(("127.0.0.1", 0))
    stop = threading.Event()

    def send(connection: socket.socket) -> None:
        with connection:
            connection.recv(65536)
            connection.sendall(
                b"HTTP/1.1 200 OK\r\ncontent-type: application/json\r\n"
                + answer.headers
                + b"transfer-encoding: chunked\r\n\r\n"
            )
            while not stop.wait(answer.pause):
                connection.sendall(b"%x\r\n%b\r\n" % (len(answer.part), answer.part))

    def serve() -> None:
        while not stop.is_set():
            try:
                connection, _ = listener.accept()
            except OSError:
                return
            threading.Thread(target=swallow, args=(send, connection), daemon=True).start()

    threading.Thread(target=serve, daemon=True).start()
    yield f"http://127.0.0.1:{listener.getsockname()[1]}"
    stop.set()
    listener.close()


def swallow(function: Callable[[socket.socket], None], connection: socket.socket) -> None:
    with contextlib.suppress(OSError):  # the client hung up, which is what the test is about
        function(connection)


@pytest.mark.parametrize("is_async", [False, True], ids=["threads", "asyncio"])
@pytest.mark.parametrize(
    ("hostile", "why"),
    [
        (Hostile(b"{", pause=0.01), "too slow"),
        (Hostile(b"{" * 65536), "more than 1048576 bytes"),
        (Hostile(b"no gzip", headers=b"content-encoding: gzip\r\n"), "DecodingError"),
        (Hostile(b"{", headers=b"content-encoding: br\r\n"), "not asked for"),
    ],
    indirect=["hostile"],
    ids=["drips", "floods", "is no gzip", "is in another encoding"],
)
def test_an_answer_that_never_ends_well_costs_one_timeout(
    hostile: str, why: str, is_async: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("peakplan_client.calls._FIRST_PAUSE_SECONDS", 100)  # no second attempt, cut short by the first
    seconds = 0.2 if why == "too slow" else 20.0
    options: Any = {"timeout": seconds, "deadline_ms": min(2000, int(500 * seconds))}

    def ask() -> Answer:
        if is_async:
            return asyncio.run(AsyncClient(hostile, **options).plan("red boots"))
        with Client(hostile, **options) as client:
            return client.plan("red boots")

    with pytest.raises(UnavailableError, match=why):
        ask()


@pytest.mark.parametrize("encoding", ["gzip", "deflate"])
def test_an_answer_is_bounded_once_it_is_unfolded(ask: Callable[..., Answer], encoding: str) -> None:
    """260 kB of gzip once became 140 MB before anybody looked."""
    fold = gzip.compress if encoding == "gzip" else zlib.compress

    def answer(body: bytes) -> Handler:
        headers = {"content-encoding": encoding, "content-type": "application/json"}
        return lambda _: httpx.Response(200, headers=headers, stream=httpx.ByteStream(fold(body)))

    fair = json.dumps(BODY).encode()
    assert ask(answer(fair + b" " * (MOST_BYTES - len(fair))), timeout=20).request_id == "r1"
    with pytest.raises(UnavailableError, match=f"more than {MOST_BYTES} bytes"):
        ask(answer(fair + b" " * (MOST_BYTES + 1 - len(fair))), endpoints=FIRST, timeout=0.2)


def test_few_bytes_that_would_become_many_never_do() -> None:
    body = Body(httpx.Headers({"content-encoding": "gzip"}), 1000)
    bomb = gzip.compress(bytes(20_000_000))
    tracemalloc.start()
    with pytest.raises(httpx.ReadError):
        body.add(bomb)
    _, most = tracemalloc.get_traced_memory()
    tracemalloc.stop()
    assert most < 1_000_000


def scripted(monkeypatch: pytest.MonkeyPatch, now: list[float]) -> list[float]:
    """Let the client's clock stand at `now`, and return the pauses that it takes, which move the clock."""
    paused: list[float] = []

    def sleep(seconds: float) -> None:
        paused.append(seconds)
        now[0] += seconds

    monkeypatch.setattr(time, "monotonic", lambda: now[0])
    monkeypatch.setattr(time, "sleep", sleep)
    monkeypatch.setattr(random, "uniform", lambda low, high: (low + high) / 2)
    return paused


def test_pauses_between_tries_double(monkeypatch: pytest.MonkeyPatch) -> None:
    paused = scripted(monkeypatch, [100.0])
    fake = Fake(first=[problem(500)])
    with Client(FIRST, transport=httpx.MockTransport(fake)) as client, pytest.raises(UnavailableError):
        client.plan("red boots", timeout=0.5)
    assert paused == pytest.approx([0.02, 0.04, 0.08, 0.16])


def test_an_endpoint_that_answers_again_is_asked_first_again(monkeypatch: pytest.MonkeyPatch) -> None:
    scripted(monkeypatch, [100.0])
    fake = Fake(first=[httpx.ConnectError], second=[httpx.ConnectError, OK])
    with Client([FIRST, SECOND], transport=httpx.MockTransport(fake)) as client:
        client.plan("red boots")
        client.plan("red boots")

    assert fake.hosts == ["first", "second", "first", "second", "second"], "its cool-down ended with its answer"


def test_the_real_service_answers_the_client(server: ServerProcess) -> None:
    with Client(server.url, deadline_ms=2000, timeout=60) as client:
        answer = client.plan("red leather boots under $80", ["hello"])
        with pytest.raises(InvalidRequestError) as raised:
            client.plan("")

    assert answer.plan.price.max == 80
    assert answer.source in ("model", "fallback", "cache")
    assert raised.value.fields[0].field == "query"
    assert raised.value.request_id
