"""Engines that share one process, which decodes their requests together: each behaves as if it had one of its own."""

import asyncio
import os
import signal
from collections.abc import AsyncIterator
from pathlib import Path

import pytest

from service.engines.protocol import EngineUnavailableError, RequestRefusedError
from service.engines.torch.engine import load
from service.engines.worker.fork_server import can_fork
from service.engines.worker.messages import ModelSource
from service.engines.worker.replica import ReplicaEngine
from service.engines.worker.spawn import replicas_of
from service.settings.engines import EngineConfig
from tests.tiny_model import QUESTIONS, plan_request

pytestmark = [
    pytest.mark.anyio,
    pytest.mark.skipif(not can_fork(), reason="processes are shared on Linux only"),
]
SLOTS = 3


@pytest.fixture(scope="module")
def config(tiny_model_dir: Path) -> EngineConfig:
    return EngineConfig(model_dir=tiny_model_dir, cache_dir=tiny_model_dir, dtype="float32", batch_size=SLOTS)


@pytest.fixture
async def engines(config: EngineConfig) -> AsyncIterator[list[ReplicaEngine]]:
    source = ModelSource("service.engines.torch.engine:load", {"config": config}, slots=SLOTS)
    made = [ReplicaEngine(source) for _ in range(SLOTS)]
    await asyncio.gather(*(engine.start() for engine in made))
    yield made
    for engine in made:
        await engine.close()


async def test_they_answer_together_as_the_model_does_alone(engines: list[ReplicaEngine], config: EngineConfig) -> None:
    assert len({engine.pid for engine in engines}) == 1
    assert engines[0].pid in replicas_of(os.getpid())  # other modules' replicas may be there, too
    alone = load(config)
    requests = [plan_request(query) for query in QUESTIONS]

    async def one_after_another(engine: ReplicaEngine) -> list[list[int]]:
        return [(await engine.generate(request)).tokens for request in requests]

    answers = await asyncio.gather(*map(one_after_another, engines))

    expected = [alone.generate(request).tokens for request in requests]
    assert answers == [expected] * SLOTS


async def test_refusals_and_cancellations_are_of_one_engine(engines: list[ReplicaEngine]) -> None:
    left = asyncio.create_task(engines[0].generate(plan_request("red running shoes for women under 40")))
    refused = asyncio.create_task(engines[1].generate(plan_request("red " * 500)))
    sound = asyncio.create_task(engines[2].generate(plan_request("red shoes")))
    await asyncio.sleep(0)
    left.cancel()

    with pytest.raises(asyncio.CancelledError):
        await left
    with pytest.raises(RequestRefusedError):
        await refused
    assert (await sound).stop_reason == "finished"
    assert [(await engine.generate(plan_request("red shoes"))).stop_reason for engine in engines] == [
        "finished"
    ] * SLOTS


async def test_one_that_leaves_or_starts_anew_disturbs_nobody(engines: list[ReplicaEngine]) -> None:
    pid = engines[1].pid
    running = asyncio.create_task(engines[1].generate(plan_request("red shoes")))

    await engines[0].start()
    await engines[2].close()

    assert (await running).stop_reason == "finished"
    assert (await engines[0].generate(plan_request("red shoes"))).stop_reason == "finished"
    assert engines[0].pid == engines[1].pid == pid


async def test_when_the_process_dies_all_of_them_are_lost_and_come_back(engines: list[ReplicaEngine]) -> None:
    pid = engines[0].pid
    assert pid is not None
    os.kill(pid, signal.SIGKILL)

    reasons = await asyncio.gather(*(engine.failed() for engine in engines))
    assert len(reasons) == SLOTS
    with pytest.raises(EngineUnavailableError):
        await engines[0].generate(plan_request("red shoes"))
    for engine in engines:
        await engine.start()

    assert len({engine.pid for engine in engines} - {pid}) == 1
    answers = await asyncio.gather(*(engine.generate(plan_request("red shoes")) for engine in engines))
    assert {answer.stop_reason for answer in answers} == {"finished"}
