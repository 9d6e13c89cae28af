"""A replica in a process of its own, and the messages to it."""

import asyncio
import json
import os
import signal
import socket
import subprocess
import sys
import time
from collections.abc import AsyncIterator
from dataclasses import replace
from itertools import pairwise
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

import service
from service.engines.protocol import EngineUnavailableError, GenerationRequest
from service.engines.worker.messages import (
    Cancel,
    Channel,
    Decoder,
    Failure,
    FrameError,
    Message,
    Ready,
    ReplicaConnection,
    encode,
)
from service.engines.worker.replica import ReplicaEngine
from tests.fake_models import VALID_FOR_EVERY_QUESTION, fake_source
from tests.processes import eventually, is_alive

pytestmark = pytest.mark.anyio


def request(prompt: str = "hello", seconds: float | None = None) -> GenerationRequest:
    deadline = None if seconds is None else time.monotonic() + seconds
    return GenerationRequest(prompt=prompt, grammar="", deadline=deadline)


@pytest.fixture
async def engine() -> AsyncIterator[ReplicaEngine]:
    engine = ReplicaEngine(fake_source(), grace_seconds=0.3)
    await engine.start()
    yield engine
    await engine.close()


async def test_the_model_runs_in_another_process_with_one_thread(engine: ReplicaEngine) -> None:
    assert engine.pid not in (None, os.getpid())
    with open(f"/proc/{engine.pid}/environ", "rb") as environment:
        assert b"OMP_NUM_THREADS=1" in environment.read().split(b"\0")


async def test_a_replica_gives_way_to_the_server(engine: ReplicaEngine) -> None:
    """Under overload the gateway must go on refusing while every replica computes."""
    assert engine.pid is not None
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
    ("loader", "arguments", "words"),
    [
        ("failing", {"reason": "no weights\nhere"}, "ValueError: no weights here"),
        ("die_at_load", {}, "process ended"),
        ("hang_at_load", {}, "not ready after 1 s"),
        ("no_such_function", {}, "no_such_function"),
    ],
)
async def test_a_start_that_fails_says_why_and_leaves_nothing(
    loader: str, arguments: dict[str, object], words: str
) -> None:
    engine = ReplicaEngine(fake_source(loader, **arguments), start_seconds=1.0 if loader == "hang_at_load" else 30.0)
    with pytest.raises(EngineUnavailableError, match=words):
        await engine.start()
    assert not engine.available
    assert engine.pid is None


def test_replicas_die_with_their_parent() -> None:
    program = (
        "import asyncio\n"
        "from service.engines.protocol import GenerationRequest\n"
        "from service.engines.worker.replica import ReplicaEngine\n"
        "from tests.fake_models import fake_source\n"
        "async def main():\n"
        "    engine = ReplicaEngine(fake_source())\n"
        "    await engine.start()\n"
        "    print(engine.pid, flush=True)\n"
        "    await engine.generate(GenerationRequest(prompt='hang', grammar=''))\n"
        "asyncio.run(main())\n"
    )
    environment = {**os.environ, "PYTHONPATH": os.pathsep.join(filter(None, sys.path))}
    parent = subprocess.Popen([sys.executable, "-c", program], stdout=subprocess.PIPE, text=True, env=environment)
    assert parent.stdout is not None
    with parent:
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


@given(cuts=st.lists(st.integers(0, 5000), max_size=20))
def test_messages_come_back_whole_whatever_the_pieces(cuts: list[int]) -> None:
    stream = b"".join(encode(message) for message in MESSAGES)
    decoder = Decoder()
    edges = sorted({0, len(stream), *(cut for cut in cuts if cut < len(stream))})
    got = [message for start, end in pairwise(edges) for message in decoder.feed(stream[start:end])]
    assert got == MESSAGES


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


def test_bytes_that_are_no_message_are_noticed() -> None:
    whole = encode(Failure("reason"))
    flipped = whole[:-3] + bytes([whole[-3] ^ 1]) + whole[-2:]
    for data in (flipped, b"\xff" * 64, b"HTTP/1.1 200 OK\r\n\r\n"):
        with pytest.raises(FrameError):
            Decoder().feed(data)
