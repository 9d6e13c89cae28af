"""Many questions at once."""

import asyncio
import json
import random
import time
from collections.abc import Callable
from typing import Any

import httpx
import pytest
from peakplan_client import (
    Answer,
    AsyncClient,
    Client,
    InvalidRequestError,
    Planned,
    RateLimitedError,
    UnauthorizedError,
    UnavailableError,
)
from peakplan_client.batch import batches

from tests.clients.scripted import BODY, FIRST, SECOND, Clock, Handler, problem, waits

Plans = Callable[..., list[Planned]]


@pytest.fixture(params=["sync", "async"])
def plans(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> Plans:
    """Return `plans` of either client over a handler; pauses take no time, but the clock knows of them."""
    clock = [1000.0]

    async def pause(seconds: float) -> None:
        clock[0] += seconds

    if request.param == "sync":
        monkeypatch.setattr(time, "monotonic", lambda: clock[0])
        monkeypatch.setattr(time, "sleep", lambda seconds: clock.__setitem__(0, clock[0] + seconds))
    monkeypatch.setattr(random, "uniform", lambda low, high: (low + high) / 2)

    def ask(handler: Callable[[httpx.Request], httpx.Response], questions: Any, **options: Any) -> list[Planned]:
        endpoints = options.pop("endpoints", FIRST)
        if request.param == "sync":
            with Client(endpoints, transport=httpx.MockTransport(handler)) as client:
                return client.plans(questions, **options)

        async def once() -> list[Planned]:
            async with AsyncClient(endpoints, transport=httpx.MockTransport(handler)) as client:
                return await client.plans(questions, **options)

        return asyncio.run(once())

    return ask


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


def test_the_second_endpoint_is_asked_when_the_first_fails(plans: Plans) -> None:
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


def test_the_real_service_answers_a_batch(planner_url: str) -> None:
    with Client(planner_url) as client:
        found = client.plans(
            ["red leather boots under $80", " ", {"query": "in blue", "history": ["socks"]}], timeout=60
        )
    assert [type(each) for each in found] == [Answer, InvalidRequestError, Answer]
    assert isinstance(found[0], Answer)
    assert found[0].plan.price.max == 80


PLAN = {"answer": BODY}


def plans_of(handler: Handler, *questions: Any, **options: Any) -> list[Planned]:
    with Client(FIRST, transport=httpx.MockTransport(handler)) as client:
        return client.plans(questions, **options)


class Service:
    """Answers each batch with the next list of answers, the last one for ever."""

    def __init__(self, *answers: list[dict[str, Any]]) -> None:
        self._answers, self.asked = list(answers), []  # type: ignore[var-annotated]

    def __call__(self, request: httpx.Request) -> httpx.Response:
        self.asked.append(request)
        answers = self._answers.pop(0) if len(self._answers) > 1 else self._answers[0]
        return httpx.Response(200, json={"answers": answers})

    def bodies(self) -> list[list[dict[str, Any]]]:
        return [json.loads(request.content)["requests"] for request in self.asked]


def test_of_each_conversation_what_counts_is_sent_and_what_is_none_goes_as_it_is() -> None:
    long = [f"{number}" + "x" * 600 for number in range(9)]
    questions: list[Any] = [{"query": "a", "history": tuple(long)}, {"query": "b", "history": "no list"}]
    ((first, second),) = batches(questions)
    assert first["history"] == ["x" * 512] * 8
    assert second["history"] == "no list"
    assert isinstance(questions[0]["history"], tuple), "what the caller gave is the caller's"


def test_a_question_without_a_deadline_has_ten_seconds_and_the_network_two(clock: Clock) -> None:
    service = Service([PLAN])
    plans_of(service, "a")
    plans_of(service, {"query": "a", "deadline_ms": 9})
    plans_of(service, {"query": "a", "deadline_ms": "x"}, timeout=7)
    assert clock.paused == []
    assert [[each["deadline_ms"] for each in body] for body in service.bodies()] == [[10_000], [9], ["x"]]
    assert [waits(request) for request in service.asked] == pytest.approx([12.0, 2.009, 7.0])


@pytest.mark.parametrize(("milliseconds", "asked"), [(2009, 0), (2010, 1)])
def test_without_time_for_a_plan_and_the_network_nothing_is_asked(clock: Clock, milliseconds: int, asked: int) -> None:
    assert clock.now
    service = Service([PLAN])
    (found,) = plans_of(service, "a", timeout=(milliseconds + 0.5) / 1000)
    assert len(service.asked) == asked
    assert isinstance(found, Answer if asked else UnavailableError)
    if asked:
        assert service.bodies()[0][0]["deadline_ms"] == 10
    else:
        assert "no time to ask" in str(found)


def test_a_question_that_the_service_leaves_out_is_asked_again(clock: Clock) -> None:
    service = Service([PLAN], [], [PLAN])
    assert [type(each) for each in plans_of(service, "a", "b")] == [Answer, Answer]
    assert [[each["query"] for each in body] for body in service.bodies()] == [["a", "b"], ["b"], ["b"]]
    assert clock.paused == pytest.approx([0.03, 0.06]), "the service asked for no pause"


def test_who_leaves_questions_out_for_ever_is_named(clock: Clock) -> None:
    assert clock.now
    found, left_out, other = plans_of(Service([PLAN], []), "a", "b", "c", timeout=2.1)
    assert isinstance(found, Answer)
    for each in (left_out, other):
        assert isinstance(each, UnavailableError)
        assert each.status == 200
        assert "left 2 questions without an answer" in str(each)


def test_an_answer_that_is_none_is_a_fault_of_the_service(clock: Clock) -> None:
    assert clock.now
    (found,) = plans_of(Service([{}]), "a", timeout=2.5)
    assert isinstance(found, UnavailableError)
    assert (found.status, found.retry_after) == (500, 1.0)
