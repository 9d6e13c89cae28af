"""Replicas forked from one loaded process: they live and die like any others, and the model is loaded once."""

import asyncio
import os
import signal
import socket
from collections.abc import AsyncIterator
from dataclasses import replace
from pathlib import Path

import pytest

from service.engines.protocol import EngineUnavailableError, GenerationRequest
from service.engines.worker.fork_server import ForkServer, can_fork
from service.engines.worker.replica import ReplicaEngine
from service.engines.worker.spawn import FORK_SERVER, replicas_of
from tests.fake_models import fake_source
from tests.processes import children_of, eventually, is_alive

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
    assert sorted(filter(None, (engine.pid for engine in pair))) == sorted(replicas_of(os.getpid()))
    assert len({engine.pid for engine in pair}) == 2
    for engine in pair:
        assert (engine.model_id, engine.available) == ("fake", True)
        assert (await engine.generate(request())).stop_reason == "finished"


async def test_a_replica_says_nothing_before_anybody_listens() -> None:
    fork_server = ForkServer.join(replace(fake_source(), forkable=True), 1)
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


async def test_a_hung_one_is_killed_after_a_cancellation(pair: list[ReplicaEngine]) -> None:
    engine = pair[0]
    pid = engine.pid
    work = asyncio.create_task(engine.generate(request("hang")))
    await asyncio.sleep(0.05)
    work.cancel()
    with pytest.raises(asyncio.CancelledError):
        await work
    await asyncio.wait_for(engine.failed(), 5)
    assert pid is not None
    eventually(lambda: not is_alive(pid), "the hung replica lives on")


async def test_they_die_with_the_template_and_start_with_a_new_one(pair: list[ReplicaEngine]) -> None:
    pids = [engine.pid for engine in pair if engine.pid is not None]
    os.kill(fork_server_pid(), signal.SIGKILL)
    for engine in pair:
        await asyncio.wait_for(engine.failed(), 5)
    eventually(lambda: not any(map(is_alive, pids)), "a replica outlived the process it came from")
    for engine in pair:
        await engine.start()
        assert (await engine.generate(request())).stop_reason == "finished"


async def test_the_template_ends_with_the_last_engine(pair: list[ReplicaEngine]) -> None:
    parent = fork_server_pid()
    await pair[0].close()
    assert is_alive(parent)
    assert (await pair[1].generate(request())).stop_reason == "finished"
    await pair[1].close()
    assert not is_alive(parent)


async def test_a_stopped_template_is_given_up(pair: list[ReplicaEngine], monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("service.engines.worker.fork_server._FORK_SECONDS", 0.2)
    os.kill(fork_server_pid(), signal.SIGSTOP)
    with pytest.raises(EngineUnavailableError, match="does not answer"):
        await pair[0].start()
    await pair[0].start()  # from a new one
    assert (await pair[0].generate(request())).stop_reason == "finished"


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
