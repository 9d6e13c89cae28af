import asyncio
import errno
import time
from collections.abc import AsyncIterator, Awaitable, Callable
from dataclasses import replace

import pytest

from service.engines.protocol import EngineUnavailableError, GenerationRequest, GenerationResult
from service.gateway import slot as slot_module
from service.gateway.pool import CapacityError, ReplicaPool
from tests.fake_engines import LONG, FakeEngine, request, settle, until
from tests.fake_models import result

pytestmark = pytest.mark.anyio
Starter = Callable[..., Awaitable[ReplicaPool]]


@pytest.fixture
async def started() -> AsyncIterator[Starter]:
    pools: list[ReplicaPool] = []

    async def start(*engines: FakeEngine) -> ReplicaPool:
        pools.append(ReplicaPool(engines))
        await pools[-1].start()
        return pools[-1]

    yield start
    for pool in pools:
        await pool.close()


async def test_requests_spread_over_idle_replicas(started: Starter) -> None:
    engines = [FakeEngine(hold=True), FakeEngine(hold=True)]
    pool = await started(*engines)
    work = [asyncio.create_task(pool.generate(request())) for _ in range(2)]
    await settle()
    assert [len(engine.served) for engine in engines] == [1, 1]
    for engine in engines:
        engine.let_go()
    assert {(await task).stop_reason for task in work} == {"finished"}


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


async def test_the_line_is_first_come_first_served(started: Starter) -> None:
    engine = FakeEngine(hold=True)
    pool = await started(engine)
    work = [asyncio.create_task(pool.generate(request(prompt=str(number)))) for number in range(4)]
    await settle()
    engine.let_go()
    await asyncio.gather(*work)
    assert [served.prompt for served in engine.served] == ["0", "1", "2", "3"]


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


async def test_a_hopelessly_long_line_refuses_at_once(started: Starter) -> None:
    engine = FakeEngine(hold=True)
    pool = await started(engine)
    line = [asyncio.create_task(pool.generate(request())) for _ in range(100)]
    await settle()
    with pytest.raises(CapacityError, match="busy past the deadline"):
        await pool.generate(request(seconds=1.0))
    engine.let_go()
    await asyncio.gather(*line)


async def test_an_idle_replica_is_tried_even_when_time_is_short(started: Starter) -> None:
    pool = await started(FakeEngine())
    assert (await pool.generate(request(seconds=0.9 * pool.expected_seconds))).stop_reason == "finished"


async def test_the_caller_leaves_at_the_deadline_and_the_generation_is_cancelled(started: Starter) -> None:
    engine = FakeEngine(hold=True)
    pool = await started(engine)
    with pytest.raises(CapacityError, match="deadline passed"):
        await pool.generate(request(seconds=0.03))
    await until(lambda: engine.cancelled == 1)
    engine.let_go()
    assert (await pool.generate(request())).stop_reason == "finished"


async def test_a_caller_that_leaves_frees_its_replica(started: Starter) -> None:
    engine = FakeEngine(hold=True)
    pool = await started(engine)
    work = asyncio.create_task(pool.generate(request()))
    await settle()
    work.cancel()
    await until(lambda: engine.cancelled == 1)
    engine.let_go()
    assert (await pool.generate(request())).stop_reason == "finished"


async def test_a_caller_that_leaves_the_line_takes_no_replica_along(started: Starter) -> None:
    engine = FakeEngine(hold=True)
    pool = await started(engine)
    first = asyncio.create_task(pool.generate(request()))
    await settle()
    leaving = asyncio.create_task(pool.generate(request()))
    await settle()
    engine.let_go()
    await first
    leaving.cancel()  # in the very moment that the replica is handed over
    await asyncio.wait({leaving})
    assert (await pool.generate(request(seconds=2.0))).stop_reason == "finished"


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


async def test_a_dead_replica_is_started_again_however_often_that_fails(
    started: Starter, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(slot_module, "MIN_BACKOFF", 0.001)
    engine = FakeEngine()
    pool = await started(engine)
    engine.start_failures = 3
    engine.fail()
    with pytest.raises(CapacityError, match="no replica is up"):
        await pool.generate(request())
    await until(lambda: pool.available)
    assert engine.starts == 5
    assert (await pool.generate(request())).stop_reason == "finished"


async def test_with_one_replica_down_the_others_go_on(started: Starter, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(slot_module, "MIN_BACKOFF", LONG)
    dead, well = FakeEngine(), FakeEngine()
    pool = await started(dead, well)
    dead.fail()
    for _ in range(5):
        assert (await pool.generate(request())).stop_reason == "finished"
    assert (len(dead.served), len(well.served)) == (0, 5)


async def test_a_pool_with_a_free_replica_and_nobody_waiting_is_idle(started: Starter) -> None:
    engine = FakeEngine(hold=True)
    pool = await started(engine)
    assert pool.idle
    work = asyncio.create_task(pool.generate(request()))
    await settle()
    assert not pool.idle
    engine.let_go()
    await work
    assert pool.idle


async def test_a_replica_comes_back_after_any_failure_and_says_why_it_is_away(started: Starter) -> None:
    class OutOfDescriptors(FakeEngine):
        async def start(self) -> None:
            if self.starts in (1, 2):
                self.starts += 1
                raise OSError(errno.EMFILE, "Too many open files")
            await super().start()

    engine = OutOfDescriptors()
    pool = await started(engine)
    engine.fail()
    await until(lambda: "OSError" in pool.why_down)
    await until(lambda: pool.usable_count == 1)
    assert (await pool.generate(request())).stop_reason == "finished"


async def test_why_a_replica_is_down_is_told_while_it_is(started: Starter, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(slot_module, "MIN_BACKOFF", 0.2)
    well, corrupt = FakeEngine(), FakeEngine()
    pool = await started(well, corrupt)
    assert pool.why_down == ""
    pool.distrust(replace(result(), replica=1))
    assert pool.why_down == "its answer was corrupt, another replica's was sound"
    assert (pool.available, pool.usable_count, pool.replica_count) == (True, 1, 2)
    await until(lambda: pool.usable_count == 2)
    assert pool.why_down == ""
    assert pool.counts["restarts"] == 1


async def test_what_waits_and_what_runs_is_outstanding(started: Starter) -> None:
    engine = FakeEngine(hold=True)
    pool = await started(engine)
    work = [asyncio.create_task(pool.generate(request())) for _ in range(3)]
    await settle()
    assert (pool.outstanding, pool.counts["admitted"], pool.counts["retried"]) == (3, 1, 0)
    engine.let_go()
    await asyncio.gather(*work)
    assert (pool.outstanding, pool.counts["admitted"]) == (0, 3)


async def test_a_trace_says_nothing_of_how_long_plans_take(started: Starter) -> None:
    pool = await started(FakeEngine())
    await pool.generate(replace(request(), trace=True))
    assert pool.quantile(1.0) == 0


async def test_the_expectation_follows_what_generations_take(started: Starter) -> None:
    pool = await started(FakeEngine())
    before = pool.expected_seconds
    assert pool.last_success == float("-inf")
    await pool.generate(request())
    assert pool.expected_seconds < before
    assert pool.last_success > 0


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


def test_a_pool_of_nothing_is_refused() -> None:
    with pytest.raises(ValueError, match="at least one"):
        ReplicaPool([])


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
        prompts = ["x", "x" * 500]  # whoever has been idle for longer goes first
    await settle()
    assert [engine.starts for engine in engines] == [1, 1]
