"""A pool's generations that give way to a client who asks for no more than a fair share."""

import asyncio
from dataclasses import replace

import pytest

from tests.fake_engines import FakeEngine, request, running, settle, until

pytestmark = pytest.mark.anyio


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


async def test_a_client_that_is_alone_never_gives_way() -> None:
    engine = FakeEngine(hold=True)
    async with running(engine) as pool:
        work = [asyncio.create_task(pool.generate(replace(request(), client="shop"))) for _ in range(30)]
        await settle()
        assert pool._dispatcher._again is None  # nothing is due, ever
        engine.let_go()
        await asyncio.gather(*work)
        assert [pool.counts["gave_way"], engine.cancelled] == [0, 0]
