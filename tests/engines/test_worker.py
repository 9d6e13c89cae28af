"""A replica in a process of its own, its messages, forks of one that has loaded the model, and slots of one."""

import asyncio
import json
import os
import resource
import signal
import socket
import subprocess
import sys
import time
from collections.abc import AsyncIterator
from dataclasses import replace
from pathlib import Path

import pytest

import service
from service.engines.protocol import EngineUnavailableError, GenerationRequest, RequestRefusedError
from service.engines.torch_engine import load
from service.engines.worker.messages import (
    Cancel,
    Channel,
    Failure,
    Message,
    ModelSource,
    Ready,
    ReplicaConnection,
    encode,
)
from service.engines.worker.replica import ReplicaEngine
from service.engines.worker.spawn import FORK_SERVER, ForkServer, Process, can_fork, replicas_of
from service.settings.engines import EngineConfig
from tests.fake_models import VALID_FOR_EVERY_QUESTION, fake_source
from tests.processes import children_of, eventually, is_alive
from tests.tiny_model import QUESTIONS, plan_request

pytestmark = pytest.mark.anyio
NO_FORKS = "replicas are forked on Linux only; elsewhere each loads its own model"
needs_fork = pytest.mark.skipif(not can_fork(), reason=NO_FORKS)


def request(prompt: str = "hello", seconds: float | None = None) -> GenerationRequest:
    deadline = None if seconds is None else time.monotonic() + seconds
    return GenerationRequest(prompt=prompt, grammar="", deadline=deadline)


@pytest.fixture
async def engine() -> AsyncIterator[ReplicaEngine]:
    engine = ReplicaEngine(fake_source(), grace_seconds=0.3)
    await engine.start()
    yield engine
    await engine.close()


async def test_the_model_runs_in_another_process_with_one_thread_that_gives_way_to_the_server(
    engine: ReplicaEngine,
) -> None:
    """Under overload the gateway must go on refusing while every replica computes."""
    assert engine.pid is not None
    assert engine.pid != os.getpid()
    assert b"OMP_NUM_THREADS=1" in Path(f"/proc/{engine.pid}/environ").read_bytes().split(b"\0")
    assert os.getpriority(os.PRIO_PROCESS, engine.pid) == min(os.getpriority(os.PRIO_PROCESS, 0) + 5, 19)


@pytest.mark.parametrize("forkable", [False, True])
async def test_another_python_runs_the_model_without_the_servers_packages(tmp_path: Path, forkable: bool) -> None:
    """In AWS's Neuron container the SDK has its own protobuf, and the gateway a newer one."""
    other = tmp_path / "python"
    other.write_text(f'#!/bin/sh\nprintf %s "$PYTHONPATH" > {tmp_path}/path\nexec {sys.executable} "$@"\n')
    other.chmod(0o755)
    engine = ReplicaEngine(replace(fake_source(), python=str(other), forkable=forkable))
    await engine.start()
    assert (await engine.generate(request())).text == VALID_FOR_EVERY_QUESTION
    await engine.close()
    assert (tmp_path / "path").read_text(encoding="utf-8") == str(Path(service.__file__).parents[1])


async def test_what_a_replica_logs_is_json_as_the_servers_lines_are(capfd: pytest.CaptureFixture[str]) -> None:
    engine = ReplicaEngine(fake_source())
    await engine.start()
    await engine.generate(request("log slow"))
    await engine.close()
    (line,) = [json.loads(line) for line in capfd.readouterr().err.splitlines()]
    assert (line["level"], line["event"], line["logger"]) == ("warning", "slow", "fake")


async def test_a_replica_whose_forward_passes_are_slow_is_waited_for(engine: ReplicaEngine) -> None:
    await engine.generate(request("hang 0.8"))  # which looks up as late as one very slow forward pass
    pid = engine.pid
    work = asyncio.create_task(engine.generate(request("hang 0.6")))
    await asyncio.sleep(0.05)
    work.cancel()
    with pytest.raises(asyncio.CancelledError):
        await work
    assert engine.available
    assert engine.pid == pid


async def test_bytes_that_are_no_answer_end_the_replica() -> None:
    engine = ReplicaEngine(fake_source("garbling"))
    await engine.start()
    with pytest.raises(EngineUnavailableError):
        await engine.generate(request())
    await asyncio.wait_for(engine.failed(), 5)
    assert not engine.available
    await engine.close()


async def test_an_answer_that_comes_right_after_a_cancellation_is_not_taken_for_the_next() -> None:
    link = ReplicaConnection()
    answer = link.expect()
    answer.cancel()
    assert link.owes
    link.data_received(encode(Failure("late")))
    assert not link.owes
    following = link.expect()
    assert link.owes
    assert not following.done()
    link.data_received(encode(Failure("in time")))
    assert await following == Failure("in time")


async def test_a_replica_that_starts_again_takes_no_request_before_it_is_ready(engine: ReplicaEngine) -> None:
    with pytest.raises(EngineUnavailableError):
        await engine.generate(request("die"))
    starting = asyncio.create_task(engine.start())
    while not starting.done():
        assert not engine.available
        with pytest.raises(EngineUnavailableError):
            await engine.generate(request())
        await asyncio.sleep(0.001)
    assert engine.available


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT])
async def test_signals_to_the_group_do_not_reach_a_replica(engine: ReplicaEngine, number: signal.Signals) -> None:
    assert engine.pid is not None
    work = asyncio.create_task(engine.generate(request("sleep 0.1")))
    await asyncio.sleep(0.02)
    os.kill(engine.pid, number)
    assert (await work).stop_reason == "finished"


async def test_close_ends_the_process(engine: ReplicaEngine) -> None:
    pid = engine.pid
    assert pid is not None
    await engine.close()
    assert not is_alive(pid)
    assert not engine.available


@pytest.mark.parametrize(
    ("loader", "arguments", "forkable", "words"),
    [
        ("failing", {"reason": "no weights\nhere"}, False, "ValueError: no weights here"),
        ("die_at_load", {}, False, "process ended"),
        ("hang_at_load", {}, False, "not ready after 1 s"),
        ("no_such_function", {}, False, "no_such_function"),
        pytest.param("no_such_function", {}, True, "no_such_function", marks=needs_fork),
    ],
)
async def test_a_start_that_fails_says_why_and_leaves_nothing(
    loader: str, arguments: dict[str, object], forkable: bool, words: str
) -> None:
    source = replace(fake_source(loader, **arguments), forkable=forkable)
    engine = ReplicaEngine(source, start_seconds=1.0 if loader == "hang_at_load" else 30.0)
    with pytest.raises(EngineUnavailableError, match=words):
        await engine.start()
    assert not engine.available
    assert engine.pid is None
    await engine.close()
    assert not templates()


PROGRAM = """
import asyncio
from service.engines.protocol import GenerationRequest
from service.engines.worker.replica import ReplicaEngine
from tests.fake_models import fake_source

async def main():
    engine = ReplicaEngine(fake_source())
    await engine.start()
    print(engine.pid, flush=True)
    await engine.generate(GenerationRequest(prompt="hang", grammar=""))

asyncio.run(main())
"""


def test_a_replica_that_was_not_forked_dies_with_its_parent() -> None:
    environment = {**os.environ, "PYTHONPATH": os.pathsep.join(filter(None, sys.path))}
    command = [sys.executable, "-c", PROGRAM]
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True, env=environment) as parent:
        assert parent.stdout is not None
        replica = int(parent.stdout.readline())
        assert is_alive(replica)
        parent.kill()
    eventually(lambda: not is_alive(replica), "the replica outlived its parent")


MESSAGES: list[Message] = [
    Ready("a model"),
    Cancel(),
    Failure("no", refused=True),
    GenerationRequest(prompt=" 👟" * 1000, grammar="start: x", deadline=1.5),
]


def test_channel_reads_in_order_and_notices_the_end() -> None:
    ours, theirs = socket.socketpair()
    channel = Channel(theirs)
    with theirs:
        ours.sendall(encode(MESSAGES[0]) + encode(MESSAGES[1]))
        assert channel.receive() == MESSAGES[0]
        assert channel.interrupted()
        assert channel.receive() == MESSAGES[1]
        assert not channel.interrupted()
        ours.close()
        assert channel.interrupted()
        assert channel.receive() is None


def forked() -> ReplicaEngine:
    return ReplicaEngine(replace(fake_source(), forkable=True), grace_seconds=0.3)


@pytest.fixture
async def pair() -> AsyncIterator[list[ReplicaEngine]]:
    if not can_fork():
        pytest.skip(NO_FORKS)
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


@needs_fork
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


@needs_fork
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
