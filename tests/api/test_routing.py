"""Choosing by worth over HTTP: what is told, what counts as offered work, and the spot checks of the choice."""

import asyncio
import contextlib
import re
from collections.abc import AsyncIterator

import httpx
import pytest

from service.api.app import create_app, wire
from service.api.services import Services
from service.gateway.pool import ReplicaPool
from service.settings import Settings
from tests.fake_engines import FakeEngine, settle
from tests.planner.test_caching import TEXT
from tests.planner.worth.scorers import by_length
from tests.planner.worth.test_routing import LONG, SHORT

pytestmark = pytest.mark.anyio


@contextlib.asynccontextmanager
async def choosing(engine: FakeEngine, share: float) -> AsyncIterator[tuple[httpx.AsyncClient, Services]]:
    """Yield a client of a service that routes always, for which questions of more than four words matter."""
    settings = Settings(replicas=1, routing="always", spot_check_share=share)
    pool = ReplicaPool([engine], by_worth=True)
    await pool.start()
    services = wire(pool, settings)
    services.planner._router.scorer = by_length()
    transport = httpx.ASGITransport(create_app(services, settings), raise_app_exceptions=False)
    async with httpx.AsyncClient(transport=transport, base_url="http://localhost") as client:
        yield client, services
    await services.close()


def count(services: Services, name: str) -> float:
    exposed = services.metrics.exposition().decode()
    found = re.search(rf"^peakplan_{name}_total (\S+)$", exposed, re.MULTILINE)
    assert found is not None
    return float(found.group(1))


async def test_what_rules_plan_by_choice_is_no_offered_work_and_what_capacity_lacked_for_is() -> None:
    engine = FakeEngine(hold=True, text=TEXT)
    async with choosing(engine, 0.0) as (client, services):
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


async def test_an_idle_replica_checks_the_choice_and_the_metrics_say_what_was_expected() -> None:
    engine = FakeEngine(text=TEXT)
    async with choosing(engine, 1.0) as (client, services):
        for _ in range(3):
            answer = (await client.post("/plan", json={"query": SHORT})).json()
            assert answer["source"] == "rules"
            await settle()
        assert len(engine.served) == 3
        assert count(services, "spot_checks") == 3
        assert count(services, "spot_checks_differing") == 0
        assert count(services, "spot_checks_expected") == pytest.approx(0.3)
        assert (count(services, "offered_work"), count(services, "admitted")) == (0.0, 0.0)
        services.drain.draining = True
        await client.post("/plan", json={"query": SHORT})
        await settle()
        assert len(engine.served) == 3


async def test_a_question_for_the_model_does_not_wait_for_a_check() -> None:
    engine = FakeEngine(hold=True, text=TEXT)
    async with choosing(engine, 1.0) as (client, services):
        await client.post("/plan", json={"query": SHORT})
        await settle()
        assert (len(engine.served), services.pool.idle) == (1, True)
        asked = asyncio.create_task(client.post("/plan", json={"query": LONG, "deadline_ms": 2000}))
        await settle()
        assert (engine.cancelled, len(engine.served)) == (1, 2)
        engine.let_go()
        assert (await asked).json()["source"] == "model"
        assert count(services, "spot_checks") == 0
