"""Tests of what callers get far beyond capacity."""

import asyncio
import time
from dataclasses import replace

import pytest

from service.engines.protocol import GenerationRequest
from service.gateway.pool import CapacityError, ReplicaPool
from tests.fake_engines import FakeEngine, settle

pytestmark = pytest.mark.anyio


def request(seconds: float = 30.0) -> GenerationRequest:
    return GenerationRequest(prompt="", grammar="", deadline=time.monotonic() + seconds)


async def test_under_high_pressure_one_waits_for_each_replica_and_the_rest_learn_it_at_once() -> None:
    engine = FakeEngine(hold=True)
    pool = ReplicaPool([engine])
    await pool.start()
    try:
        work = [asyncio.create_task(pool.generate(request()))]
        await settle()
        for _ in range(40):  # nothing can be done in so little time: these are refused
            with pytest.raises(CapacityError):
                await pool.generate(request(0.0))
        assert pool.refusal(None) is None  # nobody waits yet
        work.append(asyncio.create_task(pool.generate(request())))
        await settle()
        refusal = pool.refusal(None)
        assert refusal is not None
        assert refusal.reason == "capacity"
        with pytest.raises(CapacityError, match="far more"):
            await pool.generate(request())
        engine.let_go()
        assert [result.stop_reason for result in await asyncio.gather(*work)] == ["finished", "finished"]
        assert pool.refusal(None) is None
    finally:
        await pool.close()


async def test_with_no_replica_up_that_is_known_at_once() -> None:
    engine = FakeEngine()
    pool = ReplicaPool([engine])
    refusal = pool.refusal(None)
    assert refusal is not None
    assert refusal.reason == "engine"
    await pool.start()
    assert pool.refusal(None) is None
    await pool.close()
    refusal = pool.refusal(None)
    assert refusal is not None
    assert refusal.reason == "engine"


async def test_under_high_pressure_a_much_shorter_request_takes_the_place_of_a_long_one() -> None:
    engine = FakeEngine(hold=True)
    pool = ReplicaPool([engine])
    await pool.start()
    try:
        running = asyncio.create_task(pool.generate(request()))
        await settle()
        for _ in range(40):
            with pytest.raises(CapacityError):
                await pool.generate(request(0.0))
        long = asyncio.create_task(pool.generate(replace(request(), prompt="x" * 90)))
        await settle()
        assert pool.refusal(None, 90) is not None  # worth no more than the one that waits
        assert pool.refusal(None, 40) is None
        short = asyncio.create_task(pool.generate(replace(request(), prompt="x" * 40)))
        with pytest.raises(CapacityError, match="far more"):
            await long
        engine.let_go()
        assert [result.stop_reason for result in await asyncio.gather(running, short)] == ["finished", "finished"]
    finally:
        await pool.close()


async def test_without_pressure_nobody_is_displaced() -> None:
    engine = FakeEngine(hold=True)
    pool = ReplicaPool([engine])
    await pool.start()
    try:
        work = [asyncio.create_task(pool.generate(replace(request(), prompt="x" * length))) for length in (5, 90, 4)]
        await settle()
        engine.let_go()
        assert [result.stop_reason for result in await asyncio.gather(*work)] == ["finished"] * 3
    finally:
        await pool.close()
