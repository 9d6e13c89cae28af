"""Replicas in a Triton server, which runs here, and the watch over their processes."""

import asyncio
import contextlib
import os
import shutil
import signal
import subprocess
import sys
import time
from collections.abc import AsyncIterator, Iterator
from pathlib import Path

import pytest

from rehearsal.bench.questions import dev_questions, has_dev_data, own_questions
from service.engines.protocol import EngineUnavailableError, GenerationRequest, GenerationResult, RequestRefusedError
from service.engines.torch_engine import load
from service.engines.triton.engine import StubWatch, TritonEngine
from service.engines.triton.wire import ProcessName
from service.planner.grammar import plan_grammar
from service.planner.prompt import render_prompt
from service.planner.question import Question
from service.planner.vocabulary import FILE_NAME, shipped_vocabulary
from service.settings import Settings
from service.settings.choices import SHIPPED_MODEL, Strategy
from service.settings.engines import EngineConfig
from service.weights.importing import import_model
from tests.bases import ARCHITECTURES, QUERY, hidden_size, transformers_greedy, write_base, write_heads
from tests.redis_server import free_port
from tests.triton_server import TritonServer, needs_triton, triton_server

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


@pytest.mark.anyio
@pytest.mark.slow
@needs_triton
async def test_each_chip_has_a_process_with_its_own_cores(server: TritonServer, engine: TritonEngine) -> None:
    async with started(server, 1) as other:
        assert other.process != engine.process
        asked = request("variable NEURON_RT_VISIBLE_CORES")
        assert [(await one.generate(asked)).text for one in (engine, other)] == ["0-1", "2-3"]


@pytest.mark.anyio
@pytest.mark.slow
@needs_triton
async def test_a_gateway_that_comes_back_finds_its_replicas(server: TritonServer, engine: TritonEngine) -> None:
    async with started(server) as second:
        assert second.process == engine.process


@pytest.mark.anyio
@pytest.mark.slow
@needs_triton
async def test_a_model_that_triton_does_not_have_is_told(server: TritonServer) -> None:
    with pytest.raises(EngineUnavailableError, match="peakplan_7"):
        async with started(server, 7):
            pass


@pytest.mark.anyio
@pytest.mark.slow
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


@pytest.mark.anyio
@pytest.mark.slow
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


@pytest.mark.anyio
@pytest.mark.slow
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


@pytest.mark.anyio
@pytest.mark.slow
async def test_no_server_is_told_after_the_start_seconds() -> None:
    engine = TritonEngine(f"127.0.0.1:{free_port()}", 0, start_seconds=0.3)
    with pytest.raises(EngineUnavailableError, match="peakplan_0 in Triton"):
        await engine.start()
    assert not engine.available
    with pytest.raises(EngineUnavailableError, match="not started"):
        await engine.generate(request())
    await engine.close()


QUESTIONS = 200
STRATEGIES: tuple[Strategy, ...] = ("medusa", "autoregressive")


@contextlib.contextmanager
def serving(folder: Path, settings: Settings) -> Iterator[TritonServer]:
    config = settings.engine_config.as_json()
    with triton_server(folder, "service.engines.factory:source_from_json", 1, config=config) as server:
        yield server


@pytest.fixture(scope="module")
def tiny(tmp_path_factory: pytest.TempPathFactory, tiny_model_dir: Path) -> Iterator[TritonServer]:
    settings = Settings(replicas=1, model_dir=tiny_model_dir, cache_dir=tiny_model_dir, dtype="float32")
    with serving(tmp_path_factory.mktemp("triton"), settings) as server:
        yield server


def ask(server: TritonServer, requests: list[GenerationRequest], strategy: Strategy) -> list[GenerationResult]:
    async def answers() -> list[GenerationResult]:
        engine = TritonEngine(server.url, 0, strategy=strategy)
        await engine.start()
        try:
            return [await engine.generate(request) for request in requests]
        finally:
            await engine.close()

    return asyncio.run(answers())


def about(question: Question, strategy: Strategy = "medusa", *, trace: bool = False) -> GenerationRequest:
    return GenerationRequest(
        prompt=render_prompt(question),
        grammar=plan_grammar(question, shipped_vocabulary()),
        strategy=strategy,
        trace=trace,
    )


@pytest.mark.slow
@needs_triton
@pytest.mark.parametrize("strategy", STRATEGIES)
def test_a_tiny_model_gives_what_it_gives_in_process(
    tiny: TritonServer, tiny_model_dir: Path, strategy: Strategy
) -> None:
    model = load(EngineConfig(model_dir=tiny_model_dir, cache_dir=tiny_model_dir, dtype="float32"))
    asked = [about(question, strategy, trace=True) for question in own_questions(10)]
    for ours, theirs in zip(map(model.generate, asked), ask(tiny, asked, strategy), strict=True):
        assert (ours.tokens, ours.text, ours.stop_reason) == (theirs.tokens, theirs.text, theirs.stop_reason)
        assert (ours.forwards, ours.accepted_per_step) == (theirs.forwards, theirs.accepted_per_step)
        assert [step.nodes for step in ours.steps] == [step.nodes for step in theirs.steps]


@pytest.mark.slow
@needs_triton
@pytest.mark.parametrize("architecture", ARCHITECTURES)
def test_an_import_gives_transformers_tokens(architecture: str, tmp_path: Path) -> None:
    base = write_base(tmp_path / "hub", architecture)
    beside = {FILE_NAME: SHIPPED_MODEL / FILE_NAME}
    made = import_model(base, tmp_path / "made", write_heads(tmp_path / "heads", hidden_size(base)), beside=beside)
    expected = transformers_greedy(base)
    shutil.rmtree(base)

    settings = Settings(replicas=1, model_dir=made.folder, cache_dir=tmp_path, dtype="float32")
    with serving(tmp_path, settings) as server:
        (result,) = ask(server, [about(Question.parse(QUERY))], "medusa")

    assert result.tokens == expected
    assert result.stop_reason == "finished"


@pytest.mark.slow
@needs_triton
@pytest.mark.parametrize(
    ("prompt", "grammar", "words"),
    [("red shoes " * 400, "start: /x/", "tokens"), ("red", "start: no such rule", "grammar")],
)
def test_what_no_replica_would_answer_is_refused(tiny: TritonServer, prompt: str, grammar: str, words: str) -> None:
    with pytest.raises(RequestRefusedError, match=words):
        ask(tiny, [GenerationRequest(prompt=prompt, grammar=grammar)], "medusa")


@pytest.mark.slow
@needs_triton
def test_the_shipped_model_gives_the_same_tokens(tmp_path: Path) -> None:
    settings = Settings(replicas=1)
    model = load(settings.engine_config)
    questions = dev_questions(QUESTIONS) if has_dev_data() else own_questions(QUESTIONS)
    asked = [about(question) for question in questions]
    ours = [model.generate(one).tokens for one in asked]
    with serving(tmp_path, settings) as server:
        assert [result.tokens for result in ask(server, asked, "medusa")] == ours


@pytest.fixture
def process() -> Iterator[subprocess.Popen[bytes]]:
    with subprocess.Popen([sys.executable, "-c", "import time; time.sleep(60)"]) as process:
        yield process
        process.kill()


@pytest.mark.anyio
async def test_the_end_of_a_process_is_noticed(process: subprocess.Popen[bytes]) -> None:
    ends: list[str] = []
    watch = StubWatch(ProcessName.of(process.pid), lambda: ends.append("ended"))
    assert watch.sees
    assert not await watch.wait(0.01)
    process.kill()  # and nobody collects it, as Triton does not
    assert await watch.wait(20)
    assert (ends, watch.sees) == (["ended"], False)


@pytest.mark.anyio
async def test_a_watched_process_can_be_killed_and_a_closed_watch_says_nothing(
    process: subprocess.Popen[bytes],
) -> None:
    ends: list[str] = []
    closed, watch = (StubWatch(ProcessName.of(process.pid), lambda: ends.append("ended")) for _ in range(2))
    closed.close()
    watch.kill()
    assert await watch.wait(20)
    watch.kill()  # once more does no harm
    assert not await closed.wait(0.05)
    assert ends == ["ended"]


@pytest.mark.anyio
async def test_another_process_with_the_same_number_is_not_watched(process: subprocess.Popen[bytes]) -> None:
    name = ProcessName.of(process.pid)
    assert name is not None
    for unknown in (ProcessName(name.pid, name.started - 1), ProcessName(2**22 + 1, 0), None):
        watch = StubWatch(unknown, lambda: None)
        assert not watch.sees
        watch.kill()
    assert process.poll() is None
