import asyncio
from dataclasses import replace
from typing import Any

import pytest

from service.engines.protocol import GenerationResult
from service.gateway.pool import ReplicaPool
from service.settings.groups import QueueSettings
from tests.api.client import assert_problem, talking_to
from tests.fake_engines import FakeEngine, settle, until

pytestmark = pytest.mark.anyio


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


async def test_no_replica_in_time_is_a_503_that_says_when_to_come_back() -> None:
    engine = FakeEngine(hold=True)
    async with talking_to(engine, trace_deadline_ms=200) as client:
        busy = asyncio.create_task(client.post("/plan", json={"query": "shoes", "deadline_ms": 2000}))
        await settle()
        response = await client.post("/trace", json={"query": "shoes"})
        engine.let_go()
        await busy
    assert_problem(response, 503)
    assert response.headers["retry-after"] == "1"


async def test_no_replica_at_all_is_a_503() -> None:
    engine = FakeEngine()
    async with talking_to(engine) as client:
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
