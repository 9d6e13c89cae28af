"""The client as its user sees it: plans, typed errors, tries again, its time, and bodies that are none."""

import asyncio
import contextlib
import gzip
import json
import re
import socket
import threading
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
from peakplan_client.calls import Body
from pydantic import ValidationError

from tests.clients.scripted import BODY, FIRST, OK, SECOND, Clock, Fake, Handler, Pieces, problem, waits


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
    with pytest.raises(UnexpectedAnswerError, match=why) as raised:
        ask(Fake(first=[response]))
    assert raised.value.status == response.status_code


def test_an_answer_is_what_the_service_said_and_nobody_changes_it(ask: Callable[..., Answer]) -> None:
    answer = ask(Fake(first=[httpx.Response(200, json={"request_id": "r1", "plan": {"queries": ["boots"]}})]))
    assert answer.degraded is False
    with pytest.raises(ValidationError, match="frozen"):
        answer.plan.queries = ["sandals"]


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


@pytest.mark.parametrize(
    "endpoints", [[], "", "127.0.0.1:8080", ["ftp://there"], "http://", ["http://there", "https:///x"]]
)
def test_what_is_no_endpoint_is_refused(endpoints: Any) -> None:
    with pytest.raises(ValueError, match="names no endpoint"):
        Client(endpoints)


def test_an_endpoint_that_answers_again_is_asked_first_again(clock: Clock) -> None:
    fake = Fake(first=[httpx.ConnectError], second=[httpx.ConnectError, OK])
    with client(fake, FIRST, SECOND, timeout=20) as asking:
        asking.plan("red boots")
        asking.plan("red boots")

    assert clock.paused == pytest.approx([0.03])
    assert fake.hosts == ["first", "second", "first", "second", "second"], "its cool-down ended with its answer"


def test_the_real_service_answers_the_client(planner_url: str) -> None:
    with Client(planner_url, deadline_ms=2000, timeout=60) as client:
        answer = client.plan("red leather boots under $80", ["hello"])
        with pytest.raises(InvalidRequestError) as raised:
            client.plan("")

    assert answer.plan.price.max == 80
    assert answer.source in ("model", "fallback", "cache")
    assert raised.value.fields[0].field == "query"
    assert raised.value.request_id


def client(fake: Callable[[httpx.Request], httpx.Response], *endpoints: str, **options: Any) -> Client:
    return Client(endpoints or FIRST, transport=httpx.MockTransport(fake), **options)


def test_a_call_asks_for_300_ms_and_waits_a_tenth_of_a_second_more(clock: Clock) -> None:
    fake = Fake(first=[OK])
    client(fake).plan("red boots")
    client(fake).plan("red boots", deadline_ms=2000, timeout=3)
    assert clock.paused == []
    assert [json.loads(request.content) for request in fake.asked] == [
        {"query": "red boots", "deadline_ms": 300},
        {"query": "red boots", "deadline_ms": 2000},
    ]
    assert [waits(request) for request in fake.asked] == pytest.approx([0.4, 2.1])


def test_a_call_takes_a_second_at_most_and_never_waits_beyond(clock: Clock) -> None:
    fake = Fake(first=[problem(500)])
    with pytest.raises(UnavailableError):
        client(fake).plan("red boots")
    assert clock.paused == pytest.approx([0.03, 0.06, 0.12, 0.24, 0.48]), (
        "a first pause of 20 ms, and half as much again"
    )
    assert [json.loads(request.content)["deadline_ms"] for request in fake.asked] == [300, 300, 300, 300, 300, 70]
    assert [waits(request) for request in fake.asked][-2:] == pytest.approx([0.4, 0.07])


@pytest.mark.parametrize(("milliseconds", "asked"), [(9, 0), (10, 1)])
def test_a_call_that_has_no_time_does_not_ask(clock: Clock, milliseconds: float, asked: int) -> None:
    assert clock.now
    fake = Fake(first=[OK])
    with client(fake, timeout=(milliseconds + 0.5) / 1000) as asking:
        if asked:
            asking.plan("red boots")
        else:
            with pytest.raises(UnavailableError, match="no time to ask the planner: give the call a longer timeout"):
                asking.plan("red boots")
    assert len(fake.asked) == asked


@pytest.mark.parametrize(("seconds", "is_late"), [(0.4, False), (0.41, True)])
def test_an_answer_that_comes_in_drops_has_as_long_as_any(clock: Clock, seconds: float, is_late: bool) -> None:
    """A tenth of a second more than the deadline, however often something comes."""
    body = json.dumps(BODY).encode()

    def handler(_: httpx.Request) -> httpx.Response:
        pieces = Pieces((body[:40], seconds, body[40:]), clock)
        return httpx.Response(200, headers={"content-type": "application/json"}, stream=pieces)

    with client(handler, timeout=0.42) as asking:
        if is_late:
            with pytest.raises(UnavailableError, match=r"too slow \(ReadTimeout: the answer does not end\)"):
                asking.plan("red boots")
        else:
            assert asking.plan("red boots").request_id == "r1"


@pytest.mark.parametrize("deadline_ms", [9, 2001])
def test_a_deadline_that_the_service_does_not_take_is_refused(deadline_ms: int) -> None:
    with pytest.raises(ValueError, match=f"from 10 to 2000, not {deadline_ms}"):
        client(Fake(first=[OK])).plan("red boots", deadline_ms=deadline_ms)


@pytest.mark.parametrize(("seconds", "host"), [(4.99, "second"), (5, "first")])
def test_an_endpoint_that_failed_is_asked_first_again_after_five_seconds(
    clock: Clock, seconds: float, host: str
) -> None:
    fake = Fake(first=[httpx.ConnectError, OK], second=[OK])
    with client(fake, FIRST, SECOND) as asking:
        asking.plan("red boots")
        clock.now += seconds
        asking.plan("red boots")
    assert fake.hosts == ["first", "second", host]


def test_who_asked_to_be_left_alone_is_while_others_are_asked(clock: Clock) -> None:
    fake = Fake(first=[problem(429, {"retry-after": "0.2"}), OK], second=[problem(500), problem(500), OK])
    with client(fake, FIRST, SECOND) as asking:
        assert asking.plan("red boots").request_id == "r1"
    assert fake.hosts == ["first", "second", "second", "second"], "the first would answer after 0.2 s, and need not"
    assert clock.paused == pytest.approx([0.03, 0.06])


def test_an_answer_that_asks_for_patience_is_waited_for_as_long_as_it_says(clock: Clock) -> None:
    fake = Fake(first=[problem(503, {"retry-after": "0.5"}), OK])
    client(fake).plan("red boots")
    assert clock.paused == pytest.approx([0.5])


@pytest.mark.parametrize(
    ("said", "kept"), [("7", 7), ("0.5", 0.5), ("Wed, 21 Oct 2026 07:28:00 GMT", None), ("", None)]
)
def test_retry_after_is_a_number_of_seconds_or_nothing(clock: Clock, said: str, kept: float | None) -> None:
    assert clock.now
    with pytest.raises(RateLimitedError) as raised:
        client(Fake(first=[problem(429, {"retry-after": said})]), timeout=0.3).plan("red boots")
    assert raised.value.retry_after == kept


@pytest.mark.parametrize("status", [400, 428, 430, 499])
def test_what_would_be_wrong_again_is_not(clock: Clock, status: int) -> None:
    fake = Fake(first=[httpx.Response(status, text="no"), OK])
    with pytest.raises(UnexpectedAnswerError) as raised:
        client(fake).plan("red boots")
    assert (raised.value.status, len(fake.asked), clock.paused) == (status, 1, [])


class Closing(httpx.MockTransport):
    closed = 0

    def close(self) -> None:
        self.closed += 1

    async def aclose(self) -> None:
        self.closed += 1


@pytest.mark.parametrize("is_async", [False, True])
@pytest.mark.parametrize("token", [None, "secret"])
def test_a_client_closes_its_connections_and_sends_its_token_with_every_try(is_async: bool, token: str | None) -> None:
    fake = Fake(first=[problem(500), OK])
    closing = Closing(fake)

    async def once() -> None:
        async with AsyncClient(FIRST, transport=closing, token=token, timeout=30) as asking:
            assert (await asking.plan("red boots")).request_id == "r1"
            assert closing.closed == 0

    if is_async:
        asyncio.run(once())
    else:
        with Client(FIRST, transport=closing, token=token, timeout=30) as asking:
            asking.plan("red boots")
            assert closing.closed == 0
    assert closing.closed == 1
    sent = [request.headers.get("authorization") for request in fake.asked]
    assert sent == [None if token is None else "Bearer secret"] * 2
    assert all(0 < waits(request) <= 0.4 for request in fake.asked)


MOST_BYTES = 1 << 20


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


@pytest.mark.parametrize("encoding", [None, "identity", " GZip ", "deflate"])
def test_a_body_has_its_most_bytes_and_not_one_more_in_however_many_parts(encoding: str | None) -> None:
    fold: dict[str | None, Callable[[bytes], bytes]] = {" GZip ": gzip.compress, "deflate": zlib.compress}

    def read(content: bytes) -> bytes:
        body = Body(httpx.Headers({"content-encoding": encoding} if encoding else {}), 10)
        for byte in fold.get(encoding, bytes)(content):
            body.add(bytes([byte]))
        return body.whole()

    assert read(b"0123456789") == b"0123456789"
    with pytest.raises(httpx.ReadError, match="more than 10 bytes"):
        read(b"0123456789x")


def test_few_bytes_that_would_become_many_never_do() -> None:
    body = Body(httpx.Headers({"content-encoding": "gzip"}), 1000)
    bomb = gzip.compress(bytes(20_000_000))
    tracemalloc.start()
    with pytest.raises(httpx.ReadError):
        body.add(bomb)
    _, most = tracemalloc.get_traced_memory()
    tracemalloc.stop()
    assert most < 1_000_000
