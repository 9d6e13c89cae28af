"""Replicas that are forked from one process, which has the model, and slots of one."""

import asyncio
import os
import resource
import signal
import socket
import subprocess
import sys
from collections.abc import AsyncIterator
from dataclasses import replace
from pathlib import Path

import pytest

from service.engines.protocol import EngineUnavailableError, GenerationRequest, RequestRefusedError
from service.engines.torch_engine import load
from service.engines.worker.messages import ModelSource
from service.engines.worker.replica import ReplicaEngine
from service.engines.worker.spawn import FORK_SERVER, ForkServer, Process, can_fork, replicas_of
from service.settings.engines import EngineConfig
from tests.fake_models import fake_source
from tests.processes import children_of, eventually, is_alive
from tests.tiny_model import QUESTIONS, plan_request

pytestmark = [
    pytest.mark.anyio,
    pytest.mark.skipif(not can_fork(), reason="replicas are forked on Linux only; elsewhere each loads its own model"),
]


def request(prompt: str = "hello") -> GenerationRequest:
    return GenerationRequest(prompt=prompt, grammar="")


def forked(name: str = "prompt_answer", **arguments: object) -> ReplicaEngine:
    return ReplicaEngine(replace(fake_source(name, **arguments), forkable=True), grace_seconds=0.3)


@pytest.fixture
async def pair() -> AsyncIterator[list[ReplicaEngine]]:
    engines = [forked(), forked()]
    for engine in engines:
        await engine.start()
    yield engines
    for engine in engines:
        await engine.close()


def templates() -> list[int]:
    """Return the fork servers of this process; a run of many tests has other children, too."""
    alive = [child for child in children_of(os.getpid()) if is_alive(child)]
    return [pid for pid in alive if Path(f"/proc/{pid}/comm").read_text(encoding="utf-8").strip() == FORK_SERVER]


def fork_server_pid() -> int:
    (pid,) = templates()
    return pid


async def test_all_replicas_come_from_one_process_and_answer(pair: list[ReplicaEngine]) -> None:
    assert {engine.pid for engine in pair} <= set(replicas_of(os.getpid())), "and other tests may have left theirs"
    assert len({engine.pid for engine in pair}) == 2
    for engine in pair:
        assert (engine.model_id, engine.available) == ("fake", True)
        assert (await engine.generate(request())).stop_reason == "finished"


async def test_a_replica_says_nothing_before_anybody_listens() -> None:
    fork_server = ForkServer.join(replace(fake_source(), forkable=True))
    ours, theirs = socket.socketpair()
    with ours, theirs:
        process = await fork_server.fork(theirs)
        eventually(lambda: process.pid in replicas_of(os.getpid()), "no replica was forked")
        await asyncio.sleep(0.1)
        ours.setblocking(False)
        with pytest.raises(BlockingIOError):
            ours.recv(1)
    process.kill()
    await fork_server.leave()


async def test_one_that_is_killed_is_forked_anew_and_the_others_do_not_notice(pair: list[ReplicaEngine]) -> None:
    victim, other = pair
    parent, pids = fork_server_pid(), (victim.pid, other.pid)
    assert victim.pid is not None
    os.kill(victim.pid, signal.SIGKILL)
    await asyncio.wait_for(victim.failed(), 5)
    assert not victim.available
    await victim.start()
    assert (await victim.generate(request())).stop_reason == "finished"
    assert (fork_server_pid(), other.pid) == (parent, pids[1])
    assert victim.pid != pids[0]


@pytest.mark.parametrize("number", [signal.SIGKILL, signal.SIGSTOP])
async def test_they_live_on_without_the_template_and_are_replaced_from_a_new_one(
    pair: list[ReplicaEngine], number: signal.Signals, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("service.engines.worker.spawn._FORK_SECONDS", 0.5)
    lost, pids = fork_server_pid(), [engine.pid for engine in pair]
    os.kill(lost, number)
    victim, other = pair
    if number == signal.SIGSTOP:
        assert victim.pid is not None
        os.kill(victim.pid, signal.SIGKILL)
        assert await asyncio.wait_for(victim.failed(), 5) == "its process ended by SIGKILL"
        with pytest.raises(EngineUnavailableError, match="does not answer"):
            await victim.start()
        await victim.start()
    async with asyncio.timeout(20):
        while lost in templates() or not templates():
            await asyncio.sleep(0.01)
    assert other.pid == pids[1]
    for engine in pair:
        assert (await engine.generate(request())).stop_reason == "finished"


async def test_one_that_is_stopped_before_it_is_ready_is_given_up(
    pair: list[ReplicaEngine], monkeypatch: pytest.MonkeyPatch
) -> None:
    fork, stopped = ForkServer.fork, list[int]()

    async def fork_and_stop(server: ForkServer, stream: socket.socket) -> Process:
        process = await fork(server, stream)
        os.kill(process.pid, signal.SIGSTOP)
        stopped.append(process.pid)
        return process

    with monkeypatch.context() as patched:
        patched.setattr(ForkServer, "fork", fork_and_stop)
        patched.setattr("service.engines.worker.replica._FORKED_SECONDS", 0.2)
        with pytest.raises(EngineUnavailableError, match="the forked replica was not ready"):
            await asyncio.wait_for(pair[0].start(), 60)
    eventually(lambda: not is_alive(stopped[0]), "the stopped replica lives on")
    await pair[0].start()
    assert (await pair[0].generate(request())).stop_reason == "finished"


async def test_they_die_with_the_server() -> None:
    program = (
        "import asyncio, dataclasses, os, signal\n"
        "from service.engines.worker.replica import ReplicaEngine\n"
        "from tests.fake_models import fake_source\n"
        "async def main():\n"
        "    engine = ReplicaEngine(dataclasses.replace(fake_source(), forkable=True))\n"
        "    await engine.start()\n"
        "    print(engine.pid, flush=True)\n"
        "    os.kill(os.getpid(), signal.SIGKILL)\n"
        "asyncio.run(main())\n"
    )
    environment = {**os.environ, "PYTHONPATH": os.pathsep.join(filter(None, sys.path))}
    ended = await asyncio.to_thread(
        subprocess.run, [sys.executable, "-c", program], stdout=subprocess.PIPE, env=environment, check=False
    )
    assert ended.returncode == -signal.SIGKILL
    eventually(lambda: not is_alive(int(ended.stdout)), "a replica outlived its server")


async def test_they_start_although_a_thousand_descriptors_are_open(pair: list[ReplicaEngine]) -> None:
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    if hard != resource.RLIM_INFINITY and hard < 2048:
        pytest.skip(f"this machine lets a process open {hard} files; 2048 are needed")
    resource.setrlimit(resource.RLIMIT_NOFILE, (max(soft, 2048), hard))
    opened = [os.open(os.devnull, os.O_RDONLY) for _ in range(1100)]
    try:
        for _ in range(2):  # the second start waits for the end of a process with a high descriptor
            await pair[0].start()
            assert (await pair[0].generate(request())).stop_reason == "finished"
    finally:
        for descriptor in opened:
            os.close(descriptor)
        resource.setrlimit(resource.RLIMIT_NOFILE, (soft, hard))


async def test_files_that_have_changed_are_not_served_under_the_old_version(tmp_path: Path) -> None:
    path = tmp_path / "version"
    path.write_text("one", encoding="utf-8")
    source = replace(
        fake_source("answer_of_file", path=str(path)),
        forkable=True,
        version="one",
        check="tests.fake_models:version_of",
    )
    engine = ReplicaEngine(source)
    await engine.start()
    path.write_text("two", encoding="utf-8")
    await engine.start()  # forked from what was loaded before
    os.kill(fork_server_pid(), signal.SIGKILL)
    async with asyncio.timeout(20):
        while templates():
            await asyncio.sleep(0.01)
    with pytest.raises(EngineUnavailableError, match="changed since version one"):
        await engine.start()
    await engine.close()


async def test_the_template_ends_with_the_last_engine(pair: list[ReplicaEngine]) -> None:
    parent = fork_server_pid()
    await pair[0].close()
    assert is_alive(parent)
    assert (await pair[1].generate(request())).stop_reason == "finished"
    await pair[1].close()
    assert not is_alive(parent)


async def test_a_model_that_does_not_load_says_why() -> None:
    engine = ReplicaEngine(replace(fake_source("nowhere"), forkable=True))
    with pytest.raises(EngineUnavailableError, match="nowhere"):
        await engine.start()
    await engine.close()
    assert not templates()


async def test_another_model_has_a_template_of_its_own(pair: list[ReplicaEngine]) -> None:
    other = ReplicaEngine(replace(fake_source(), forkable=True, version="other"))
    await other.start()
    assert (await other.generate(request())).stop_reason == "finished"
    assert len(templates()) == 2
    await other.close()
    assert (await pair[0].generate(request())).stop_reason == "finished"


SLOTS = 3


@pytest.fixture(scope="module")
def config(tiny_model_dir: Path) -> EngineConfig:
    return EngineConfig(model_dir=tiny_model_dir, cache_dir=tiny_model_dir, dtype="float32", batch_size=SLOTS)


@pytest.fixture
async def engines(config: EngineConfig) -> AsyncIterator[list[ReplicaEngine]]:
    source = ModelSource("service.engines.torch_engine:load", {"config": config}, slots=SLOTS)
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
