"""Replicas that hang, answer nonsense or lag are noticed, quarantined and replaced; and reloads."""

import asyncio
import math
import time
from collections.abc import AsyncIterator, Awaitable, Callable, Iterator
from dataclasses import replace
from typing import Any

import pytest

from service.engines.protocol import EngineError, EngineUnavailableError, GenerationRequest, GenerationResult
from service.gateway import slot as slot_module
from service.gateway.pool import CapacityError, ReplicaPool
from service.planner.plan_text import PlanTextError
from service.planner.planner import Planner
from service.planner.prompt import PlanTask
from service.planner.question import Question
from service.planner.vocabulary import shipped_vocabulary
from tests.fake_engines import FakeEngine, request, running, settle, until
from tests.fake_models import result

pytestmark = pytest.mark.anyio
Starter = Callable[..., Awaitable[ReplicaPool]]


@pytest.fixture
async def started(monkeypatch: pytest.MonkeyPatch) -> AsyncIterator[Starter]:
    monkeypatch.setattr(slot_module, "MIN_BACKOFF", 0.001)
    pools: list[ReplicaPool] = []

    async def start(*engines: FakeEngine, **options: Any) -> ReplicaPool:
        pools.append(ReplicaPool(engines, **options))
        await pools[-1].start()
        return pools[-1]

    yield start
    for pool in pools:
        await pool.close()


SHOES = Question.parse("red shoes")
SOUND, NONSENSE = " find Type shoes Any", "nonsense"


async def test_a_hung_replica_is_taken_out_and_its_request_tried_on_another(started: Starter) -> None:
    hung, well = FakeEngine(), FakeEngine(text="well")
    pool = await started(hung, well, hang_seconds=0.05)
    for _ in range(24):  # what generations take must be known
        await pool.generate(request())
    hung.hold()
    assert (await pool.generate(request())).text == "well"
    assert hung.cancelled == 1
    await until(lambda: pool.usable_count == 2)
    assert hung.starts == 2
    assert (pool.counts["hung"], pool.counts["retried"], pool.counts["restarts"]) == (1, 1, 1)


async def test_a_short_deadline_ends_a_request_before_its_replica_counts_as_hung(started: Starter) -> None:
    engine = FakeEngine()
    pool = await started(engine, hang_seconds=5.0, warm_up=[request()] * 24)
    engine.hold()
    with pytest.raises(CapacityError, match="deadline passed"):
        await pool.generate(request(seconds=0.03))
    assert pool.counts["hung"] == 0


async def test_a_corrupt_answer_is_replaced_by_anothers_and_its_replica_by_a_new_one(started: Starter) -> None:
    bad, well = FakeEngine(text=NONSENSE), FakeEngine(text=SOUND)
    pool = await started(bad, well)
    planned = await Planner(pool, shipped_vocabulary()).plan_with_model(PlanTask(SHOES, shipped_vocabulary()))
    assert planned.plan.facets == {"type": ["shoes"]}
    await until(lambda: pool.usable_count == 2 and bad.starts == 2)
    assert well.starts == 1
    assert pool.counts["corrupt"] == 1


@pytest.mark.parametrize(("replicas", "asked"), [(1, [2]), (2, [1, 1])])
async def test_a_question_that_no_replica_answers_soundly_takes_out_none(
    started: Starter, replicas: int, asked: list[int]
) -> None:
    engines = [FakeEngine(text=NONSENSE) for _ in range(replicas)]
    pool = await started(*engines)
    with pytest.raises(PlanTextError):
        await Planner(pool, shipped_vocabulary()).plan_with_model(PlanTask(SHOES, shipped_vocabulary()))
    await settle()
    assert [engine.starts for engine in engines] == [1] * replicas
    assert [len(engine.served) for engine in engines] == asked


async def test_a_replica_that_was_replaced_meanwhile_is_not_to_blame(started: Starter) -> None:
    pool = await started(FakeEngine(text=NONSENSE), version="v1")
    doubted = await pool.generate(request())
    fresh = FakeEngine()
    await pool.reload(lambda _: fresh, "v2")
    pool.distrust(doubted)
    await settle()
    assert fresh.starts == 1
    assert pool.usable_count == 1


async def test_what_warms_up_is_what_the_first_request_meets(started: Starter) -> None:
    warm_up = [GenerationRequest(prompt="x" * length, grammar="") for length in (10, 100)]
    engines = [Slow(), Slow()]
    pool = await started(*engines, warm_up=warm_up)
    assert [[one.prompt for one in engine.served] for engine in engines] == [["x" * 10, "x" * 100]] * 2
    assert 0.06 <= pool.expected_seconds < 0.15  # which stands for an engine of which nothing is known
    assert pool.last_success > 0
    fresh = FakeEngine()
    await pool.reload(lambda number: fresh if number else FakeEngine(), "v2")
    assert len(fresh.served) == 2


async def test_a_warm_up_that_fails_is_no_reason_not_to_start(started: Starter) -> None:
    pool = await started(Failing(), warm_up=[GenerationRequest(prompt="", grammar="")])
    assert pool.usable_count == 1


class Failing(FakeEngine):
    """An engine that fails every request but stays alive, until it is started again."""

    async def generate(self, request: GenerationRequest) -> GenerationResult:
        self.served.append(request)
        if self.starts == 1:
            raise EngineUnavailableError("out of memory")
        return await super().generate(request)


async def test_failures_in_a_row_take_a_replica_out(started: Starter) -> None:
    bad, well = Failing(), FakeEngine()
    pool = await started(bad, well)
    for _ in range(6):
        assert (await pool.generate(request())).stop_reason == "finished"
    await until(lambda: bad.starts == 2)


class Slow(FakeEngine):
    """An engine that is slow until it is started again."""

    async def generate(self, request: GenerationRequest) -> GenerationResult:
        await asyncio.sleep(0.06 if self.starts == 1 else 0.002)
        return await super().generate(request)


class Quick(FakeEngine):
    async def generate(self, request: GenerationRequest) -> GenerationResult:
        await asyncio.sleep(0.002)
        return await super().generate(request)


async def test_a_replica_far_slower_than_the_others_is_started_anew(started: Starter) -> None:
    slow, quick = Slow(), Quick()
    pool = await started(slow, quick)

    async def load() -> None:
        while slow.starts == 1:
            await pool.generate(request())

    async with asyncio.timeout(20):
        await asyncio.gather(load(), load())
    assert quick.starts == 1


async def test_a_replica_that_never_answers_in_time_is_far_slower_than_one_that_does(started: Starter) -> None:
    quick, slow = engines = [FakeEngine(), FakeEngine(hold=True)]
    pool = await started(*engines)
    for _ in range(30):
        both = (pool.generate(request(seconds=0.2)) for _ in engines)
        await asyncio.gather(*both, return_exceptions=True)
        if slow.starts > 1:
            break
    assert (quick.starts, slow.starts) == (1, 2), "what was cut short late says that its replica is slow"


async def test_who_waits_learns_at_once_that_the_last_replica_died(started: Starter) -> None:
    engine = FakeEngine(hold=True)
    pool = await started(engine)
    engine.start_failures = 1000
    running, waiting = (asyncio.create_task(pool.generate(request())) for _ in range(2))
    await settle()
    engine.fail()
    for work in (running, waiting):
        with pytest.raises(EngineError):
            await work


async def test_reload_replaces_every_engine_and_drops_nothing(started: Starter) -> None:
    old = [Quick(text="old"), Quick(text="old")]
    pool = await started(*old, version="v1")
    fresh: list[FakeEngine] = []

    def make(number: int) -> FakeEngine:
        assert number == len(fresh)
        fresh.append(Quick(text="new"))
        return fresh[-1]

    answers: list[GenerationResult] = []

    async def load(until_time: float) -> None:
        while time.monotonic() < until_time:
            answers.append(await pool.generate(request()))

    clients = [asyncio.create_task(load(time.monotonic() + 0.3)) for _ in range(4)]
    await asyncio.sleep(0.05)
    await pool.reload(make, "v2")
    await asyncio.gather(*clients)
    assert {(answer.text, answer.model_version) for answer in answers} == {("old", "v1"), ("new", "v2")}
    assert (answers[0].text, answers[-1].text, pool.version) == ("old", "new", "v2")
    assert all(engine.closed for engine in old)
    assert [engine.closed for engine in fresh] == [False, False]


async def test_a_reload_that_fails_leaves_the_old_model_serving(started: Starter) -> None:
    old = FakeEngine(text="old")
    pool = await started(old, version="v1")
    broken = FakeEngine()
    broken.start_failures = 1
    with pytest.raises(EngineUnavailableError):
        await pool.reload(lambda _: broken, "v2")
    assert broken.closed
    assert (await pool.generate(request())).text == "old"
    assert pool.version == "v1"


async def test_a_reloaded_replica_is_restarted_when_it_dies(started: Starter) -> None:
    pool = await started(FakeEngine())
    fresh = FakeEngine()
    await pool.reload(lambda _: fresh, "v2")
    fresh.fail()
    await until(lambda: fresh.starts == 2 and pool.available)
    assert (await pool.generate(request())).model_version == "v2"


class Ends(FakeEngine):
    """An engine whose generations end as told, one after another."""

    def __init__(self, *ends: GenerationResult | Exception) -> None:
        super().__init__()
        self._ends: Iterator[GenerationResult | Exception] = iter(ends)

    async def generate(self, request: GenerationRequest) -> GenerationResult:
        self.served.append(request)
        end = next(self._ends, result())
        if isinstance(end, Exception):
            raise end
        return end


LOST, CUT = EngineUnavailableError("lost"), replace(result(), stop_reason="cancelled")


async def test_an_answer_between_two_failures_forgives_the_first_and_a_cut_one_does_not() -> None:
    engine = Ends(LOST, LOST, result(), LOST, LOST, CUT, result())
    async with running(engine) as pool:
        with pytest.raises(EngineUnavailableError):
            await pool.generate(request())
        assert pool.last_success == -math.inf
        await pool.generate(request())
        assert pool.last_success > 0
        with pytest.raises(EngineUnavailableError):
            await pool.generate(request())
        succeeded = pool.last_success
        with pytest.raises(CapacityError, match="deadline passed during the generation"):
            await pool.generate(request())
        assert (pool.last_success, pool.usable_count, pool._slots[0]._failures) == (succeeded, 1, 2)
        assert (pool.counts["retried"], pool.counts["admitted"]) == (2, 6)


async def test_a_second_opinion_is_another_replicas_and_is_not_tried_again_where_that_fails() -> None:
    async with running(FakeEngine(text="a"), FakeEngine(text="b"), FakeEngine(text="c")) as pool:
        first = await pool.generate(request())
        for _ in range(2):
            await pool.generate(request())  # the first one has been idle for longest again
        second = await pool.generate(request(), second_opinion_on=first)
        assert (first.text, first.replica, second.text, second.replica) == ("a", 0, "b", 1)
    async with running(FakeEngine(), Ends(LOST)) as pool:
        first = await pool.generate(request())
        with pytest.raises(EngineUnavailableError, match="lost"):
            await pool.generate(request(), second_opinion_on=first)
        assert (pool.counts["corrupt"], pool.counts["retried"]) == (1, 1)


async def test_a_model_is_served_under_the_older_version_until_all_are_replaced() -> None:
    engines = [FakeEngine(), FakeEngine()]
    async with running(*engines) as pool:
        assert pool.version == ""
        engines[1].hold()
        await pool.generate(request())
        held = asyncio.create_task(pool.generate(request()))
        await settle()
        reloading = asyncio.create_task(pool.reload(lambda _: FakeEngine(), "v2"))
        await settle()
        assert [slot.version for slot in pool._slots] == ["v2", ""]
        assert pool.version == ""
        engines[1].let_go()
        await held
        await reloading
        assert pool.version == "v2"
