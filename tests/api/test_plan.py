"""The contract of `POST /plan`."""

import asyncio
import time

import pytest

from service.api import routes
from service.planner.plan import Plan
from tests.api.client import talking_to
from tests.fake_engines import FakeEngine

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


async def test_history_reaches_the_model_and_the_plan() -> None:
    engine = FakeEngine(text=" Find Type running shoes Color red Any")
    async with talking_to(engine) as client:
        body = {"query": "what about in red?", "history": ["hi", "running shoes size 10"]}
        answer = (await client.post("/plan", json=body)).json()
    assert engine.served[0].prompt == " hi | running shoes size 10 | what about in red? |"
    assert answer["plan"]["facets"] == {"type": ["running shoes"], "color": ["red"]}


async def test_a_chat_goes_on_after_its_eighth_message() -> None:
    engine = FakeEngine(text=" Find Type running shoes Color red Any")
    async with talking_to(engine) as client:
        messages = ["boots", "x" * 600 + " for men", *(["hi"] * 6), "running shoes size 10"]
        response = await client.post("/plan", json={"query": "in red?", "history": messages})
    assert response.status_code == 200
    assert "boots" not in engine.served[0].prompt
    assert engine.served[0].prompt.endswith(" running shoes size 10 | in red? |")


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
    for response, body in zip(responses, bodies, strict=True):
        answer = response.json()
        assert (response.status_code, answer["source"], answer["degraded"]) == (200, "fallback", True)
        assert answer["model"] == {"id": "peakplan-rules", "strategy": "rules"}
        assert answer["reason"] in ("capacity", "deadline")
        assert answer["usage"] == {"prompt_tokens": 0, "plan_tokens": 0, "steps": 0}
        assert answer["plan"]["facets"] == {"color": ["red"], "type": ["shoes"]}
        assert answer["plan"]["price"]["max"] == float(str(body["query"]).rpartition("$")[2])


async def test_every_replica_down_still_means_a_plan() -> None:
    engine = FakeEngine()
    async with talking_to(engine) as client:
        engine.start_failures = 100
        engine.fail()
        answer = (await client.post("/plan", json={"query": "where is my package"})).json()
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


async def test_a_client_that_leaves_cancels_the_work() -> None:
    engine = FakeEngine(hold=True)
    async with talking_to(engine) as client:
        request = asyncio.create_task(client.post("/plan", json={"query": "red shoes", "deadline_ms": 2000}))
        while not engine.served:
            await asyncio.sleep(0.001)
        request.cancel()
        await asyncio.wait({request})
        async with asyncio.timeout(1.0):
            while not engine.cancelled:
                await asyncio.sleep(0.001)
    assert (len(engine.served), engine.cancelled) == (1, 1)


@pytest.mark.parametrize("given", ["abc-123", "A.b_c:d-9", "x" * 64])
async def test_a_caller_s_request_id_stands_beside_ours(given: str, caplog: pytest.LogCaptureFixture) -> None:
    """Whoever chose ids could name another caller's plan when it reports an outcome."""
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
