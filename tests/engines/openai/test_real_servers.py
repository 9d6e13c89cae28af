"""The engine before real servers of completions, which run the export of our model: our float32 engine's tokens.

`transformers serve` takes text prompts and no grammars, so its greedy text is followed as it streams. vLLM, which
`peakplan tools install vllm` brings, takes tokens and grammars, and drafts; `peakplan bench vllm` measures it.
"""

import asyncio
import contextlib
import os
import socket
import subprocess
import sys
import time
from collections.abc import AsyncIterator, Iterator
from pathlib import Path
from urllib.request import urlopen

import pytest

from infra.fleet.parts import REPOSITORY_ROOT
from rehearsal.bench.neuron_day.day import free_port
from rehearsal.bench.vllm import PYTHON, drafts, plans_of_ours, plans_over, serving
from service.engines.openai.engine import OpenAiEngine
from service.engines.protocol import EngineUnavailableError, GenerationRequest, RequestRefusedError
from service.engines.torch_engine import TorchModel, load
from service.gateway.pool import ReplicaPool
from service.planner.caching import CachingPlanner, PlanCache
from service.planner.grammar import plan_grammar
from service.planner.planner import Planner
from service.planner.prompt import PlanTask, render_prompt
from service.planner.question import Question
from service.planner.vocabulary import shipped_vocabulary
from service.settings import Settings
from service.settings.engines import EngineConfig, OpenAiSettings
from service.weights.exporting import export_model
from service.weights.head_layouts import LAYOUTS

pytestmark = [pytest.mark.slow, pytest.mark.anyio]
QUESTIONS = [
    "nike running shoes under $100",
    "where is my package",
    "waterproof hiking boots size 10",
    "white duvet cover queen",
    "red leather handbag for women",
    "4k tv between 300 and 500",
]
PATIENCE = 600.0  # seconds that a busy machine may take for anything


class Server:
    """`transformers serve` in a process of its own."""

    def __init__(self, folder: Path, log: Path) -> None:
        self.folder = folder
        self._log = log
        with socket.create_server(("127.0.0.1", 0)) as probe:
            self.port = probe.getsockname()[1]
        self._process: subprocess.Popen[bytes] | None = None

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self.port}/v1"

    def start(self) -> None:
        """Return once it is listening; it loads its model with the first request."""
        program = Path(sys.executable).with_name("transformers")
        command = [program, "serve", self.folder, "--device", "cpu", "--dtype", "float32", "--port", str(self.port)]
        offline = {"HF_HUB_OFFLINE": "1", "OMP_NUM_THREADS": "1", "TOKENIZERS_PARALLELISM": "false"}
        with self._log.open("ab") as log:
            self._process = subprocess.Popen(
                [*map(str, command), "--host", "127.0.0.1"], stdout=log, stderr=log, env=os.environ | offline
            )
        end = time.monotonic() + PATIENCE
        while time.monotonic() < end:
            with contextlib.suppress(OSError), urlopen(f"http://127.0.0.1:{self.port}/health", timeout=5):
                return
            assert self._process.poll() is None, self._log.read_text(encoding="utf-8")
            time.sleep(0.2)
        raise AssertionError(f"transformers serve did not listen: {self._log.read_text(encoding='utf-8')}")

    def kill(self) -> None:
        if self._process is not None:
            self._process.kill()
            self._process.wait()


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Server]:
    pytest.importorskip("openai", reason="transformers serve needs openai: pip install -e .[test]")
    folder = tmp_path_factory.mktemp("real")
    settings = Settings()
    export_model(settings.model_dir, settings.cache_dir, LAYOUTS["vllm"], folder / "export")
    real = Server(folder / "export", folder / "log")
    real.start()
    yield real
    real.kill()


@pytest.fixture(scope="module")
def ours(server: Server) -> TorchModel:
    return load(
        EngineConfig(model_dir=server.folder, cache_dir=server.folder, dtype="float32", strategy="autoregressive")
    )


def engine_for(server: Server) -> OpenAiEngine:
    config = EngineConfig(
        model_dir=server.folder,
        cache_dir=server.folder,
        engine="openai",
        strategy="autoregressive",
        openai=OpenAiSettings(url=server.url, model=str(server.folder)),
    )
    return OpenAiEngine(config, 0, start_seconds=PATIENCE)


@pytest.fixture
async def engine(server: Server) -> AsyncIterator[OpenAiEngine]:
    made = engine_for(server)
    await made.start()
    yield made
    await made.close()


def request(words: str, **changes: float) -> GenerationRequest:
    question = Question.parse(words)
    asked = {"deadline": time.monotonic() + PATIENCE} | changes
    return GenerationRequest(
        prompt=render_prompt(question),
        grammar=plan_grammar(question, shipped_vocabulary()),
        strategy="autoregressive",
        **asked,
    )


async def test_it_says_our_tokens_where_it_keeps_to_the_grammar(engine: OpenAiEngine, ours: TorchModel) -> None:
    refused, found = 0, engine.capabilities
    assert found is not None
    assert (found.prompt, found.grammar) == ("text", None)
    for words in QUESTIONS:
        try:
            theirs = await engine.generate(request(words))
        except RequestRefusedError:  # it knows no grammar; these are planned by rule
            refused += 1
            continue
        assert theirs.stop_reason == "finished"
        assert theirs.tokens == ours.generate(request(words)).tokens, words
    assert refused <= len(QUESTIONS) // 3


async def test_a_deadline_and_a_cancelled_request_leave_it_free(engine: OpenAiEngine) -> None:
    cut = await engine.generate(request(QUESTIONS[0], deadline=time.monotonic() + 0.05))
    assert cut.stop_reason == "cancelled"
    work = asyncio.create_task(engine.generate(request(QUESTIONS[0])))
    await asyncio.sleep(0.1)
    work.cancel()
    with pytest.raises(asyncio.CancelledError):
        await work
    assert (await engine.generate(request(QUESTIONS[1]))).stop_reason == "finished"


async def test_killed_it_is_missed_and_rules_plan_and_it_is_taken_up_again(server: Server) -> None:
    pool = ReplicaPool([engine_for(server)])
    await pool.start()
    planner = CachingPlanner(Planner(pool, shipped_vocabulary(), "autoregressive"), lambda: "", PlanCache(0, 1.0))
    question = Question.parse(QUESTIONS[1])
    assert (await planner.plan(PlanTask(question, shipped_vocabulary(), time.monotonic() + PATIENCE))).source == "model"

    server.kill()
    assert (
        await planner.plan(PlanTask(question, shipped_vocabulary(), time.monotonic() + PATIENCE))
    ).source == "fallback"
    with pytest.raises(EngineUnavailableError):
        await engine_for(server).start()

    await asyncio.to_thread(server.start)
    async with asyncio.timeout(PATIENCE):
        while not pool.usable_count:
            await asyncio.sleep(0.1)
    assert (await planner.plan(PlanTask(question, shipped_vocabulary(), time.monotonic() + PATIENCE))).source == "model"
    await pool.close()


VLLM = REPOSITORY_ROOT / PYTHON


@pytest.mark.timeout(3600)
@pytest.mark.skipif(not VLLM.with_name("vllm").is_file(), reason="vLLM is not here: peakplan tools install vllm")
@pytest.mark.parametrize("way", drafts(Path()))
def test_plans_have_our_tokens_whatever_it_drafts_with(way: str, tmp_path: Path) -> None:
    settings = Settings()
    export = export_model(settings.model_dir, settings.cache_dir, LAYOUTS["vllm"], tmp_path / "export").folder
    task = [PlanTask(Question.parse(words), shipped_vocabulary()) for words in QUESTIONS[:3]]
    ours = plans_of_ours(export, task, dtype="float32", strategy="autoregressive")
    speculation = drafts(export)[way]

    with serving(export, VLLM, tmp_path / "log", port=free_port(), length=512, speculation=speculation) as url:
        found = asyncio.run(plans_over(url, export, task, has_draft=speculation is not None))

    assert (found["prompt_as"], found["grammar_as"]) == ("tokens", "structured_outputs")
    assert found["tokens"] == ours["tokens"]
