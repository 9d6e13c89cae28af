"""Far more than can be done is told from bursts, and what follows from it."""

import asyncio
import time
from dataclasses import replace

import pytest

from service.engines.protocol import GenerationRequest
from service.gateway.pool import CapacityError, ReplicaPool
from service.gateway.pressure import Pressure
from tests.fake_engines import FakeEngine, settle

pytestmark = pytest.mark.anyio


class Clock:
    now = 0.0

    def __call__(self) -> float:
        return self.now


def pressure_of(asked: int, refused: int, clock: Clock | None = None) -> Pressure:
    pressure = Pressure(clock or Clock())
    for number in range(asked):
        pressure.asked()
        if number < refused:
            pressure.refused()
    return pressure


@pytest.mark.parametrize(
    ("asked", "refused", "high"), [(100, 90, True), (100, 31, True), (100, 10, False), (4, 4, False), (0, 0, False)]
)
def test_pressure_is_high_when_a_large_share_of_many_is_refused(asked: int, refused: int, high: bool) -> None:
    assert pressure_of(asked, refused).high is high


def test_old_refusals_count_no_more() -> None:
    clock = Clock()
    pressure = pressure_of(100, 90, clock)
    clock.now = 3.0
    for _ in range(10):
        pressure.asked()
    assert not pressure.high


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
        assert pool.refusal() is None  # nobody waits yet
        work.append(asyncio.create_task(pool.generate(request())))
        await settle()
        refusal = pool.refusal()
        assert refusal is not None
        assert refusal.refusal == "busy"
        with pytest.raises(CapacityError, match="far more"):
            await pool.generate(request())
        engine.let_go()
        assert [result.stop_reason for result in await asyncio.gather(*work)] == ["finished", "finished"]
        assert pool.refusal() is None
    finally:
        await pool.close()


async def test_with_no_replica_up_that_is_known_at_once() -> None:
    engine = FakeEngine()
    pool = ReplicaPool([engine])
    refusal = pool.refusal()
    assert refusal is not None
    assert refusal.refusal == "down"
    await pool.start()
    assert pool.refusal() is None
    await pool.close()
    refusal = pool.refusal()
    assert refusal is not None
    assert refusal.refusal == "closing"


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
        assert pool.refusal(70) is not None  # not short enough to be worth it
        assert pool.refusal(40) is None
        short = asyncio.create_task(pool.generate(replace(request(), prompt="x" * 40)))
        with pytest.raises(CapacityError, match="shorter"):
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
