"""Many questions at once through the client: each gets its own, whatever happens to the others."""

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

from tests.clients.scripted import BODY, FIRST, SECOND, problem

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


def test_deadlines_are_cut_to_what_is_left(plans: Plans) -> None:
    seen: list[Any] = []

    def handler(request: httpx.Request) -> httpx.Response:
        seen.extend(each["deadline_ms"] for each in asked(request))
        return httpx.Response(200, json={"answers": [plan_of(each) for each in asked(request)]})

    plans(handler, [{"query": "a", "deadline_ms": 300}, {"query": "b"}, {"query": "c", "deadline_ms": "x"}], timeout=6)
    assert seen[0] == 300
    assert 3000 < seen[1] <= 4000
    assert seen[2] == "x"


def test_a_batch_is_waited_for_as_long_as_its_most_patient_question(plans: Plans) -> None:
    waits: list[float] = []

    def handler(request: httpx.Request) -> httpx.Response:
        waits.append(request.extensions["timeout"]["read"])
        return httpx.Response(200, json={"answers": [plan_of(each) for each in asked(request)]})

    plans(handler, [{"query": "a", "deadline_ms": 300}, {"query": "b", "deadline_ms": 900}], timeout=60)
    assert 0.9 < waits[0] < 3, "and not for all the time that the call has"


def test_the_real_service_answers_a_batch(planner_url: str) -> None:
    with Client(planner_url) as client:
        found = client.plans(
            ["red leather boots under $80", " ", {"query": "in blue", "history": ["socks"]}], timeout=60
        )
    assert [type(each) for each in found] == [Answer, InvalidRequestError, Answer]
    assert isinstance(found[0], Answer)
    assert found[0].plan.price.max == 80
