"""`POST /plans`: each question of a batch has its own answer or problem, and no shopper waits for it."""

import asyncio
from typing import Any

import httpx
import pytest
from pydantic import SecretStr

from service.api import routes
from service.api.batches import MOST_REQUESTS
from service.planner.planner import Planner
from service.settings.groups import AuthSettings
from tests.api.client import assert_problem, bearer, callers, talking_to
from tests.fake_engines import FakeEngine, settle, until

pytestmark = pytest.mark.anyio

SHOES = " find Type red shoes Any"
Answers = list[dict[str, Any]]


async def ask(client: httpx.AsyncClient, *requests: Any, **headers: str) -> Answers:
    response = await client.post("/plans", json={"requests": requests}, headers=headers)
    assert response.status_code == 200, response.text
    answer = response.json()
    assert answer["request_id"] == response.headers["x-request-id"]
    answers: Answers = answer["answers"]
    assert len(answers) == len(requests)
    return answers


def questions(number: int) -> list[dict[str, Any]]:
    return [{"query": f"red shoes size {size}"} for size in range(number)]


async def test_every_question_has_its_plan_in_the_order_of_the_batch() -> None:
    engine = FakeEngine()
    async with talking_to(engine) as client:
        given = [{**each, "deadline_ms": 20_000 - 100 * number} for number, each in enumerate(questions(MOST_REQUESTS))]
        answers = await ask(client, *given)
        single = (await client.post("/plan", json={"query": "red shoes size 7"})).json()
    assert [each["answer"]["plan"]["queries"][0] for each in answers] == [each["query"] for each in given]
    assert {each["answer"]["source"] for each in answers} == {"model"}
    assert len({each["answer"]["request_id"] for each in answers}) == MOST_REQUESTS
    assert answers[7]["answer"].keys() == single.keys()
    assert answers[7]["answer"]["plan"] == single["plan"]
    assert engine.served[0].prompt == " red shoes size 63 |", "who has the least time goes first"


async def test_a_wrong_question_gets_the_problem_that_it_would_have_alone() -> None:
    wrong: list[Any] = [{"query": " "}, {"query": "a", "history": "b"}, {"query": "a", "deadline_ms": 5}, {"q": "a"}]
    async with talking_to() as client:
        answers = await ask(client, *wrong, {"query": "red shoes"})
        alone = [assert_problem(await client.post("/plan", json=each), 422) for each in wrong]
    assert answers[-1]["answer"]["plan"]["queries"]
    for each, one in zip(answers[:-1], alone, strict=True):
        assert "answer" not in each
        for problem in (each["problem"], one):
            assert len(problem.pop("request_id")) == 32
        assert each["problem"] == one


@pytest.mark.parametrize(
    ("body", "detail"),
    [
        ({}, "requests is required."),
        ({"requests": []}, "requests is not right: "),
        ({"requests": [{"query": "a"}] * 65}, "requests must have at most 64 items."),
        ({"requests": [{"query": "a"}], "deadline_ms": 5}, "deadline_ms is not a field of this request."),
    ],
)
async def test_what_is_no_batch_is_refused_with_the_reason(body: Any, detail: str) -> None:
    async with talking_to() as client:
        problem = assert_problem(await client.post("/plans", json=body), 422)
    assert problem["detail"].startswith(detail)


async def test_a_shopper_goes_first_and_the_batch_goes_on_afterwards() -> None:
    engine = FakeEngine(hold=True)
    async with talking_to(engine, routing="off") as client:
        batch = asyncio.create_task(ask(client, *questions(3)))
        await until(lambda: len(engine.served) == 1)
        shopper = asyncio.create_task(client.post("/plan", json={"query": "blender", "deadline_ms": 2000}))
        await until(lambda: len(engine.served) == 2)
        assert (engine.served[1].prompt, engine.cancelled) == (" blender |", 1)
        engine.let_go()
        assert (await shopper).json()["source"] == "model"
        assert {each["answer"]["source"] for each in await batch} == {"model"}


async def test_each_has_its_own_deadline() -> None:
    async with talking_to(FakeEngine(hold=True)) as client:
        (answer,) = await ask(client, {"query": "red shoes", "deadline_ms": 30})
    assert (answer["answer"]["source"], answer["answer"]["reason"]) == ("fallback", "capacity")
    assert answer["answer"]["plan"]["queries"] == ["red shoes", "shoes"]


async def test_plans_that_people_have_are_read_and_none_is_displaced() -> None:
    engine = FakeEngine()
    async with talking_to(engine, cache={"entries": 1}) as client:
        await client.post("/plan", json={"query": "blender"})
        answers = await ask(client, {"query": "blender"}, *questions(3))
        again = (await client.post("/plan", json={"query": "blender"})).json()
    assert [each["answer"]["source"] for each in answers] == ["cache", "model", "model", "model"]
    assert again["source"] == "cache"


async def test_every_question_counts_for_its_caller_and_half_is_left_to_shoppers() -> None:
    async with talking_to(auth={"rate": 20}) as client:
        answers = await ask(client, *questions(30))
        told = [each["problem"] for each in answers if "problem" in each]
        assert 0 < len(answers) - len(told) <= 11
        assert {each["status"] for each in told} == {429}
        assert "again in a second" in told[0]["detail"]
        assert (await client.post("/plan", json={"query": "blender"})).status_code == 200


async def test_there_is_an_end_to_what_a_caller_holds_at_once() -> None:
    engine = FakeEngine(hold=True)
    async with talking_to(engine) as client:
        held = [asyncio.create_task(ask(client, *questions(2))) for _ in range(8)]
        await until(lambda: bool(engine.served))
        await settle()
        response = await client.post("/plans", json={"requests": questions(1)})
        assert_problem(response, 503)
        assert response.headers["retry-after"] == "1"
        engine.let_go()
        assert all([each["answer"]["plan"] for each in answers] for answers in await asyncio.gather(*held))
        assert len(await ask(client, *questions(1))) == 1


async def test_one_caller_who_holds_all_batches_shuts_out_nobody() -> None:
    engine, others = FakeEngine(hold=True), [f"other{number}" for number in range(12)]
    async with talking_to(engine, auth=callers("greedy", *others)) as client:

        def asked(name: str, number: int = 3) -> asyncio.Task[Answers]:
            given = [{"query": f"{name} {size}", "deadline_ms": 30_000} for size in range(number)]
            return asyncio.create_task(ask(client, *given, **bearer(name)))

        greedy = []
        for _ in range(8):
            greedy.append(asked("greedy", 64))
            await settle()
        await until(lambda: bool(engine.served))
        honest = [asked(name) for name in others]
        newest = await greedy[-1]
        assert {each["problem"]["status"] for each in newest} == {503}
        assert "others" in newest[0]["problem"]["detail"]
        await settle()
        assert [each.done() for each in greedy] == [False] + [True] * 7
        engine.let_go()
        for answers in await asyncio.gather(*honest):
            assert {each["answer"]["source"] for each in answers} == {"model"}
        assert {each["answer"]["source"] for each in await greedy[0]} == {"model"}
    first = [each.prompt.split()[0] for each in engine.served[: 1 + 3 * (1 + len(others))]]
    assert first.count("greedy") <= 5, "callers take turns at the replica"


async def test_a_fault_of_ours_at_one_question_is_its_own(monkeypatch: pytest.MonkeyPatch) -> None:
    of = routes.PlanAnswer.of

    def fails(planned: Any, *more: Any) -> Any:
        if planned.plan.queries == ["blender"]:
            raise RuntimeError("blender")
        return of(planned, *more)

    monkeypatch.setattr(routes.PlanAnswer, "of", fails)
    async with talking_to() as client:
        answers = await ask(client, {"query": "blender"}, {"query": "red shoes"})
    assert answers[0]["problem"]["status"] == 500
    assert answers[1]["answer"]["plan"]["queries"] == ["red shoes"]


async def test_while_the_host_drains_the_reader_answers_at_once() -> None:
    operator = AuthSettings(control_token=SecretStr("operator"))
    async with talking_to(FakeEngine(hold=True), auth=operator, drain_seconds=300) as client:
        await client.post("/drain", headers={"authorization": "Bearer operator"})
        answers = await ask(client, *questions(2))
    assert {each["answer"]["reason"] for each in answers} == {"engine"}


async def test_plans_are_kept_apart_by_caller_and_strangers_get_none(monkeypatch: pytest.MonkeyPatch) -> None:
    seen: list[str] = []
    draft = Planner.draft

    async def noted(self: Planner, task: Any, **options: Any) -> Any:
        seen.append(task.caller)
        return await draft(self, task, **options)

    monkeypatch.setattr(Planner, "draft", noted)
    async with talking_to(auth=callers("shop")) as client:
        await ask(client, {"query": "red shoes"}, **bearer("shop"))
        assert_problem(await client.post("/plans", json={"requests": questions(1)}), 401)
    assert seen == ["shop"]
