"""What every engine keeps to, whatever runs the model: answers, refusals, deadlines, death and return."""

import asyncio
import os
import signal
import time
from collections.abc import AsyncIterator, Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from service.engines.protocol import EngineUnavailableError, GenerationRequest, RequestRefusedError
from service.engines.text_model import TextModel
from service.engines.torch_engine import load
from service.engines.triton.engine import TritonEngine
from service.engines.worker.replica import ReplicaEngine
from service.engines.worker.spawn import can_fork
from service.settings.engines import EngineConfig
from tests.engines.neuron.fake_compiled import loaded
from tests.fake_models import VALID_FOR_EVERY_QUESTION, fake_source
from tests.processes import PATIENCE
from tests.triton_server import TritonServer, needs_triton, triton_server

pytestmark = pytest.mark.anyio

FORKED = pytest.param("forked", marks=pytest.mark.skipif(not can_fork(), reason="replicas are forked on Linux only"))
TRITON = pytest.param("triton", marks=[pytest.mark.slow, needs_triton])
Hosted = ReplicaEngine | TritonEngine


@pytest.fixture(scope="module")
def triton(tmp_path_factory: pytest.TempPathFactory) -> Iterator[TritonServer]:
    with triton_server(tmp_path_factory.mktemp("triton"), "tests.fake_models:fake_source", name="prompt_answer") as one:
        yield one


@pytest.fixture(params=["process", FORKED, TRITON])
async def engine(request: pytest.FixtureRequest) -> AsyncIterator[Hosted]:
    """Return a replica that runs in a process of its own, which a model without weights obeys."""
    made: Hosted
    if request.param == "triton":
        made = TritonEngine(request.getfixturevalue("triton").url, 0, start_seconds=PATIENCE, grace_seconds=1.0)
    else:
        made = ReplicaEngine(replace(fake_source(), forkable=request.param == "forked"), grace_seconds=0.3)
    await made.start()
    yield made
    await made.close()


def request(prompt: str = "hello", seconds: float | None = None) -> GenerationRequest:
    deadline = None if seconds is None else time.monotonic() + seconds
    return GenerationRequest(prompt=prompt, grammar="", deadline=deadline)


def pid_of(engine: Hosted) -> int:
    if isinstance(engine, TritonEngine):
        assert engine.process is not None
        return engine.process.pid
    assert engine.pid is not None
    return engine.pid


async def leave(engine: Hosted, prompt: str) -> None:
    """Ask, and be gone a moment later."""
    work = asyncio.create_task(engine.generate(request(prompt)))
    await asyncio.sleep(0.1)
    work.cancel()
    with pytest.raises(asyncio.CancelledError):
        await work


async def test_requests_are_answered_refused_and_failed_one_after_another(engine: Hosted) -> None:
    assert (engine.model_id, engine.available) == ("fake", True)
    assert (await engine.generate(request())).text == VALID_FOR_EVERY_QUESTION
    with pytest.raises(RequestRefusedError, match="no"):
        await engine.generate(request("refuse"))
    with pytest.raises(EngineUnavailableError, match="ValueError") as caught:
        await engine.generate(request("fail"))
    assert "secret" not in str(caught.value)
    assert engine.available, "the request was at fault"
    assert (await engine.generate(request("x" * 300_000))).text == VALID_FOR_EVERY_QUESTION


async def test_a_deadline_and_a_caller_that_leaves_stop_a_generation_and_free_the_replica(engine: Hosted) -> None:
    pid = pid_of(engine)
    assert (await engine.generate(request("sleep 300", seconds=0.05))).stop_reason == "cancelled"
    assert (await engine.generate(request("sleep 300", seconds=-1))).stop_reason == "cancelled"
    await leave(engine, "sleep 300")
    assert (await engine.generate(request())).stop_reason == "finished"
    assert (engine.available, pid_of(engine)) == (True, pid)


@pytest.mark.parametrize("is_idle", [False, True])
async def test_death_fails_the_request_and_a_start_mends_it(engine: Hosted, is_idle: bool) -> None:
    pid = pid_of(engine)
    if is_idle:
        os.kill(pid, signal.SIGKILL)
    else:
        with pytest.raises(EngineUnavailableError):
            await engine.generate(request("die"))
    await asyncio.wait_for(engine.failed(), PATIENCE)
    assert not engine.available
    with pytest.raises(EngineUnavailableError):
        await engine.generate(request())
    await engine.start()
    assert pid_of(engine) != pid
    assert (await engine.generate(request())).stop_reason == "finished"


@pytest.mark.parametrize("is_stopped", [False, True])
async def test_a_replica_that_does_not_come_free_is_killed(engine: Hosted, is_stopped: bool) -> None:
    pid = pid_of(engine)
    if is_stopped:
        os.kill(pid, signal.SIGSTOP)
    await leave(engine, "hang")
    async with asyncio.timeout(PATIENCE):
        while engine.available:
            await asyncio.sleep(0.01)
    await engine.start()
    assert pid_of(engine) != pid
    assert (await engine.generate(request())).stop_reason == "finished"


@pytest.fixture(scope="module", params=["torch", "neuron"])
def model(request: pytest.FixtureRequest, tiny_model_dir: Path, artifacts: Path) -> TextModel:
    if request.param == "neuron":
        return loaded(tiny_model_dir, artifacts)
    return load(EngineConfig(model_dir=tiny_model_dir, cache_dir=tiny_model_dir, dtype="float32"))


WORDS = GenerationRequest(prompt=" red shoes", grammar="start: /[a-z ]{8,24}/")


def test_every_strategy_has_one_answer_and_a_trace_shows_all_of_it(model: TextModel) -> None:
    answers = [
        model.generate(replace(WORDS, strategy=strategy, trace=True)) for strategy in ("autoregressive", "medusa")
    ]
    assert answers[0].tokens == answers[1].tokens
    for answer in answers:
        assert (answer.stop_reason, len(answer.steps)) == ("finished", answer.forwards)
        assert "".join(text for step in answer.steps for text in step.emitted) == answer.text
        for step in answer.steps:
            assert all(-1 <= node.parent < index for index, node in enumerate(step.nodes))
            assert 0 < step.draft_milliseconds + step.forward_milliseconds <= step.milliseconds + 0.01
    assert model.generate(WORDS).steps == []


def test_limits_a_deadline_and_a_cancellation_end_a_generation(model: TextModel) -> None:
    ended = [
        model.generate(replace(WORDS, max_tokens=2)),
        model.generate(replace(WORDS, deadline=0.0)),
        model.generate(WORDS, lambda: True),
        model.generate(replace(WORDS, max_tokens=10_000)),
    ]
    assert [each.stop_reason for each in ended] == ["length", "cancelled", "cancelled", "finished"]
    assert [ended[0].plan_tokens, ended[1].forwards, ended[2].forwards] == [2, 0, 0]


@pytest.mark.parametrize(
    ("changes", "words"),
    [
        ({"prompt": " red" * 500}, "its prompt has 501 tokens, and (40|384) are the most"),
        ({"grammar": "start: secret"}, "its grammar does not compile"),
        ({"strategy": "draft"}, "draft"),
    ],
)
def test_what_no_replica_would_take_is_refused_without_quoting_it(
    model: TextModel, changes: dict[str, Any], words: str
) -> None:
    with pytest.raises(RequestRefusedError, match=words) as caught:
        model.generate(replace(WORDS, **changes))
    assert "secret" not in str(caught.value)
    assert model.generate(WORDS).stop_reason == "finished"


def test_a_prediction_is_drafted_with_the_prompt_and_changes_no_token(model: TextModel) -> None:
    asked = replace(WORDS, trace=True)
    plain = model.generate(asked)
    right = tuple((word, 1.0) for word in plain.text.split())

    foretold = model.generate(replace(asked, prediction=right))
    wrong = model.generate(replace(asked, prediction=(("<|eos|>", 0.5), *right[1:], ("find", 0.9))))

    assert plain.tokens == foretold.tokens == wrong.tokens
    assert foretold.forwards < plain.forwards, "though a random model spells words by other tokens than the tokenizer"
    assert f" {right[0][0]}".startswith(foretold.steps[0].nodes[0].token_text)
