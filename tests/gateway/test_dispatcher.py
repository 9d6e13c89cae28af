"""Which replica a request gets, how a replica's slot is started anew, and how a drain ends."""

import asyncio
import math
import time

import pytest

from service.gateway import slot as slot_module
from service.gateway.admission import Admission
from service.gateway.dispatcher import Dispatcher
from service.gateway.drain import Drain
from service.gateway.request_queue import CapacityError, QueuedRequest
from service.gateway.slot import MIN_BACKOFF, GenerationTask, Slot
from tests.fake_engines import LONG, FakeEngine, request, settle

pytestmark = pytest.mark.anyio


async def dispatching(count: int) -> tuple[Dispatcher, list[Slot]]:
    slots = [Slot(FakeEngine()) for _ in range(count)]
    dispatcher = Dispatcher(slots, Admission())
    for slot in slots:
        await slot.engine.start()
        dispatcher.offer(slot)
    return dispatcher, slots


async def test_who_leaves_as_a_replica_is_handed_over_gives_it_back() -> None:
    """The replica is already the waiter's, which has not woken up yet: nobody else would ever release it."""
    dispatcher, (slot,) = await dispatching(1)
    assert await dispatcher.acquire(None) is slot
    leaving = asyncio.create_task(dispatcher.acquire(None))
    await settle()
    dispatcher.release(slot)
    leaving.cancel()
    await asyncio.wait({leaving})
    assert leaving.cancelled()
    async with asyncio.timeout(5):
        assert await dispatcher.acquire(None) is slot


async def test_a_lent_replica_that_was_taken_out_is_nobody_s() -> None:
    dispatcher, (lent, busy) = await dispatching(2)
    work = dispatcher.lend(lambda _: asyncio.create_task(asyncio.sleep(60)))
    assert work is not None
    assert await dispatcher.acquire(None) is busy
    lent.quarantine("it hangs")
    waiting = asyncio.create_task(dispatcher.acquire(None))
    await settle()
    assert not work.cancelling()
    dispatcher.release(busy)
    async with asyncio.timeout(5):
        assert await waiting is busy
    work.cancel()
    await settle()


async def test_a_retry_avoids_the_replica_that_failed_also_where_the_other_is_slow() -> None:
    dispatcher, (failed, slow) = await dispatching(2)
    for _ in range(50):
        slow.took(1.0, usual=0.1)
    assert await dispatcher.acquire(None, avoid=failed) is slow
    dispatcher.release(slow)
    assert await dispatcher.acquire(None) is failed, "without a reason to avoid it the faster one is better"


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


async def test_pauses_before_restarts_grow_to_a_limit(monkeypatch: pytest.MonkeyPatch) -> None:
    pauses: list[float] = []
    pause = asyncio.sleep

    async def sleep(seconds: float) -> None:
        if seconds:
            pauses.append(seconds)
        await pause(0)

    monkeypatch.setattr(slot_module.asyncio, "sleep", sleep)
    engine = FakeEngine()
    slot = Slot(engine)
    await engine.start()
    came_back = asyncio.Event()
    keeping = asyncio.create_task(slot.keep_alive(lambda: None, lambda _: came_back.set()))
    await settle()
    engine.start_failures = 12
    engine.fail()
    await came_back.wait()
    keeping.cancel()
    expected = [min(MIN_BACKOFF * 2**step, 30.0) for step in range(1, 14)]
    assert pauses == pytest.approx(expected)


async def test_no_watch_outlives_the_loss_that_it_waited_for(monkeypatch: pytest.MonkeyPatch) -> None:
    """A failure and a quarantine are waited for together: a replica that is lost often would keep a task of each."""
    pause = asyncio.sleep
    monkeypatch.setattr(slot_module.asyncio, "sleep", lambda _: pause(0))
    engine = FakeEngine()
    slot, came_back = Slot(engine), asyncio.Event()
    await engine.start()
    keeping = asyncio.create_task(slot.keep_alive(lambda: None, lambda _: came_back.set()))
    await settle()
    watching = len(asyncio.all_tasks())
    for lose in (engine.fail, engine.fail, lambda: slot.quarantine("slow"), lambda: slot.quarantine("slow")):
        came_back.clear()
        lose()
        await came_back.wait()
        await settle()
        assert len(asyncio.all_tasks()) == watching
    keeping.cancel()


async def test_an_engine_that_cannot_even_say_why_it_failed_is_down_and_that_is_why() -> None:
    class Broken(FakeEngine):
        async def failed(self) -> None:
            raise ValueError("with a shopper's words")

    slot, went_down = Slot(Broken()), asyncio.Event()
    keeping = asyncio.create_task(slot.keep_alive(went_down.set, lambda _: None))
    async with asyncio.timeout(20):
        await went_down.wait()
    keeping.cancel()
    assert "ValueError" in slot.why_down
    assert "shopper" not in slot.why_down


async def test_another_engine_starts_with_a_clean_record() -> None:
    slot = Slot(FakeEngine("old"))
    for _ in range(2):
        slot.failed("lost")
    slot.took(1.0, usual=0.1)
    old, new = slot.engine, FakeEngine("new")
    for engine in (old, new):
        await engine.start()
    await slot.replace(new, "v2")
    assert (slot.engine, slot.version, len(slot.slowness), old.available) == (new, "v2", 0, False)
    for _ in range(2):
        slot.failed("lost")
    assert slot.usable


async def test_a_reload_that_is_given_up_leaves_the_replica_in_service() -> None:
    slot = Slot(FakeEngine())
    await slot.engine.start()
    slot.take(QueuedRequest(1.0, 0))
    reloading = asyncio.create_task(slot.replace(FakeEngine(), "v2"))
    await settle()
    assert not slot.usable
    reloading.cancel()
    await asyncio.wait({reloading})
    assert slot.usable


async def test_a_generation_without_time_times_out_at_once_and_need_not_give_way() -> None:
    ends, engine = list[tuple[bool, bool]](), FakeEngine(hold=True)
    await engine.start()
    generation = GenerationTask(
        engine, request(), -1.0, lambda found, error, _: ends.append((found is None, error is None))
    )
    with pytest.raises(TimeoutError):
        await generation.outcome
    assert ends == [], "the engine is not free yet"
    generation.task.cancel()
    await settle()
    generation.give_way()
    assert (ends, engine.cancelled) == ([(True, True)], 1)


async def test_it_can_end_at_once_and_where_nothing_serves_yet() -> None:
    drain = Drain(60)
    drain.end()
    assert drain.draining
    stopped: list[bool] = []
    drain.on_stop(lambda: stopped.append(True))
    drain.begin()
    assert stopped == []
    drain.end()
    assert stopped == [True]


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
