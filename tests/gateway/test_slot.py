"""A replica's slot: how soon it is started again, and what a reload that is given up leaves behind."""

import asyncio

import pytest

from service.gateway import slot as slot_module
from service.gateway.request_queue import QueuedRequest
from service.gateway.slot import MIN_BACKOFF, Slot
from tests.fake_engines import FakeEngine, settle

pytestmark = pytest.mark.anyio


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
