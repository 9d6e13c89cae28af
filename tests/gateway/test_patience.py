"""Work that can wait has replicas while nobody else needs them, in order, and changes nothing for the others."""

import asyncio
import random

import pytest

from service.engines.protocol import EngineUnavailableError, GenerationRequest, GenerationResult
from service.gateway.pool import CapacityError, ReplicaPool
from tests.fake_engines import FakeEngine, request, running, settle, until

pytestmark = pytest.mark.anyio


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


async def test_who_has_lost_a_replica_to_a_person_has_the_next_one() -> None:
    engine = FakeEngine(hold=True)
    async with running(engine) as pool:
        batch = [patient(pool, "first"), patient(pool, "second")]
        await settle()
        person = asyncio.create_task(pool.generate(request(prompt="person")))
        await settle()
        assert (engine.cancelled, [each.prompt for each in engine.served]) == (1, ["first", "person"])
        engine.let_go()
        await asyncio.gather(person, *batch)
        assert [each.prompt for each in engine.served] == ["first", "person", "first", "second"]


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
    engine = FakeEngine(hold=True)
    async with running(engine) as pool:
        batch = [patient(pool, "begun"), patient(pool, "waiting")]
        await settle()
    for each in batch:
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
