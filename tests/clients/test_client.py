"""The client as its user sees it: plans, typed errors, and tries elsewhere and again."""

import json
import random
import re
import time
from collections.abc import Callable
from typing import Any

import httpx
import pytest
from peakplan_client import (
    Answer,
    Client,
    InvalidRequestError,
    RateLimitedError,
    UnauthorizedError,
    UnavailableError,
    UnexpectedAnswerError,
)
from pydantic import ValidationError

from tests.clients.scripted import FIRST, OK, SECOND, Fake, problem


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


def test_a_deadline_that_the_service_does_not_take_is_refused(ask: Callable[..., Answer]) -> None:
    with pytest.raises(ValueError, match="from 10 to 2000"):
        ask(Fake(first=[OK]), deadline_ms=5)


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


def test_the_real_service_answers_the_client(planner_url: str) -> None:
    with Client(planner_url, deadline_ms=2000, timeout=60) as client:
        answer = client.plan("red leather boots under $80", ["hello"])
        with pytest.raises(InvalidRequestError) as raised:
            client.plan("")

    assert answer.plan.price.max == 80
    assert answer.source in ("model", "fallback", "cache")
    assert raised.value.fields[0].field == "query"
    assert raised.value.request_id
