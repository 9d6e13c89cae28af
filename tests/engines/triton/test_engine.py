"""A real tritonserver over models without weights: readiness, cancellation, and everything that can die."""

import asyncio
import contextlib
import os
import signal
import time
from collections.abc import AsyncIterator, Iterator
from pathlib import Path

import pytest

from service.engines.protocol import EngineUnavailableError, GenerationRequest, RequestRefusedError
from service.engines.triton.engine import TritonEngine
from tests.fake_models import VALID_FOR_EVERY_QUESTION
from tests.redis_server import free_port
from tests.triton_server import TritonServer, needs_triton, triton_server

pytestmark = [pytest.mark.anyio, pytest.mark.slow]
PATIENCE = 120.0  # a limit that only a failure reaches


def request(prompt: str = "hello", seconds: float | None = None) -> GenerationRequest:
    deadline = None if seconds is None else time.monotonic() + seconds
    return GenerationRequest(prompt=prompt, grammar="", deadline=deadline)


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[TritonServer]:
    with triton_server(tmp_path_factory.mktemp("triton"), "tests.fake_models:fake_source", name="prompt_answer") as one:
        yield one


@pytest.fixture
async def engine(server: TritonServer) -> AsyncIterator[TritonEngine]:
    async with started(server) as engine:
        yield engine


@contextlib.asynccontextmanager
async def started(server: TritonServer, number: int = 0, version: str = "") -> AsyncIterator[TritonEngine]:
    engine = TritonEngine(server.url, number, version=version, start_seconds=PATIENCE, grace_seconds=1.0)
    await engine.start()
    yield engine
    await engine.close()


@needs_triton
async def test_requests_are_answered_refused_and_failed_one_after_another(engine: TritonEngine) -> None:
    assert (engine.model_id, engine.available) == ("fake", True)
    assert (await engine.generate(request())).text == VALID_FOR_EVERY_QUESTION
    with pytest.raises(RequestRefusedError, match=r"^no$"):
        await engine.generate(request("refuse"))
    with pytest.raises(EngineUnavailableError, match="ValueError") as caught:
        await engine.generate(request("fail"))
    assert "secret" not in str(caught.value)
    assert engine.available  # the request was at fault
    assert (await engine.generate(request("x" * 300_000))).text == VALID_FOR_EVERY_QUESTION


@needs_triton
async def test_the_deadline_stops_a_generation(engine: TritonEngine) -> None:
    assert (await engine.generate(request("sleep 300", seconds=0.05))).stop_reason == "cancelled"
    assert (await engine.generate(request("sleep 300", seconds=-1))).stop_reason == "cancelled"
    assert (await engine.generate(request())).stop_reason == "finished"


@needs_triton
async def test_a_client_that_leaves_frees_the_replica(engine: TritonEngine) -> None:
    process = engine.process
    work = asyncio.create_task(engine.generate(request("sleep 300")))
    await asyncio.sleep(0.1)
    work.cancel()
    with pytest.raises(asyncio.CancelledError):
        await work
    assert (await engine.generate(request())).stop_reason == "finished"
    assert (engine.available, engine.process) == (True, process)


@needs_triton
async def test_each_chip_has_a_process_with_its_own_cores(server: TritonServer, engine: TritonEngine) -> None:
    async with started(server, 1) as other:
        assert other.process != engine.process
        asked = request("variable NEURON_RT_VISIBLE_CORES")
        assert [(await one.generate(asked)).text for one in (engine, other)] == ["0-1", "2-3"]


@needs_triton
async def test_a_stub_that_dies_fails_its_request_at_once_and_is_loaded_again(engine: TritonEngine) -> None:
    process = engine.process
    with pytest.raises(EngineUnavailableError, match="ended"):
        await engine.generate(request("die"))
    await asyncio.wait_for(engine.failed(), PATIENCE)
    assert not engine.available
    with pytest.raises(EngineUnavailableError, match="not started"):
        await engine.generate(request())
    await engine.start()
    assert engine.process != process
    assert (await engine.generate(request())).stop_reason == "finished"


@needs_triton
async def test_a_stub_that_is_killed_while_idle_is_noticed(engine: TritonEngine) -> None:
    assert engine.process is not None
    os.kill(engine.process.pid, signal.SIGKILL)
    await asyncio.wait_for(engine.failed(), PATIENCE)
    await engine.start()
    assert engine.available


@needs_triton
@pytest.mark.parametrize("fault", ["hang", "stop"])
async def test_a_stub_that_does_not_come_free_is_killed(engine: TritonEngine, fault: str) -> None:
    process = engine.process
    assert process is not None
    if fault == "stop":
        os.kill(process.pid, signal.SIGSTOP)
    work = asyncio.create_task(engine.generate(request("hang")))
    await asyncio.sleep(0.1)
    work.cancel()
    with pytest.raises(asyncio.CancelledError):
        await work
    assert not engine.available
    await engine.start()
    assert engine.process != process
    assert (await engine.generate(request())).stop_reason == "finished"


@needs_triton
async def test_a_replica_that_is_started_again_is_another_process(engine: TritonEngine) -> None:
    before = engine.process
    await engine.start()  # as the pool does with a replica that lags or lies
    assert engine.process != before
    assert engine.available


@needs_triton
async def test_a_gateway_that_comes_back_finds_its_replicas(server: TritonServer, engine: TritonEngine) -> None:
    async with started(server) as second:
        assert second.process == engine.process


@needs_triton
async def test_a_model_that_triton_does_not_have_is_told(server: TritonServer) -> None:
    with pytest.raises(EngineUnavailableError, match="peakplan_7"):
        async with started(server, 7):
            pass


@needs_triton
async def test_a_server_that_is_killed_is_waited_for(server: TritonServer, engine: TritonEngine) -> None:
    work = asyncio.create_task(engine.generate(request("sleep 300")))
    await asyncio.sleep(0.1)
    await asyncio.to_thread(server.kill)
    with pytest.raises(EngineUnavailableError):
        await work
    await asyncio.wait_for(engine.failed(), PATIENCE)
    starting = asyncio.create_task(engine.start())
    await asyncio.sleep(0.3)
    assert not starting.done()
    await asyncio.to_thread(server.start)
    await starting
    assert (await engine.generate(request())).stop_reason == "finished"


@needs_triton
async def test_a_server_that_dies_with_an_answer_in_hand_leaves_no_stub(tmp_path: Path) -> None:
    with triton_server(tmp_path, "tests.fake_models:fake_source", replicas=1, name="prompt_answer") as server:
        async with started(server) as engine:
            work = asyncio.create_task(engine.generate(request("hang 0.5")))
            await asyncio.sleep(0.2)
            os.kill(server.pid, signal.SIGSTOP)
            await asyncio.sleep(1)  # the stub has answered, and waits for the server to say that it has it
            await asyncio.to_thread(server.kill)  # and for its stub to be gone
            with pytest.raises(EngineUnavailableError):
                await work


@needs_triton
async def test_another_version_of_the_model_is_loaded(tmp_path: Path) -> None:
    path = tmp_path / "model"
    path.write_text("v1", encoding="utf-8")
    with triton_server(tmp_path, "tests.fake_models:versioned_source", replicas=1, path=str(path)) as server:
        async with started(server, version="v1") as old, started(server, version="v1") as same:
            assert same.process == old.process
            path.write_text("v2", encoding="utf-8")
            async with started(server, version="v2") as new:
                assert (await new.generate(request())).text == "v2"
                await asyncio.wait_for(old.failed(), PATIENCE)
                with pytest.raises(EngineUnavailableError, match="newer"):
                    await old.start()  # as the pool does at once, which has yet to let go of it
                assert new.available


async def test_no_server_is_told_after_the_start_seconds() -> None:
    engine = TritonEngine(f"127.0.0.1:{free_port()}", 0, start_seconds=0.3)
    with pytest.raises(EngineUnavailableError, match="peakplan_0 in Triton"):
        await engine.start()
    assert not engine.available
    with pytest.raises(EngineUnavailableError, match="not started"):
        await engine.generate(request())
    await engine.close()
