"""A pool of replicas: who is served, and what of hung, wrong, slow or dead ones; and reloads."""

import asyncio
import errno
import math
import time
from collections.abc import AsyncIterator, Awaitable, Callable, Iterator
from dataclasses import replace
from typing import Any

import pytest

from service.engines.protocol import EngineError, EngineUnavailableError, GenerationRequest, GenerationResult
from service.gateway.pool import CapacityError, ReplicaPool
from service.planner.plan_text import PlanTextError
from service.planner.planner import Planner
from service.planner.prompt import PlanTask
from service.planner.question import Question
from service.planner.vocabulary import shipped_vocabulary
from tests.fake_engines import LONG, FakeEngine, request, running, settle, until
from tests.fake_models import result

pytestmark = pytest.mark.anyio
Starter = Callable[..., Awaitable[ReplicaPool]]


@pytest.fixture
async def started() -> AsyncIterator[Starter]:
    pools: list[ReplicaPool] = []

    async def start(*engines: FakeEngine, **options: Any) -> ReplicaPool:
        pools.append(ReplicaPool(engines, **options))
        await pools[-1].start()
        return pools[-1]

    yield start
    for pool in pools:
        await pool.close()


async def test_requests_spread_over_idle_replicas_and_the_others_wait_in_order(started: Starter) -> None:
    engines = [FakeEngine(hold=True), FakeEngine(hold=True)]
    pool = await started(*engines)
    work = [asyncio.create_task(pool.generate(request(prompt=str(number)))) for number in range(5)]
    await settle()
    assert [[each.prompt for each in engine.served] for engine in engines] == [["0"], ["1"]]
    assert (pool.outstanding, pool.counts["admitted"], pool.counts["retried"]) == (5, 2, 0)
    engines[0].let_go()
    await asyncio.gather(work[0], *work[2:])
    assert [each.prompt for each in engines[0].served] == ["0", "2", "3", "4"]
    engines[1].let_go()
    assert (await work[1]).stop_reason == "finished"
    assert (pool.outstanding, pool.counts["admitted"]) == (0, 5)


async def test_a_turn_goes_to_the_idle_replica_that_read_the_turn_before(started: Starter) -> None:
    engines = [FakeEngine() for _ in range(3)]
    pool = await started(*engines)
    turns = [" shoes |", " shoes | red |", " shoes | red | cheap |"]
    asked = [
        replace(request(prompt=turn), earlier=len(before)) for before, turn in zip(["", *turns], turns, strict=False)
    ]
    for turn in asked:
        await pool.generate(turn)
    assert [len(engine.served) for engine in engines] == [3, 0, 0]
    await pool.generate(replace(asked[1], cache_salt="another caller"))
    assert [len(engine.served) for engine in engines] == [3, 1, 0], "to whom it is a new conversation"
    engines[0].hold()
    work = [asyncio.create_task(pool.generate(asked[2])) for _ in range(2)]
    await settle()
    assert [len(engine.served) for engine in engines] == [4, 1, 1], "none waits for a replica while another is idle"
    engines[0].fail()
    engines[0].let_go()
    await asyncio.gather(*work)
    await until(lambda: engines[0].available)
    await pool.generate(asked[2])
    assert len(engines[0].served) == 4, "a replica that was started anew has read nothing"


async def test_waiting_is_measured(started: Starter) -> None:
    engine = FakeEngine(hold=True)
    pool = await started(engine)
    asked = time.monotonic()
    first, second = (asyncio.create_task(pool.generate(request())) for _ in range(2))
    await settle()
    begun = time.monotonic()
    await asyncio.sleep(0.05)
    held_until = time.monotonic()
    engine.let_go()
    assert (await first).queue_seconds <= begun - asked
    assert (await second).queue_seconds >= held_until - begun


async def test_who_would_wait_too_long_learns_it_before_the_deadline(started: Starter) -> None:
    engine = FakeEngine(hold=True)
    pool = await started(engine)
    busy = asyncio.create_task(pool.generate(request()))
    await settle()
    hasty = request(seconds=pool.expected_seconds + 0.1)
    with pytest.raises(CapacityError, match="too late"):
        await pool.generate(hasty)
    assert hasty.deadline is not None
    assert time.monotonic() < hasty.deadline
    engine.let_go()
    await busy


async def test_an_idle_replica_is_tried_even_when_time_is_short(started: Starter) -> None:
    pool = await started(FakeEngine())
    assert (await pool.generate(request(seconds=0.9 * pool.expected_seconds))).stop_reason == "finished"


@pytest.mark.parametrize("is_late", [False, True])
async def test_a_caller_that_leaves_or_is_out_of_time_frees_its_replica(started: Starter, is_late: bool) -> None:
    engine = FakeEngine(hold=True)
    pool = await started(engine)
    work = asyncio.create_task(pool.generate(request(0.03 if is_late else LONG)))
    await settle()
    if not is_late:
        work.cancel()
    with pytest.raises(
        CapacityError if is_late else asyncio.CancelledError, match="deadline passed" if is_late else None
    ):
        await work
    await until(lambda: engine.cancelled == 1)
    engine.let_go()
    assert (await pool.generate(request())).stop_reason == "finished"


async def test_a_lost_request_is_tried_once_on_another_replica(started: Starter) -> None:
    first, second = FakeEngine(hold=True), FakeEngine()
    pool = await started(first, second)
    work = asyncio.create_task(pool.generate(request()))
    await settle()
    first.fail()
    assert (await work).stop_reason == "finished"
    assert len(second.served) == 1


async def test_a_request_that_kills_every_replica_is_given_up(started: Starter) -> None:
    engines = [FakeEngine(hold=True) for _ in range(3)]
    pool = await started(*engines)
    work = asyncio.create_task(pool.generate(request()))
    for _ in range(2):
        await settle()
        next(engine for engine in engines if engine.available and engine.served).fail()
    with pytest.raises(EngineUnavailableError):
        await work
    assert sum(len(engine.served) for engine in engines) == 2


async def test_a_replica_comes_back_after_any_failure_and_says_why_it_is_away(started: Starter) -> None:
    class OutOfDescriptors(FakeEngine):
        async def start(self) -> None:
            if self.starts in (1, 2, 3):
                self.starts += 1
                raise OSError(errno.EMFILE, "Too many open files")
            await super().start()

    engine = OutOfDescriptors()
    refusal = ReplicaPool([engine]).refusal(None)
    assert refusal is not None
    assert refusal.reason == "engine", "it is not started yet"
    pool = await started(engine)
    assert (pool.refusal(None), pool.why_down, pool.idle) == (None, "", True)
    engine.fail()
    with pytest.raises(CapacityError, match="no replica is up"):
        await pool.generate(request())
    await until(lambda: "OSError" in pool.why_down)
    assert (pool.available, pool.usable_count, pool.replica_count, pool.idle) == (False, 0, 1, False)
    await until(lambda: pool.usable_count == 1)
    assert (pool.why_down, pool.counts["restarts"], engine.starts) == ("", 4, 5)
    assert (await pool.generate(request())).stop_reason == "finished"


async def test_the_expectation_follows_what_generations_take_and_not_traces(started: Starter) -> None:
    pool = await started(FakeEngine())
    await pool.generate(replace(request(), trace=True))
    assert pool.quantile(1.0) == 0
    before = pool.expected_seconds
    await pool.generate(request())
    assert pool.expected_seconds < before


async def test_start_begins_with_one_replica_and_closes_all_when_one_fails() -> None:
    engines = [FakeEngine(), FakeEngine("second"), FakeEngine()]
    engines[1].start_failures = 1
    with pytest.raises(EngineUnavailableError, match="second does not start"):
        await ReplicaPool(engines).start()
    assert all(engine.closed for engine in engines)


async def test_close_refuses_the_line_and_cancels_what_runs() -> None:
    engine = FakeEngine(hold=True)
    pool = ReplicaPool([engine])
    await pool.start()
    running, waiting = (asyncio.create_task(pool.generate(request())) for _ in range(2))
    await settle()
    await pool.close()
    outcomes = await asyncio.gather(running, waiting, return_exceptions=True)
    assert all(isinstance(outcome, CapacityError | EngineUnavailableError) for outcome in outcomes)
    assert engine.closed
    with pytest.raises(CapacityError):
        await pool.generate(request())


async def test_a_generation_that_never_began_ends_with_the_pool(started: Starter) -> None:
    engine = FakeEngine()
    pool = await started(engine)
    work = asyncio.create_task(pool.generate(request()))
    await asyncio.sleep(0)  # its task is made, and has not run
    await pool.close()
    with pytest.raises(CapacityError, match="given up"):
        await work
    assert engine.served == []


async def test_a_replica_that_long_prompts_keep_busy_past_short_deadlines_is_no_slow_one(started: Starter) -> None:
    class Reading(FakeEngine):
        async def generate(self, request: GenerationRequest) -> GenerationResult:
            await asyncio.sleep(len(request.prompt) / 20_000)  # a prompt is read whole before a cancellation counts
            return replace(result(), stop_reason="cancelled" if len(request.prompt) > 100 else "finished")

    engines = [Reading(), Reading()]
    pool = await started(*engines)
    prompts = ["x" * 500, "x"]
    for _ in range(20):
        await asyncio.gather(*(pool.generate(request(prompt=prompt)) for prompt in prompts), return_exceptions=True)
        prompts = ["x", "x" * 500]  # the replica idle for longest goes first
    await settle()
    assert [engine.starts for engine in engines] == [1, 1]


async def test_a_pool_has_failed_once_no_engine_is_left() -> None:
    first, second = FakeEngine(), FakeEngine()
    async with running(first, second) as pool:
        failed = asyncio.create_task(pool.failed())
        first.fail()
        await settle()
        assert not failed.done()
        second.fail()
        async with asyncio.timeout(20):
            await failed


async def test_a_costly_clients_generation_gives_way_and_is_tried_once_more_behind_who_waited() -> None:
    engine = FakeEngine(hold=True)
    async with running(engine) as pool:
        costly = replace(request(), client="costly")
        flood = [asyncio.create_task(pool.generate(costly)) for _ in range(30)]  # 4.5 s, all in one second
        await settle()
        ours = asyncio.create_task(pool.generate(replace(request(prompt="shoes"), client="shop")))
        await until(lambda: len(engine.served) == 2)
        assert [engine.cancelled, engine.served[1].prompt] == [1, "shoes"]
        engine.let_go()
        assert (await ours).stop_reason == "finished"
        assert all(each.stop_reason == "finished" for each in await asyncio.gather(*flood))
        assert pool.counts["gave_way"] == pool.counts["retried"] == 1
        assert pool.counts["admitted"] - pool.counts["retried"] == 31


async def test_under_high_pressure_a_much_shorter_request_takes_the_place_of_a_long_one(started: Starter) -> None:
    engine = FakeEngine(hold=True)
    pool = await started(engine)
    work = [asyncio.create_task(pool.generate(request()))]
    await settle()
    for _ in range(40):  # nothing can be done in so little time: these are refused
        with pytest.raises(CapacityError):
            await pool.generate(request(0.0))
    assert pool.refusal(None, 90) is None, "nobody waits yet"
    long = asyncio.create_task(pool.generate(request(prompt="x" * 90)))
    await settle()
    assert pool.refusal(None, 90) is not None, "worth no more than the one that waits"
    assert pool.refusal(None, 40) is None
    work.append(asyncio.create_task(pool.generate(request(prompt="x" * 40))))
    with pytest.raises(CapacityError, match="far more"):
        await long
    engine.let_go()
    assert [each.stop_reason for each in await asyncio.gather(*work)] == ["finished", "finished"]
    assert pool.refusal(None, 90) is None


SHOES = Question.parse("red shoes")
SOUND, NONSENSE = " find Type shoes Any", "nonsense"


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


async def test_a_replica_far_slower_than_the_others_is_started_anew(started: Starter) -> None:
    slow, quick = Slow(), FakeEngine(seconds=0.002)
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
    await until(lambda: slow.starts == 2)  # what was cut short late says that its replica is slow
    assert quick.starts == 1


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
