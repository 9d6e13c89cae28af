"""Where a pool, its dispatcher and its slots change their mind, each at the bound: hangs, slow ones, turns, timers."""

import asyncio
import math
import time
from collections.abc import Iterator
from dataclasses import replace

import pytest

from service.engines.protocol import EngineUnavailableError, GenerationRequest, GenerationResult
from service.gateway.admission import Admission
from service.gateway.dispatcher import Dispatcher
from service.gateway.pool import CapacityError, ReplicaPool
from service.gateway.slot import GenerationTask, Slot
from tests.fake_engines import LONG, FakeEngine, request, running, settle
from tests.fake_models import result

pytestmark = pytest.mark.anyio


@pytest.mark.parametrize(
    ("known", "seconds", "expected"), [(19, 1.0, math.inf), (20, 1.0, 8.0), (20, 0.5, 5.0), (20, 0.75, 6.0)]
)
def test_a_hang_is_five_seconds_and_eight_times_what_nearly_all_take_once_twenty_are_known(
    known: int, seconds: float, expected: float
) -> None:
    pool = ReplicaPool([FakeEngine()], hang_seconds=5.0)
    for _ in range(known):
        pool._admission.times.add(seconds)
    assert pool._timeout() == pytest.approx(expected)


async def test_one_hang_of_a_hundred_decides_nothing() -> None:
    pool = ReplicaPool([FakeEngine()], hang_seconds=1.0)
    for seconds in [*[0.5] * 99, 60.0]:
        pool._admission.times.add(seconds)
    assert pool._timeout() == pytest.approx(4.0)


@pytest.mark.parametrize(("seconds", "is_slow"), [(0.2, False), (0.21, True)])
async def test_a_replica_that_takes_over_twice_as_long_comes_last(seconds: float, is_slow: bool) -> None:
    slots = [Slot(FakeEngine()) for _ in range(3)]
    dispatcher = Dispatcher(slots, Admission())
    slots[0].took(seconds, usual=0.1)
    for slot in slots:
        await slot.engine.start()
        dispatcher.offer(slot)
    expected = [1, 2, 0] if is_slow else [0, 1, 2]
    assert [await dispatcher.acquire(None) for _ in slots] == [slots[number] for number in expected]


async def test_who_waits_has_the_replica_that_comes_free_and_nobody_else() -> None:
    slot = Slot(FakeEngine())
    dispatcher, idle = Dispatcher([slot], Admission()), list[int]()
    dispatcher.on_idle = lambda: idle.append(1)
    await slot.engine.start()
    dispatcher.offer(slot)
    assert len(idle) == 1
    assert dispatcher.can_lend
    assert await dispatcher.acquire(None) is slot
    assert not dispatcher.can_lend
    first, second = (asyncio.create_task(dispatcher.acquire(None)) for _ in range(2))
    await settle()
    dispatcher.release(slot)
    await settle()
    assert (first.done(), second.done(), len(idle)) == (True, False, 1)
    dispatcher.offer(slot)  # it was restarted while it is busy
    await settle()
    assert not second.done()
    dispatcher.release(slot)
    assert await second is slot
    dispatcher.release(slot)
    dispatcher.offer(slot)  # restarted while it is idle
    assert len(idle) == 3
    assert await dispatcher.acquire(None) is slot
    assert dispatcher.lend(lambda _: asyncio.create_task(asyncio.sleep(0))) is None, "it was idle once, not twice"


async def test_a_dispatcher_that_closes_assigns_nothing_more_and_tells_everybody() -> None:
    slot = Slot(FakeEngine())
    dispatcher, idle = Dispatcher([slot], Admission()), list[int]()
    await slot.engine.start()
    dispatcher.offer(slot)
    dispatcher.on_idle = lambda: idle.append(1)
    assert await dispatcher.acquire(None) is slot
    waiting = asyncio.create_task(dispatcher.acquire(None))
    await settle()
    dispatcher.close()
    with pytest.raises(CapacityError, match="shutting down"):
        await waiting
    assert (dispatcher.usable_count, dispatcher.closing, idle) == (0, True, [1])
    dispatcher.release(slot)
    assert not dispatcher.can_lend
    assert len(idle) == 1


async def test_a_timer_of_who_waited_goes_with_the_turn() -> None:
    slot = Slot(FakeEngine())
    dispatcher = Dispatcher([slot], Admission())
    await slot.engine.start()
    dispatcher.offer(slot)
    held = await dispatcher.acquire(None)
    loop = asyncio.get_running_loop()
    waiting = asyncio.create_task(dispatcher.acquire(loop.time() + LONG))
    await settle()
    (timer,) = [each for each in loop._scheduled if "_on_late" in repr(each)]  # type: ignore[attr-defined]
    assert not timer.cancelled()
    dispatcher.release(held)
    assert await waiting is slot
    assert timer.cancelled()


async def test_there_is_one_timer_for_who_gives_way_next_and_none_where_nobody_does(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Each request looks anew when that is: a timer that stayed from before would start another one, for ever."""
    admission, loop = Admission(), asyncio.get_running_loop()
    dispatcher = Dispatcher([Slot(FakeEngine())], admission)

    def timers() -> list[asyncio.TimerHandle]:
        return [each for each in loop._scheduled if "_make_way" in repr(each) and not each.cancelled()]  # type: ignore[attr-defined]

    again = time.monotonic() + LONG
    monkeypatch.setattr(admission, "give_way", lambda: ([], again))
    for _ in range(3):
        dispatcher._make_way()
        (timer,) = timers()
        assert timer.when() == pytest.approx(again, abs=5)
    again = math.inf
    dispatcher._make_way()
    assert timers() == []
    again = time.monotonic() + LONG
    dispatcher._make_way()
    dispatcher.close()
    assert timers() == []


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


async def test_a_second_opinion_is_another_replicas_and_is_counted() -> None:
    async with running(FakeEngine(text="a"), FakeEngine(text="b"), FakeEngine(text="c")) as pool:
        first = await pool.generate(request())
        assert (first.text, first.replica) == ("a", 0)
        for _ in range(2):
            await pool.generate(request())  # the first one has been idle for longest again
        second = await pool.generate(request(), second_opinion_on=first)
        assert (second.text, second.replica) == ("b", 1)
        assert (pool.counts["corrupt"], pool.counts["retried"]) == (1, 1)


async def test_a_second_opinion_that_fails_is_not_tried_again() -> None:
    async with running(FakeEngine(), Ends(LOST)) as pool:
        first = await pool.generate(request())
        with pytest.raises(EngineUnavailableError, match="lost"):
            await pool.generate(request(), second_opinion_on=first)
        assert (pool.counts["corrupt"], pool.counts["retried"]) == (1, 1)


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


@pytest.mark.parametrize("seconds", [0.0, -1.0])
async def test_a_generation_without_time_times_out_at_once(seconds: float) -> None:
    ends = list[tuple[bool, bool]]()
    engine = FakeEngine(hold=True)
    await engine.start()
    generation = GenerationTask(
        engine, request(), seconds, lambda found, error, _: ends.append((found is None, error is None))
    )
    with pytest.raises(TimeoutError):
        await generation.outcome
    assert ends == [], "the engine is not free yet"
    generation.task.cancel()
    await settle()
    assert ends == [(True, True)]
    generation.give_way()
    assert engine.cancelled == 1


async def test_who_gives_way_once_its_outcome_is_there_changes_nothing() -> None:
    engine = FakeEngine()
    await engine.start()
    generation = GenerationTask(engine, request(), math.inf, lambda *_: None)
    assert (await generation.outcome).stop_reason == "finished"
    generation.give_way()
    await settle()
    assert not generation.task.cancelled()
    assert engine.cancelled == 0
