import asyncio

import pytest

from service.api.reload import Reloader
from service.engines.worker.messages import ModelSource
from service.gateway.pool import ReplicaPool
from tests.fake_engines import FakeEngine, request, until

pytestmark = pytest.mark.anyio


async def test_where_files_have_changed_and_replicas_cannot_start_what_is_there_now_is_served() -> None:
    engine, source = FakeEngine(), ModelSource("loader", {}, version="one")
    pool = ReplicaPool([engine], version="one")
    await pool.start()
    adopted: list[str] = []
    reloader = Reloader(
        pool, lambda: source, lambda: lambda: adopted.append(source.version), lambda _, __: FakeEngine()
    )
    watching = asyncio.create_task(reloader.watch(seconds=0.01))
    source = ModelSource("loader", {}, version="two")
    await asyncio.sleep(0.1)
    assert pool.version == "one"  # all replicas are well: only an operator reloads
    engine.start_failures = 1000
    engine.fail()
    await until(lambda: pool.version == "two")
    assert (await pool.generate(request())).model_version == "two"
    assert adopted == ["two"]
    watching.cancel()
    await reloader.close()
    await pool.close()


async def test_whatever_keeps_a_reload_that_nobody_waits_for_is_logged(caplog: pytest.LogCaptureFixture) -> None:
    def broken() -> ModelSource:
        raise RecursionError("too deep")

    pool = ReplicaPool([FakeEngine()], version="one")
    await pool.start()
    reloader = Reloader(pool, broken, lambda: lambda: None, lambda _, __: FakeEngine())
    reloader.request()
    await until(lambda: "reload failed" in caplog.text)
    assert "RecursionError" in vars(caplog.records[-1])["exception"]
    await reloader.close()
    await pool.close()


async def test_files_that_cannot_be_read_for_a_while_do_not_end_the_watch() -> None:
    engine, found = FakeEngine(), [ModelSource("loader", {}, version="two")]
    pool = ReplicaPool([engine], version="one")
    await pool.start()

    def find() -> ModelSource:
        if len(looked) < 3:
            looked.append(None)
            raise OSError("gone")
        return found[0]

    looked: list[None] = []
    reloader = Reloader(pool, find, lambda: lambda: None, lambda _, __: FakeEngine())
    watching = asyncio.create_task(reloader.watch(seconds=0.01))
    engine.start_failures = 1000
    engine.fail()
    await until(lambda: pool.version == "two")
    watching.cancel()
    await reloader.close()
    await pool.close()
