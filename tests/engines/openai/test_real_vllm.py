"""The engine before a real vLLM on a processor: its grammars, its drafts, and the tokens of our own float32 engine.

`peakplan tools install vllm` installs it; elsewhere this is skipped. `peakplan bench vllm` measures it.
"""

import asyncio
from pathlib import Path

import pytest

from infra.fleet.parts import REPOSITORY_ROOT
from rehearsal.bench.neuron_day.day import free_port
from rehearsal.bench.vllm import PYTHON, drafts, plans_of_ours, plans_over, serving
from service.planner.prompt import PlanTask
from service.planner.question import Question
from service.planner.vocabulary import shipped_vocabulary
from service.settings import Settings
from service.weights.exporting import export_model
from service.weights.head_layouts import LAYOUTS

VLLM = REPOSITORY_ROOT / PYTHON
pytestmark = [
    pytest.mark.slow,
    pytest.mark.timeout(3600),
    pytest.mark.skipif(not VLLM.with_name("vllm").is_file(), reason="vLLM is not here: peakplan tools install vllm"),
]
QUESTIONS = ["nike running shoes under $100", "where is my package", "4k tv between 300 and 500"]


@pytest.mark.parametrize("way", drafts(Path()))
def test_plans_have_our_tokens_whatever_it_drafts_with(way: str, tmp_path: Path) -> None:
    settings = Settings()
    export = export_model(settings.model_dir, settings.cache_dir, LAYOUTS["vllm"], tmp_path / "export").folder
    task = [PlanTask(Question.parse(words), shipped_vocabulary()) for words in QUESTIONS]
    ours = plans_of_ours(export, task, dtype="float32", strategy="autoregressive")
    speculation = drafts(export)[way]

    with serving(export, VLLM, tmp_path / "log", port=free_port(), length=512, speculation=speculation) as url:
        found = asyncio.run(plans_over(url, export, task, has_draft=speculation is not None))

    assert (found["prompt_as"], found["grammar_as"]) == ("tokens", "structured_outputs")
    assert found["tokens"] == ours["tokens"]
