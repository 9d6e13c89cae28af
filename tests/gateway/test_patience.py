"""Work that nobody waits for: it has idle replicas, gives them back when they are needed, and gets its turn."""

import asyncio
import random

import pytest

from service.engines.protocol import EngineUnavailableError, GenerationRequest, GenerationResult
from service.gateway.pool import CapacityError, ReplicaPool
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


async def test_nobody_waits_past_the_deadline_for_a_replica_that_does_not_stop_and_who_leaves_gives_it_back() -> None:
    engine = Slow(hold=True)
    async with running(engine) as pool:
        spare = asyncio.create_task(pool.spare.generate(request()))
        await settle()
        for _ in range(30):
            pool._admission.times.add(0.01)
        with pytest.raises(CapacityError, match="did not come free"):
            await pool.generate(request(seconds=0.05))
        await asyncio.gather(spare, return_exceptions=True)
        spare = asyncio.create_task(pool.spare.generate(request()))
        await settle()
        leaving = asyncio.create_task(pool.generate(request()))
        await settle()
        leaving.cancel()
        await asyncio.gather(leaving, spare, return_exceptions=True)
        engine.let_go()
        assert (await pool.generate(request())).stop_reason == "finished"
        engine.hold()
        wanted = asyncio.create_task(pool.generate(request()))
        await settle()
        with pytest.raises(CapacityError, match="busy"):
            await pool.spare.generate(request())
        engine.let_go()
        await wanted


def patient(pool: ReplicaPool, prompt: str, seconds: float = 30.0) -> asyncio.Task[GenerationResult]:
    return asyncio.create_task(pool.patient.generate(request(seconds, prompt)))


async def test_it_waits_for_a_replica_and_has_it_as_soon_as_nobody_else_does() -> None:
    engine = FakeEngine(hold=True)
    async with running(engine) as pool:
        person = asyncio.create_task(pool.generate(request(prompt="person")))
        await settle()
        batch = [patient(pool, f"batch {number}") for number in range(3)]
        await settle()
        assert (pool.patient.waiting, [each.prompt for each in engine.served]) == (3, ["person"])
        engine.let_go()
        await asyncio.gather(person, *batch)
        assert [each.prompt for each in engine.served] == ["person", "batch 0", "batch 1", "batch 2"]
        assert (pool.counts["admitted"], pool.outstanding, pool.patient.waiting) == (1, 0, 0)


async def test_it_gives_up_at_its_deadline_and_leaves_its_turn_to_the_next() -> None:
    engine = FakeEngine(hold=True)
    async with running(engine) as pool:
        person = asyncio.create_task(pool.generate(request()))
        await settle()
        hasty, left, steady = patient(pool, "hasty", 0.02), patient(pool, "left"), patient(pool, "steady")
        with pytest.raises(CapacityError, match="too late"):
            await hasty
        engine.let_go()  # which calls the next one in the very turn in which it leaves
        await until(person.done)
        left.cancel()
        assert (await steady).stop_reason == "finished"
        await asyncio.gather(left, return_exceptions=True)


async def test_whoever_gives_up_just_as_its_turn_comes_leaves_it_to_the_next() -> None:
    engine = FakeEngine(hold=True)
    async with running(engine) as pool:
        person = asyncio.create_task(pool.generate(request()))
        await settle()
        left, steady = patient(pool, "left"), patient(pool, "steady")
        await settle()
        call_next = pool._dispatcher.on_idle

        def call_it_and_let_it_go() -> None:
            pool._dispatcher.on_idle = call_next
            call_next()
            left.cancel()

        pool._dispatcher.on_idle = call_it_and_let_it_go
        engine.let_go()
        assert (await steady).stop_reason == "finished"
        assert [each.prompt for each in engine.served] == ["", "steady"]
        await asyncio.gather(person, left, return_exceptions=True)
        assert left.cancelled()


async def test_closing_ends_it_wherever_it_stands() -> None:
    async with running(FakeEngine(hold=True), FakeEngine(hold=True)) as pool:
        works = [asyncio.create_task(pool.spare.generate(request()))]
        await settle()
        works += [patient(pool, "begun"), patient(pool, "waiting")]
        await settle()
    for each in works:
        with pytest.raises(CapacityError):
            await each
    with pytest.raises(CapacityError, match="shutting down"):
        await pool.patient.generate(request())


async def test_a_replica_that_dies_costs_it_another_attempt_and_no_more() -> None:
    engines = [FakeEngine(hold=True), FakeEngine(hold=True)]
    async with running(*engines) as pool:
        batch = patient(pool, "batch")
        for engine in engines:
            await until(lambda engine=engine: bool(engine.served))
            engine.fail()
        with pytest.raises(EngineUnavailableError):
            await batch


class Watched(FakeEngine):
    """An engine that yields some turns to others, and notes who waits when a patient request begins."""

    def __init__(self, rng: random.Random) -> None:
        super().__init__()
        self.pool: ReplicaPool | None = None
        self.rng = rng
        self.unfair = 0

    async def generate(self, request: GenerationRequest) -> GenerationResult:
        assert self.pool is not None
        self.unfair += request.prompt == "batch" and self.pool._admission.waiting > 0
        for _ in range(self.rng.randrange(6)):
            await asyncio.sleep(0)
            self.unfair += request.prompt == "batch" and self.pool._admission.waiting > 0
        return await super().generate(request)


@pytest.mark.parametrize("seed", range(20))
async def test_nobody_ever_waits_while_it_works_and_everybody_is_served(seed: int) -> None:
    rng = random.Random(seed)
    engines = [Watched(rng) for _ in range(rng.randrange(1, 4))]
    async with running(*engines) as pool:
        for engine in engines:
            engine.pool = pool
        tasks: list[asyncio.Task[GenerationResult]] = []
        for _ in range(120):
            if rng.random() < 0.5:
                tasks.append(patient(pool, "batch"))
            elif rng.random() < 0.8:
                tasks.append(asyncio.create_task(pool.generate(request(prompt="person"))))
            elif tasks:
                rng.choice(tasks).cancel()
            for _ in range(rng.randrange(3)):
                await asyncio.sleep(0)
        ended = await asyncio.gather(*tasks, return_exceptions=True)
        assert sum(engine.unfair for engine in engines) == 0
        assert all(isinstance(each, GenerationResult | asyncio.CancelledError) for each in ended)
        await settle()
        assert (pool.idle, pool.outstanding, pool.patient.waiting) == (True, 0, 0)
