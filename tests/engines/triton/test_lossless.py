"""Our models in a real Triton server: the same tokens as in process, and the same refusals."""

import asyncio
import contextlib
import shutil
from collections.abc import Iterator
from pathlib import Path

import pytest

from rehearsal.bench.questions import dev_questions, has_dev_data, own_questions
from service.engines.protocol import GenerationRequest, GenerationResult, RequestRefusedError
from service.engines.torch.engine import load
from service.engines.triton.engine import TritonEngine
from service.planner.grammar import plan_grammar
from service.planner.prompt import render_prompt
from service.planner.question import Question
from service.planner.vocabulary import FILE_NAME, shipped_vocabulary
from service.settings import Settings
from service.settings.choices import SHIPPED_MODEL, Strategy
from service.settings.engines import EngineConfig
from service.weights.importing import import_model
from tests.bases import ARCHITECTURES, QUERY, hidden_size, transformers_greedy, write_base, write_heads
from tests.triton_server import TritonServer, needs_triton, triton_server

pytestmark = [pytest.mark.slow, needs_triton]
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


def request(question: Question, strategy: Strategy = "medusa", *, trace: bool = False) -> GenerationRequest:
    return GenerationRequest(
        prompt=render_prompt(question),
        grammar=plan_grammar(question, shipped_vocabulary()),
        strategy=strategy,
        trace=trace,
    )


@pytest.mark.parametrize("strategy", STRATEGIES)
def test_a_tiny_model_gives_what_it_gives_in_process(
    tiny: TritonServer, tiny_model_dir: Path, strategy: Strategy
) -> None:
    model = load(EngineConfig(model_dir=tiny_model_dir, cache_dir=tiny_model_dir, dtype="float32"))
    asked = [request(question, strategy, trace=True) for question in own_questions(10)]
    for ours, theirs in zip(map(model.generate, asked), ask(tiny, asked, strategy), strict=True):
        assert (ours.tokens, ours.text, ours.stop_reason) == (theirs.tokens, theirs.text, theirs.stop_reason)
        assert (ours.forwards, ours.accepted_per_step) == (theirs.forwards, theirs.accepted_per_step)
        assert [step.nodes for step in ours.steps] == [step.nodes for step in theirs.steps]


@pytest.mark.parametrize("architecture", ARCHITECTURES)
def test_an_import_gives_transformers_tokens(architecture: str, tmp_path: Path) -> None:
    base = write_base(tmp_path / "hub", architecture)
    beside = {FILE_NAME: SHIPPED_MODEL / FILE_NAME}
    made = import_model(base, tmp_path / "made", write_heads(tmp_path / "heads", hidden_size(base)), beside=beside)
    expected = transformers_greedy(base)
    shutil.rmtree(base)

    settings = Settings(replicas=1, model_dir=made.folder, cache_dir=tmp_path, dtype="float32")
    with serving(tmp_path, settings) as server:
        (result,) = ask(server, [request(Question.parse(QUERY))], "medusa")

    assert result.tokens == expected
    assert result.stop_reason == "finished"


@pytest.mark.parametrize(
    ("prompt", "grammar", "words"),
    [("red shoes " * 400, "start: /x/", "tokens"), ("red", "start: no such rule", "grammar")],
)
def test_what_no_replica_would_answer_is_refused(tiny: TritonServer, prompt: str, grammar: str, words: str) -> None:
    with pytest.raises(RequestRefusedError, match=words):
        ask(tiny, [GenerationRequest(prompt=prompt, grammar=grammar)], "medusa")


def test_the_shipped_model_gives_the_same_tokens(tmp_path: Path) -> None:
    settings = Settings(replicas=1)
    model = load(settings.engine_config)
    questions = dev_questions(QUESTIONS) if has_dev_data() else own_questions(QUESTIONS)
    asked = [request(question) for question in questions]
    ours = [model.generate(one).tokens for one in asked]
    with serving(tmp_path, settings) as server:
        assert [result.tokens for result in ask(server, asked, "medusa")] == ours
