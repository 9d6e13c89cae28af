"""The contract of `POST /plan`."""

import asyncio
import contextlib
import json
import re
import time
from collections.abc import AsyncIterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import httpx
import pytest
from peakplan_client import assigned

from service.api import routes
from service.api.app import create_app, wire
from service.api.services import Services
from service.engines.protocol import GenerationResult
from service.gateway.pool import ReplicaPool
from service.planner.plan import Plan
from service.settings import Settings
from service.settings.groups import ExperimentSettings, OutcomeSettings, QueueSettings
from tests.api.client import assert_problem, talking_to
from tests.fake_engines import FakeEngine, settle, until
from tests.planner.test_caching import TEXT
from tests.planner.test_planner import LONG, SHORT
from tests.readers import by_length

pytestmark = pytest.mark.anyio

BOOTS = " Find Type hiking boots Feature waterproof Max under $120 Sports"
QUESTION = "I need hiking boots, waterproof, under $120"


async def test_the_answer_has_the_shape_of_the_contract() -> None:
    async with talking_to(FakeEngine(text=BOOTS)) as client:
        response = await client.post("/plan", json={"query": QUESTION, "deadline_ms": 500, "locale": "en-GB"})
    assert response.status_code == 200
    answer = response.json()
    total = answer["timing_ms"].pop("total")
    assert total >= 0
    queue = answer["timing_ms"].pop("queue")
    assert 0 <= queue <= total
    assert answer == {
        "request_id": response.headers["x-request-id"],
        "plan": {
            "mode": "conversational",
            "intent": "find_product",
            "vertical": "sporting-goods",
            "facets": {"type": ["hiking boots"], "feature": ["waterproof"]},
            "exclude": {},
            "price": {"min": None, "max": 120.0, "currency": "USD"},
            "rating": {"min": None},
            "sort": "relevance",
            "offers": [],
            "queries": ["hiking boots waterproof", "hiking boots"],
            "parts": [],
            "sources": ["catalog"],
        },
        "source": "model",
        "degraded": False,
        "model": {"id": "fake", "strategy": "medusa"},
        "usage": {"prompt_tokens": 3, "plan_tokens": 2, "steps": 2},
        "timing_ms": {"model": 1.0},
        "reason": None,
    }


async def test_history_reaches_the_model_and_the_plan_and_a_chat_goes_on_after_its_eighth_message() -> None:
    engine = FakeEngine(text=" Find Type running shoes Color red Any")
    async with talking_to(engine) as client:
        body = {"query": "what about in red?", "history": ["hi", "running shoes size 10"]}
        answer = (await client.post("/plan", json=body)).json()
        messages = ["boots", "x" * 600 + " for men", *(["hi"] * 6), "running shoes size 10"]
        longer = await client.post("/plan", json={"query": "in red?", "history": messages})
    assert engine.served[0].prompt == " hi | running shoes size 10 | what about in red? |"
    assert answer["plan"]["facets"] == {"type": ["running shoes"], "color": ["red"]}
    assert longer.status_code == 200
    assert "boots" not in engine.served[1].prompt
    assert engine.served[1].prompt.endswith(" running shoes size 10 | in red? |")


async def test_the_strategy_is_the_configured_one() -> None:
    engine = FakeEngine()
    async with talking_to(engine, strategy="autoregressive") as client:
        answer = (await client.post("/plan", json={"query": "shoes"})).json()
    assert engine.served[0].strategy == answer["model"]["strategy"] == "autoregressive"


async def test_busy_replicas_cost_the_plan_its_model_and_never_its_deadline() -> None:
    engine = FakeEngine(hold=True)
    async with talking_to(engine) as client:
        started = time.monotonic()
        bodies = [{"query": f"red shoes under ${price}", "deadline_ms": 400} for price in range(10, 30)]
        responses = await asyncio.gather(*(client.post("/plan", json=body) for body in bodies))
        assert time.monotonic() - started < 10
    for response in responses:
        answer = response.json()
        assert (response.status_code, answer["source"], answer["degraded"]) == (200, "fallback", True)
        assert answer["model"] == {"id": "peakplan-reader", "strategy": "rules"}
        assert answer["reason"] in ("capacity", "deadline")
        assert answer["usage"] == {"prompt_tokens": 0, "plan_tokens": 0, "steps": 0}
        assert "shoes" in answer["plan"]["queries"][0]


async def test_every_replica_down_still_means_a_plan() -> None:
    engine = FakeEngine()
    async with talking_to(engine) as client:
        engine.start_failures = 100
        engine.fail()
        answer = (await client.post("/plan", json={"query": "where is my order"})).json()
    assert (answer["source"], answer["plan"]["intent"]) == ("fallback", "order_status")
    assert answer["reason"] == "engine"


@pytest.mark.parametrize("text", ["", " find", " find Type nonsense Any", " no plan text at all"])
async def test_text_that_is_no_plan_becomes_a_fallback_and_no_error(text: str) -> None:
    async with talking_to(FakeEngine(text=text)) as client:
        response = await client.post("/plan", json={"query": "red shoes"})
    assert response.status_code == 200
    Plan.model_validate(response.json()["plan"])


async def test_a_request_without_a_deadline_has_the_settings_one() -> None:
    engine = FakeEngine()
    async with talking_to(engine, deadline_ms=1700) as client:
        for body in ({"query": "shoes"}, {"query": "boots", "deadline_ms": 300}):
            asked = time.monotonic()
            await client.post("/plan", json=body)
            deadline = engine.served[-1].deadline
            assert deadline is not None
            assert (deadline - asked > 1) == ("deadline_ms" not in body)
        document = (await client.get("/openapi.json")).json()
    assert document["components"]["schemas"]["PlanRequest"]["properties"]["deadline_ms"]["default"] == 1700


@pytest.mark.parametrize("given", ["abc-123", "A.b_c:d-9", "x" * 64])
async def test_a_caller_s_request_id_stands_beside_ours(given: str, caplog: pytest.LogCaptureFixture) -> None:
    """A caller that chose ids could name another caller's plan when it reports an outcome."""
    with caplog.at_level("INFO"):
        async with talking_to() as client:
            response = await client.post("/plan", json={"query": "shoes"}, headers={"X-Request-Id": given})
    ours = response.json()["request_id"]
    assert response.headers["x-request-id"] == ours != given
    assert response.headers["x-callers-request-id"] == given
    (told,) = [vars(record) for record in caplog.records if record.message == "POST /plan"]
    assert (told["request_id"], told["callers_request_id"]) == (ours, given)


@pytest.mark.parametrize("given", ["", "two words", "x" * 65, '"><script>', "é"])
async def test_a_bad_request_id_is_not_carried(given: str) -> None:
    async with talking_to() as client:
        headers = {b"X-Request-Id": given.encode("latin-1")}
        response = await client.post("/plan", json={"query": "shoes"}, headers=headers)
    assert response.headers["x-request-id"] == response.json()["request_id"] != given
    assert len(response.headers["x-request-id"]) == 32
    assert "x-callers-request-id" not in response.headers


@pytest.mark.parametrize(("left", "seconds"), [("150", 0.15), ("350", 0.3), ("", 0.3), ("-1", 0.3), ("9" * 400, 0.3)])
async def test_a_second_try_has_what_the_balancer_has_left_of_the_deadline(left: str, seconds: float) -> None:
    engine = FakeEngine()
    async with talking_to(engine) as client:
        asked = time.monotonic()
        headers = {"x-envoy-expected-rq-timeout-ms": left}
        await client.post("/plan", json={"query": "shoes", "deadline_ms": 300}, headers=headers)
        answered = time.monotonic()
    deadline = engine.served[-1].deadline
    assert deadline is not None
    assert asked + seconds - 0.05 < deadline < answered + seconds


async def test_an_engine_has_the_deadline_less_the_time_that_the_answer_takes(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(routes, "REPLY_SECONDS", 1.5)
    engine = FakeEngine()
    async with talking_to(engine) as client:
        await client.post("/plan", json={"query": "shoes", "deadline_ms": 2000})
    (asked,) = engine.served
    assert asked.deadline is not None
    assert asked.deadline < time.monotonic() + 0.5


async def test_both_strategies_run_with_their_steps() -> None:
    engine = FakeEngine(text=" Find Type shoes Any")
    async with talking_to(engine) as client:
        answer = (await client.post("/trace", json={"query": "any shoes?"})).json()
    assert [request.strategy for request in engine.served] == ["medusa", "autoregressive"]
    assert all(request.trace for request in engine.served)
    assert answer["question"] == "any shoes?"
    for way in ("medusa", "greedy"):
        assert answer[way]["plan"]["facets"] == {"type": ["shoes"]}
        assert answer[way] | {"plan": None} == {
            "plan": None,
            "plan_text": " Find Type shoes Any",
            "steps": [
                {
                    "nodes": [],
                    "emitted": [" Find Type shoes Any"],
                    "milliseconds": 1.0,
                    "draft_milliseconds": 0.0,
                    "forward_milliseconds": 0.0,
                }
            ],
            "milliseconds": 1.0,
            "usage": {"prompt_tokens": 3, "plan_tokens": 2, "steps": 2},
            "tokens_per_step": 1.0,
        }


async def test_no_replica_in_time_or_at_all_is_a_503_that_says_when_to_come_back() -> None:
    engine = FakeEngine(hold=True)
    async with talking_to(engine, trace_deadline_ms=200) as client:
        busy = asyncio.create_task(client.post("/plan", json={"query": "shoes", "deadline_ms": 2000}))
        await settle()
        response = await client.post("/trace", json={"query": "shoes"})
        engine.let_go()
        await busy
        assert_problem(response, 503)
        assert response.headers["retry-after"] == "1"
        engine.start_failures = 100
        engine.fail()
        assert_problem(await client.post("/trace", json={"query": "shoes"}), 503)


async def test_one_trace_is_made_at_a_time_and_plans_go_first() -> None:
    engine = FakeEngine(text=" Find Type shoes Any", hold=True)
    async with talking_to(engine) as client:
        first = asyncio.create_task(client.post("/trace", json={"query": "any shoes?"}))
        await until(lambda: len(engine.served) == 1)
        refused = await client.post("/trace", json={"query": "red shoes"})
        assert "another trace" in assert_problem(refused, 503)["detail"]
        plan = asyncio.create_task(client.post("/plan", json={"query": "any shoes?", "deadline_ms": 2000}))
        await settle()
        engine.let_go()
        assert ((await first).status_code, (await plan).json()["source"]) == (200, "model")
    assert [request.trace for request in engine.served] == [True, False, True]


async def test_a_replica_that_hangs_under_a_trace_is_replaced() -> None:
    engine = FakeEngine(text=" Find Type shoes Any")
    async with talking_to(engine, queue=QueueSettings(hang_seconds=0.2), trace_deadline_ms=5000) as client:
        for number in range(20):
            await client.post("/plan", json={"query": f"any shoes {number}?"})
        engine.hold()
        started = engine.starts
        response = await client.post("/trace", json={"query": "any shoes?"})
        assert_problem(response, 503)
        await until(lambda: engine.starts > started)


async def test_two_decodings_by_two_models_are_no_comparison(monkeypatch: pytest.MonkeyPatch) -> None:
    """A reload may replace the model between them."""
    versions = iter(("v1", "v2"))
    generate = ReplicaPool.generate

    async def reloaded(*given: Any, **more: Any) -> GenerationResult:
        return replace(await generate(*given, **more), model_version=next(versions))

    monkeypatch.setattr(ReplicaPool, "generate", reloaded)
    async with talking_to(FakeEngine(text=" Find Type shoes Any")) as client:
        refused = assert_problem(await client.post("/trace", json={"query": "any shoes?"}), 503)
    assert "replaced meanwhile" in refused["detail"]


@contextlib.asynccontextmanager
async def choosing(engine: FakeEngine) -> AsyncIterator[tuple[httpx.AsyncClient, Services]]:
    """Yield a client of a service that routes always, for which questions of more than four words matter."""
    settings = Settings(replicas=1, routing="always")
    pool = ReplicaPool([engine], by_worth=True)
    await pool.start()
    services = wire(pool, settings)
    services.planner._planner.reader = by_length()
    transport = httpx.ASGITransport(create_app(services, settings), raise_app_exceptions=False)
    async with httpx.AsyncClient(transport=transport, base_url="http://localhost") as client:
        yield client, services
    await services.close()


def count(services: Services, name: str) -> float:
    exposed = services.metrics.exposition().decode()
    found = re.search(rf"^peakplan_{name}_total (\S+)$", exposed, re.MULTILINE)
    assert found is not None
    return float(found.group(1))


async def test_what_the_reader_plans_by_choice_is_no_offered_work_and_what_capacity_lacked_for_is() -> None:
    engine = FakeEngine(hold=True, text=TEXT)
    async with choosing(engine) as (client, services):
        for _ in range(20):
            answer = (await client.post("/plan", json={"query": SHORT})).json()
            assert (answer["source"], answer["degraded"], answer["reason"]) == ("rules", False, None)
        assert (count(services, "offered_work"), engine.served) == (0.0, [])
        hasty = [client.post("/plan", json={"query": f"{LONG} {n}", "deadline_ms": 200}) for n in range(10)]
        answers = [reply.json() for reply in await asyncio.gather(*hasty)]
        assert {answer["source"] for answer in answers} == {"fallback"}
        assert {answer["degraded"] for answer in answers} == {True}
        assert count(services, "offered_work") == pytest.approx(10 * services.pool.expected_seconds)
        engine.let_go()


async def test_plans_that_both_made_are_counted_beside_what_was_expected_of_them() -> None:
    async with choosing(FakeEngine(text=TEXT)) as (client, services):
        for number in range(3):
            answer = (await client.post("/plan", json={"query": f"{LONG} {number}", "deadline_ms": 2000})).json()
            assert answer["source"] == "model"
        await client.post("/plan", json={"query": SHORT})
        assert count(services, "spot_checks") == 3
        assert count(services, "spot_checks_differing") == 3
        assert count(services, "spot_checks_expected") == pytest.approx(1.5)


SHOES = FakeEngine(text=" find Brand nike Type running shoes Sports")
TRIAL = ExperimentSettings(name="autumn", arms="control=50, rules=50")


@pytest.mark.anyio
async def test_half_of_the_shoppers_are_planned_by_the_reader_and_each_stays_where_it_is(tmp_path: Path) -> None:
    shoppers = [f"browser-{number}" for number in range(12)]
    async with talking_to(SHOES, outcomes=OutcomeSettings(dir=tmp_path), experiment=TRIAL, release="ami-1") as client:
        for shopper in shoppers * 2:
            body, headers = {"query": "nike running shoes"}, {"x-experiment-unit": shopper}
            answer = await client.post("/plan", json=body, headers=headers)
            arm = assigned("autumn", TRIAL.shares, shopper)
            assert answer.headers["x-experiment"] == f"autumn={arm}"
            assert (answer.json()["source"] == "rules") == (arm == "rules")
            assert not answer.json()["degraded"]
        unnamed = await client.post("/plan", json={"query": "nike running shoes"})
    assert "x-experiment" not in unnamed.headers
    assert unnamed.json()["source"] == "cache"
    *kept, last = [json.loads(line) for line in (tmp_path / "plans.jsonl").read_text("utf-8").splitlines()]
    assert {line["arm"] for line in kept} == {"control", "rules"}
    assert {(line["experiment"], line["release"]) for line in kept} == {("autumn", "ami-1")}
    assert len({line["client_id"] for line in kept}) == len(shoppers)
    assert "browser" not in json.dumps(kept), "a shopper's id was kept"
    assert "arm" not in last


UNREADABLE = ("control", "a=1,a=2", "a=0", "a=-1", "a b=1", "=1", ",".join(f"a{n}=1" for n in range(9)))
TWO = {"name": "x", "arms": "control=1,rules=1"}


@pytest.mark.parametrize(
    ("given", "why"),
    [
        *(({"name": "x", "arms": arms}, "name=share|at most 8") for arms in UNREADABLE),
        ({"name": "x"}, "go together"),
        (TWO | {"serves": "control, newer"}, "PEAKPLAN_EXPERIMENT_SERVES names newer"),
    ],
)
def test_an_experiment_that_cannot_be_or_that_nobody_records_is_refused(given: dict[str, str], why: str) -> None:
    with pytest.raises(ValueError, match=why):
        ExperimentSettings.model_validate(given)
    with pytest.raises(ValueError, match="PEAKPLAN_OUTCOMES_DIR"):
        Settings(experiment=TRIAL)
    assert ExperimentSettings.model_validate(TWO | {"serves": "control, rules"}).served == {"control", "rules"}
    assert len(ExperimentSettings(name="x", arms=",".join(f"a{n}=1" for n in range(8))).shares) == 8
