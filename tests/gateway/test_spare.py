"""Work that nobody waits for: it takes idle replicas alone, and leaves at once for a request."""

import asyncio

import pytest

from service.engines.protocol import EngineUnavailableError, GenerationRequest, GenerationResult
from service.gateway.pool import CapacityError
from tests.fake_engines import FakeEngine, request, running, settle, until

pytestmark = pytest.mark.anyio


async def test_an_idle_replica_works_for_nobody_and_nothing_of_it_is_counted() -> None:
    async with running(FakeEngine()) as pool:
        before = (pool.counts, pool.expected_seconds, pool.quantile(0.5))
        result = await pool.spare.generate(request())
        assert (result.stop_reason, result.model_id) == ("finished", pool.model_id)
        assert (pool.counts, pool.expected_seconds, pool.quantile(0.5)) == before


async def test_a_request_takes_the_replica_at_once_and_is_served() -> None:
    engine = FakeEngine(hold=True)
    async with running(engine) as pool:
        spare = asyncio.create_task(pool.spare.generate(request(prompt="spare")))
        await settle()
        assert (pool.idle, pool.outstanding) == (True, 0), "to a shopper the replica is free"
        wanted = asyncio.create_task(pool.generate(request(prompt="wanted")))
        await settle()
        with pytest.raises(CapacityError, match="needed"):
            await spare
        assert engine.cancelled == 1
        engine.let_go()
        assert (await wanted).stop_reason == "finished"
        assert [served.prompt for served in engine.served] == ["spare", "wanted"]
        assert pool.counts["admitted"] == 1


async def test_a_request_prefers_a_replica_without_such_work() -> None:
    engines = [FakeEngine(hold=True), FakeEngine()]
    async with running(*engines) as pool:
        spare = asyncio.create_task(pool.spare.generate(request()))
        await settle()
        for _ in range(3):
            await pool.generate(request())
        assert [len(engine.served) for engine in engines] == [1, 3]
        engines[0].let_go()
        assert (await spare).stop_reason == "finished"


async def test_where_every_replica_is_busy_there_is_nothing_to_spare() -> None:
    engine = FakeEngine(hold=True)
    async with running(engine) as pool:
        wanted = asyncio.create_task(pool.generate(request()))
        await settle()
        with pytest.raises(CapacityError, match="busy"):
            await pool.spare.generate(request())
        engine.let_go()
        await wanted
        assert len(engine.served) == 1


async def test_afterwards_the_replica_is_idle_again_also_where_the_engine_failed() -> None:
    engine = FakeEngine(hold=True)
    async with running(engine) as pool:
        spare = asyncio.create_task(pool.spare.generate(request()))
        await settle()
        engine.fail()
        with pytest.raises(EngineUnavailableError):
            await spare
        engine.let_go()
        await until(lambda: pool.idle)
        assert (await pool.generate(request())).stop_reason == "finished"


class Slow(FakeEngine):
    """An engine that takes its time to stop."""

    async def generate(self, request: GenerationRequest) -> GenerationResult:
        try:
            return await super().generate(request)
        except asyncio.CancelledError:
            await asyncio.sleep(0.2)
            raise


async def test_nobody_waits_past_the_deadline_for_a_replica_that_does_not_stop() -> None:
    engine = Slow(hold=True)
    async with running(engine) as pool:
        spare = asyncio.create_task(pool.spare.generate(request()))
        await settle()
        for _ in range(30):
            pool._admission.times.add(0.01)
        with pytest.raises(CapacityError, match="did not come free"):
            await pool.generate(request(seconds=0.05))
        await asyncio.gather(spare, return_exceptions=True)
        engine.let_go()
        assert (await pool.generate(request())).stop_reason == "finished"


async def test_who_leaves_while_a_replica_is_taken_back_gives_it_back() -> None:
    engine = Slow(hold=True)
    async with running(engine) as pool:
        spare = asyncio.create_task(pool.spare.generate(request()))
        await settle()
        leaving = asyncio.create_task(pool.generate(request()))
        await settle()
        leaving.cancel()
        await asyncio.gather(leaving, spare, return_exceptions=True)
        engine.let_go()
        assert (await pool.generate(request())).stop_reason == "finished"


async def test_closing_ends_it() -> None:
    async with running(FakeEngine(hold=True)) as pool:
        spare = asyncio.create_task(pool.spare.generate(request()))
        await settle()
    with pytest.raises(CapacityError):
        await spare
