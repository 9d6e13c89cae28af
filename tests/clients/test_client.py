"""The client as its user sees it: plans, one or many, typed errors, tries again, its time, and bodies that are none."""

import asyncio
import contextlib
import gzip
import json
import re
import socketserver
import threading
import tracemalloc
import zlib
from collections.abc import Callable, Iterator, Sequence
from typing import Any

import httpx
import pytest
from peakplan_client import (
    Answer,
    AsyncClient,
    Client,
    InvalidRequestError,
    Planned,
    PlannerError,
    RateLimitedError,
    UnauthorizedError,
    UnavailableError,
    UnexpectedAnswerError,
)
from peakplan_client.batch import batches
from peakplan_client.calls import Body
from pydantic import ValidationError

from tests.clients.scripted import BODY, FIRST, OK, SECOND, Clock, Fake, Handler, Pieces, problem, waits

MOST_BYTES = 1 << 20
Ask = Callable[..., Answer]


@pytest.fixture
def ask(using: Callable[..., Any]) -> Ask:
    """Return a function that asks for a plan: `ask(fake, query, options of the call or of the client)`."""

    def ask(fake: Handler, query: str = "red boots", *, history: Sequence[str] = (), **options: Any) -> Answer:
        own = {name: options.pop(name) for name in ("traceparent", "tracestate") if name in options}
        answer: Answer = using(fake, "plan", query, history, client=options, **own)
        return answer

    return ask


def test_a_plan_is_typed_and_may_have_fields_of_tomorrow(ask: Ask) -> None:
    fake = Fake(first=[OK])

    answer = ask(fake, history=["hello"], token="secret", deadline_ms=200)

    assert answer.request_id == "r1"
    assert answer.plan.price.max == 80
    assert answer.plan.exclude == {"brand": ["nike"]}
    assert answer.plan.offers == ["in_stock"]
    assert answer.degraded is False
    with pytest.raises(ValidationError, match="frozen"):
        answer.plan.queries = ["sandals"]
    (request,) = fake.asked
    assert str(request.url) == f"{FIRST}/plan"
    assert request.headers["authorization"] == "Bearer secret"
    assert json.loads(request.content) == {"query": "red boots", "history": ["hello"], "deadline_ms": 200}


def test_a_long_conversation_is_sent_as_what_of_it_counts(ask: Ask) -> None:
    fake = Fake(first=[OK])
    ask(fake, history=[f"message {number}" for number in range(8)] + ["x" * 600 + "size 9"])
    sent = json.loads(fake.asked[0].content)["history"]
    assert sent == [f"message {number}" for number in range(1, 8)] + ["x" * 506 + "size 9"]


@pytest.mark.parametrize("failure", [httpx.ConnectError, httpx.ReadTimeout, problem(503), problem(500), problem(429)])
def test_the_second_endpoint_is_asked_when_the_first_fails(ask: Ask, failure: Any) -> None:
    fake = Fake(first=[failure], second=[OK])

    assert ask(fake).request_id == "r1"
    assert fake.hosts == ["first", "second"]


def test_a_wrong_request_says_which_field_and_is_not_repeated(ask: Ask) -> None:
    fake = Fake(first=[problem(422, errors=[{"field": "query", "detail": "query must not be empty."}])], second=[OK])

    with pytest.raises(InvalidRequestError, match="what") as raised:
        ask(fake, "")

    assert [(each.field, each.detail) for each in raised.value.fields] == [("query", "query must not be empty.")]
    assert (raised.value.status, raised.value.request_id) == (422, "r9")
    assert fake.hosts == ["first"]


@pytest.mark.parametrize(
    ("response", "error", "why"),
    [
        (problem(401), UnauthorizedError, "`token`"),
        (problem(403), UnauthorizedError, "`token`"),
        (httpx.Response(200, text="<html>hello</html>"), UnexpectedAnswerError, "no plan's"),
        (httpx.Response(200, json={"request_id": "r"}), UnexpectedAnswerError, "plan is no plan's"),
        (httpx.Response(404, text="nothing here"), UnexpectedAnswerError, "404"),
        (httpx.Response(307, headers={"location": "http://elsewhere"}), UnexpectedAnswerError, "307"),
        *((httpx.Response(status, text="no"), UnexpectedAnswerError, "") for status in (400, 428, 430, 499)),
    ],
)
def test_what_would_be_wrong_again_is_told_and_not_asked_again(
    ask: Ask, response: httpx.Response, error: type[PlannerError], why: str
) -> None:
    fake = Fake(first=[response, OK], second=[OK])
    with pytest.raises(error, match=why or None) as raised:
        ask(fake)
    assert getattr(raised.value, "status", None) == response.status_code
    assert fake.hosts == ["first"]


TRACE = "00-4bf92f3577b34da6a3ce929d0e0e4736-00f067aa0ba902b7-01"


@pytest.mark.parametrize("given", [TRACE, None, "nonsense", f"00-{'0' * 32}-00f067aa0ba902b7-01", "ff-" + "1" * 32])
def test_a_trace_goes_on_and_a_call_outside_of_one_starts_one_for_all_its_tries(ask: Ask, given: str | None) -> None:
    fake = Fake(first=[problem(500)], second=[OK])

    ask(fake, traceparent=given, tracestate="vendor=1")

    first, second = (request.headers["traceparent"] for request in fake.asked)
    assert re.fullmatch("00-[0-9a-f]{32}-[0-9a-f]{16}-01", first)
    assert first == second
    assert (first == given) == (given == TRACE)
    assert given != TRACE or fake.asked[0].headers["tracestate"] == "vendor=1"


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


def test_the_real_service_answers_the_client(planner_url: str) -> None:
    asked = "red leather boots under $80"
    with Client(planner_url, deadline_ms=2000, timeout=60) as client:
        answer = client.plan(asked, ["hello"])
        with pytest.raises(InvalidRequestError) as raised:
            client.plan("")
        many = client.plans([asked, " ", {"query": "in blue", "history": ["socks"]}], timeout=60)

    assert answer.source in ("model", "fallback", "cache")
    assert raised.value.fields[0].field == "query"
    assert raised.value.request_id
    assert [type(each) for each in many] == [Answer, InvalidRequestError, Answer]
    assert isinstance(many[0], Answer)
    assert answer.plan.price.max == many[0].plan.price.max == 80


def client_of(fake: Callable[[httpx.Request], httpx.Response], *endpoints: str, **options: Any) -> Client:
    return Client(endpoints or FIRST, transport=httpx.MockTransport(fake), **options)


def test_a_call_asks_for_300_ms_and_waits_a_tenth_of_a_second_more(clock: Clock) -> None:
    fake = Fake(first=[OK])
    client_of(fake).plan("red boots")
    client_of(fake).plan("red boots", deadline_ms=2000, timeout=3)
    assert clock.paused == []
    assert [json.loads(request.content) for request in fake.asked] == [
        {"query": "red boots", "deadline_ms": 300},
        {"query": "red boots", "deadline_ms": 2000},
    ]
    assert [waits(request) for request in fake.asked] == pytest.approx([0.4, 2.1])


def test_a_call_takes_a_second_at_most_and_never_waits_beyond(clock: Clock) -> None:
    fake = Fake(first=[problem(500)])
    with pytest.raises(UnavailableError):
        client_of(fake).plan("red boots")
    assert clock.paused == pytest.approx([0.03, 0.06, 0.12, 0.24, 0.48]), (
        "a first pause of 20 ms, and half as much again"
    )
    assert [json.loads(request.content)["deadline_ms"] for request in fake.asked] == [300, 300, 300, 300, 300, 70]
    assert [waits(request) for request in fake.asked][-2:] == pytest.approx([0.4, 0.07])


@pytest.mark.parametrize(("milliseconds", "asked"), [(9, 0), (10, 1)])
def test_a_call_that_has_no_time_does_not_ask(clock: Clock, milliseconds: float, asked: int) -> None:
    assert clock.now
    fake = Fake(first=[OK])
    with client_of(fake, timeout=(milliseconds + 0.5) / 1000) as asking:
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

    with client_of(handler, timeout=0.42) as asking:
        if is_late:
            with pytest.raises(UnavailableError, match=r"too slow \(ReadTimeout: the answer does not end\)"):
                asking.plan("red boots")
        else:
            assert asking.plan("red boots").request_id == "r1"


@pytest.mark.parametrize("deadline_ms", [9, 2001])
def test_a_deadline_that_the_service_does_not_take_is_refused(deadline_ms: int) -> None:
    with pytest.raises(ValueError, match=f"from 10 to 2000, not {deadline_ms}"):
        client_of(Fake(first=[OK])).plan("red boots", deadline_ms=deadline_ms)


@pytest.mark.parametrize(("seconds", "host"), [(4.99, "second"), (5, "first")])
def test_an_endpoint_that_failed_is_asked_first_again_after_five_seconds(
    clock: Clock, seconds: float, host: str
) -> None:
    fake = Fake(first=[httpx.ConnectError, OK], second=[OK])
    with client_of(fake, FIRST, SECOND) as asking:
        asking.plan("red boots")
        clock.now += seconds
        asking.plan("red boots")
    assert fake.hosts == ["first", "second", host]


@pytest.mark.parametrize(
    ("first", "second", "hosts", "paused"),
    [
        # Who asked to be left alone is, while others are asked: the first would answer after 0.2 s, and need not.
        ([problem(429, {"retry-after": "0.2"}), OK], [problem(500), problem(500), OK], "1222", [0.03, 0.06]),
        ([problem(503, {"retry-after": "0.5"}), OK], None, "11", [0.5]),  # waited for as long as it says
        ([httpx.ConnectError], [httpx.ConnectError, OK], "1212", [0.03]),
    ],
)
def test_endpoints_are_asked_in_turns_with_pauses(
    clock: Clock, first: list[Any], second: list[Any] | None, hosts: str, paused: list[float]
) -> None:
    fake = Fake(first=first, second=second or [])
    with client_of(fake, *([FIRST, SECOND] if second else [FIRST])) as asking:
        assert asking.plan("red boots").request_id == "r1"
        assert [{"first": "1", "second": "2"}[host] for host in fake.hosts] == list(hosts)
        assert clock.paused == pytest.approx(paused)
        if hosts == "1212":
            asking.plan("red boots")
            assert fake.hosts[4:] == ["second"], "its cool-down ended with its answer"


@pytest.mark.parametrize(
    ("said", "kept"), [("7", 7), ("0.5", 0.5), ("Wed, 21 Oct 2026 07:28:00 GMT", None), ("", None)]
)
def test_retry_after_is_a_number_of_seconds_or_nothing(clock: Clock, said: str, kept: float | None) -> None:
    assert clock.now
    with pytest.raises(RateLimitedError) as raised:
        client_of(Fake(first=[problem(429, {"retry-after": said})]), timeout=0.3).plan("red boots")
    assert raised.value.retry_after == kept


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


@pytest.fixture
def hostile(request: pytest.FixtureRequest) -> Iterator[str]:
    """Serve an answer that never ends: the test's headers, then its part of a body again and again."""
    part, headers, pause = request.param
    stop = threading.Event()

    class Endless(socketserver.BaseRequestHandler):
        def handle(self) -> None:
            self.request.recv(65536)
            head = b"HTTP/1.1 200 OK\r\ncontent-type: application/json\r\n%btransfer-encoding: chunked\r\n\r\n"
            with contextlib.suppress(OSError):  # the client hung up, which is what the test is about
                self.request.sendall(head % headers)
                while not stop.wait(pause):
                    self.request.sendall(b"%x\r\n%b\r\n" % (len(part), part))

    with socketserver.ThreadingTCPServer(("127.0.0.1", 0), Endless) as server:
        server.daemon_threads = True
        threading.Thread(target=server.serve_forever, daemon=True).start()
        yield f"http://127.0.0.1:{server.server_address[1]}"
        stop.set()
        server.shutdown()


@pytest.mark.parametrize("is_async", [False, True], ids=["threads", "asyncio"])
@pytest.mark.parametrize(
    ("hostile", "why"),
    [
        ((b"{", b"", 0.01), "too slow"),
        ((b"{" * 65536, b"", 0), "more than 1048576 bytes"),
        ((b"no gzip", b"content-encoding: gzip\r\n", 0), "DecodingError"),
        ((b"{", b"content-encoding: br\r\n", 0), "not asked for"),
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


@pytest.mark.parametrize("encoding", [None, "identity", " GZip ", "deflate"])
def test_an_answer_is_bounded_once_it_is_unfolded(ask: Ask, encoding: str | None) -> None:
    """260 kB of gzip once became 140 MB before anybody looked."""
    folds: dict[str | None, Callable[[bytes], bytes]] = {" GZip ": gzip.compress, "deflate": zlib.compress}
    headers = {"content-type": "application/json", **({"content-encoding": encoding} if encoding else {})}

    def answer(body: bytes) -> Handler:
        stream = httpx.ByteStream(folds.get(encoding, bytes)(body))
        return lambda _: httpx.Response(200, headers=headers, stream=stream)

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


Plans = Callable[..., list[Planned]]


@pytest.fixture
def plans(using: Callable[..., Any], request: pytest.FixtureRequest) -> Plans:
    """Return `plans` of either client over a handler; pauses of the one that blocks take no time."""
    if "sync" in request.node.callspec.id.split("-"):
        request.getfixturevalue("clock")

    def plans(handler: Handler, questions: Any, *, endpoints: Any = FIRST, **options: Any) -> list[Planned]:
        found: list[Planned] = using(handler, "plans", questions, client={"endpoints": endpoints}, **options)
        return found

    return plans


class Batches:
    """Answers each batch with the next list of answers, the last one for ever; `plans` asks it, without waiting."""

    def __init__(self, *answers: list[dict[str, Any]]) -> None:
        self._answers, self.asked = list(answers), list[httpx.Request]()

    def __call__(self, request: httpx.Request) -> httpx.Response:
        self.asked.append(request)
        answers = self._answers.pop(0) if len(self._answers) > 1 else self._answers[0]
        return httpx.Response(200, json={"answers": answers})

    def plans(self, *questions: Any, **options: Any) -> list[Planned]:
        with Client(FIRST, transport=httpx.MockTransport(self)) as client:
            return client.plans(questions, **options)

    def bodies(self) -> list[list[dict[str, Any]]]:
        return [json.loads(request.content)["requests"] for request in self.asked]


PLANNED = {"answer": BODY}


def asked(request: httpx.Request) -> list[dict[str, Any]]:
    assert request.url.path == "/plans"
    requests: list[dict[str, Any]] = json.loads(request.content)["requests"]
    return requests


def plan_of(question: dict[str, Any]) -> dict[str, Any]:
    return {"answer": {**BODY, "plan": {**BODY["plan"], "queries": [question["query"]]}}}  # type: ignore[dict-item]


def told(status: int) -> dict[str, Any]:
    return {"problem": json.loads(problem(status).content)}


def test_any_number_goes_in_batches_that_the_service_takes(plans: Plans) -> None:
    sizes: list[tuple[int, int]] = []

    def handler(request: httpx.Request) -> httpx.Response:
        sizes.append((len(asked(request)), len(request.content)))
        return httpx.Response(200, json={"answers": [plan_of(each) for each in asked(request)]})

    short = [f"shoes {number}" for number in range(70)]
    long = [{"query": "ü" * 400, "history": ["x" * 600] * 9}, *({"query": str(n) * 300} for n in range(40))]
    found = plans(handler, [*short, *long])
    queries = [each.plan.queries[0] for each in found if isinstance(each, Answer)]
    assert queries == [*short, *(each["query"] for each in long)]
    assert [number for number, _ in sizes[:1]] == [64]
    assert all(number <= 64 and size <= 16 * 1024 for number, size in sizes)


def test_each_has_its_own_problem(plans: Plans) -> None:
    def handler(request: httpx.Request) -> httpx.Response:
        answers = [told(422) if each["query"] == "wrong" else plan_of(each) for each in asked(request)]
        return httpx.Response(200, json={"answers": answers})

    first, second, third = plans(handler, ["boots", "wrong", "shoes"])
    assert isinstance(first, Answer)
    assert isinstance(third, Answer)
    assert isinstance(second, InvalidRequestError)
    assert (second.status, second.request_id) == (422, "r9")


def test_what_there_was_no_room_for_is_sent_again_alone(plans: Plans) -> None:
    seen: list[list[str]] = []

    def handler(request: httpx.Request) -> httpx.Response:
        seen.append([each["query"] for each in asked(request)])
        room = 2
        answers = [plan_of(each) if number < room else told(429) for number, each in enumerate(asked(request))]
        return httpx.Response(200, json={"answers": answers})

    found = plans(handler, list("abcde"))
    assert [each.plan.queries[0] for each in found if isinstance(each, Answer)] == list("abcde")
    assert [len(each) for each in seen] == [5, 3, 1]


def test_when_the_time_is_up_there_is_what_there_is(plans: Plans) -> None:
    def handler(request: httpx.Request) -> httpx.Response:
        return httpx.Response(
            200, json={"answers": [plan_of(asked(request)[0]), *[told(503)] * 9][: len(asked(request))]}
        )

    first, second, third = plans(handler, ["a", "b", "c"], timeout=2.5)
    assert isinstance(first, Answer)
    assert {type(second), type(third)} == {UnavailableError}


def test_a_batch_that_finds_nobody_costs_the_others_nothing(plans: Plans) -> None:
    calls = 0

    def handler(request: httpx.Request) -> httpx.Response:
        nonlocal calls
        calls += 1
        if asked(request)[0]["query"] == "0":
            return problem(413)
        return httpx.Response(200, json={"answers": [plan_of(each) for each in asked(request)]})

    found = plans(handler, [str(number) for number in range(65)])
    assert [type(each) for each in found] == [InvalidRequestError] * 64 + [Answer]
    assert calls == 2


def test_the_second_endpoint_has_the_batch_when_the_first_fails(plans: Plans) -> None:
    def handler(request: httpx.Request) -> httpx.Response:
        if request.url.host == "first":
            return problem(429)
        return httpx.Response(200, json={"answers": [plan_of(each) for each in asked(request)]})

    assert isinstance(plans(handler, ["a"], endpoints=[FIRST, SECOND])[0], Answer)
    (only,) = plans(lambda _: problem(429), ["a"], timeout=2.2)
    assert isinstance(only, RateLimitedError)


def test_a_wrong_token_is_told_at_once(plans: Plans) -> None:
    with pytest.raises(UnauthorizedError):
        plans(lambda _: problem(401), ["a"])


def test_of_each_conversation_what_counts_is_sent_and_what_is_none_goes_as_it_is() -> None:
    long = [f"{number}" + "x" * 600 for number in range(9)]
    questions: list[Any] = [{"query": "a", "history": tuple(long)}, {"query": "b", "history": "no list"}]
    ((first, second),) = batches(questions)
    assert first["history"] == ["x" * 512] * 8
    assert second["history"] == "no list"
    assert isinstance(questions[0]["history"], tuple), "what the caller gave is the caller's"


def test_a_question_without_a_deadline_has_ten_seconds_and_the_network_two(clock: Clock) -> None:
    service = Batches([PLANNED])
    service.plans("a")
    service.plans({"query": "a", "deadline_ms": 9})
    service.plans({"query": "a", "deadline_ms": "x"}, timeout=7)
    assert clock.paused == []
    assert [[each["deadline_ms"] for each in body] for body in service.bodies()] == [[10_000], [9], ["x"]]
    assert [waits(request) for request in service.asked] == pytest.approx([12.0, 2.009, 7.0])


@pytest.mark.parametrize(("milliseconds", "asked"), [(2009, 0), (2010, 1)])
def test_without_time_for_a_plan_and_the_network_nothing_is_asked(clock: Clock, milliseconds: int, asked: int) -> None:
    assert clock.now
    service = Batches([PLANNED])
    (found,) = service.plans("a", timeout=(milliseconds + 0.5) / 1000)
    assert len(service.asked) == asked
    assert isinstance(found, Answer if asked else UnavailableError)
    if asked:
        assert service.bodies()[0][0]["deadline_ms"] == 10
    else:
        assert "no time to ask" in str(found)


def test_a_question_that_the_service_leaves_out_is_asked_again(clock: Clock) -> None:
    service = Batches([PLANNED], [], [PLANNED])
    assert [type(each) for each in service.plans("a", "b")] == [Answer, Answer]
    assert [[each["query"] for each in body] for body in service.bodies()] == [["a", "b"], ["b"], ["b"]]
    assert clock.paused == pytest.approx([0.03, 0.06]), "the service asked for no pause"


def test_who_leaves_questions_out_for_ever_is_named(clock: Clock) -> None:
    assert clock.now
    found, left_out, other = Batches([PLANNED], []).plans("a", "b", "c", timeout=2.1)
    assert isinstance(found, Answer)
    for each in (left_out, other):
        assert isinstance(each, UnavailableError)
        assert each.status == 200
        assert "left 2 questions without an answer" in str(each)


def test_an_answer_that_is_none_is_a_fault_of_the_service(clock: Clock) -> None:
    assert clock.now
    (found,) = Batches([{}]).plans("a", timeout=2.5)
    assert isinstance(found, UnavailableError)
    assert (found.status, found.retry_after) == (500, 1.0)
