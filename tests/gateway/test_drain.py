"""A drain waits, then stops the server once, however often it is asked for."""

import asyncio
import time

import pytest

from service.gateway.drain import Drain

pytestmark = pytest.mark.anyio


async def test_it_stops_once_its_time_has_passed() -> None:
    drain, stopped = Drain(0.1), asyncio.Event()
    ended: list[float] = []

    def stop() -> None:
        ended.append(time.monotonic())
        stopped.set()

    drain.on_stop(stop)
    assert not drain.draining
    begun = time.monotonic()
    drain.begin()
    drain.begin()
    assert drain.draining
    await asyncio.wait_for(stopped.wait(), 20)
    await asyncio.sleep(0.02)
    assert len(ended) == 1
    assert ended[0] - begun >= 0.09


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
