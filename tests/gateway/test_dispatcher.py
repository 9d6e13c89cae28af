"""Which replica a request gets, at the moments between a replica's release and its next request."""

import asyncio

import pytest

from service.gateway.admission import Admission
from service.gateway.dispatcher import Dispatcher
from service.gateway.slot import Slot
from tests.fake_engines import FakeEngine, settle

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
