"""Tests of `make train`, from data folder to served model: every stage in miniature on a base of two layers."""

import json
from dataclasses import replace
from pathlib import Path

import pytest
import torch
from tokenizers import Tokenizer
from training.__main__ import train
from training.own_plans import OwnPlans
from training.retention import Retention

from service.engines.config import EngineConfig
from service.engines.protocol import GenerationRequest
from service.engines.torch.engine import load
from service.planner.grammar import plan_grammar
from service.planner.plan_text import parse
from service.planner.prompt import render_prompt
from service.planner.question import Question
from service.planner.vocabulary import shipped_vocabulary
from service.weights.base_weights import BASE_NAME, LAYOUT_VERSION, WHEEL_SHA256
from tests.training.tiny_data import write_base, write_data
from training.data.mix import Shares
from training.settings import (
    AdapterSettings,
    EarlyExitSettings,
    HeadSettings,
    PrefillHeadSettings,
    Refinement,
    Stage,
    TrainingSettings,
    TreeSettings,
)

pytestmark = [
    pytest.mark.slow,
    pytest.mark.filterwarnings("ignore::FutureWarning", "ignore::DeprecationWarning", "ignore::UserWarning"),
]

ADAPTER = AdapterSettings(rank=4, alpha=8, epochs=8, batch_size=16, learning_rate=0.02, warmup_steps=2)
SHARES = Shares(support=30, clinc=0, clinc_keywords=0, out_of_scope=0)
REFINED = Stage(
    "refined",
    replace(SHARES, products=20, attributes=20, written=0.003),
    replace(ADAPTER, epochs=1),
    Retention(frozenset({"queryner"})),
    OwnPlans(queries=20, p_min=0.0),
)


@pytest.fixture
def settings(tmp_path: Path, plan_tokenizer: Tokenizer) -> TrainingSettings:
    cache = tmp_path / "cache"
    torch.manual_seed(1)
    write_base(cache / f"{BASE_NAME}-{WHEEL_SHA256[:8]}-v{LAYOUT_VERSION}", plan_tokenizer, initializer_range=0.2)
    return TrainingSettings(
        data=write_data(tmp_path / "data"),
        cache=cache,
        work=tmp_path / "work",
        output=tmp_path / "output",
        processes=1,
        blended=((0, "plans"), (1, "plans"), (1, "more")),
        blended_rank=4,
        stages=(Stage("plans", SHARES, ADAPTER), Stage("more", SHARES, replace(ADAPTER, epochs=1))),
        refinements=(
            Refinement(REFINED, ("refined/adapter-refined", "mean")),
            Refinement(replace(REFINED, name="last"), ("last/adapter-last", "mean-refined"), teacher="mean-refined"),
        ),
        heads=HeadSettings(heads=3, epochs=1, questions=60),
        prefill_head=PrefillHeadSettings(phrases=6, features=8, epochs=2, p_mins=(0.01, 0.5)),
        early_exit=EarlyExitSettings(
            layers=1, questions=40, tuned_lens=HeadSettings(heads=1, epochs=1, batch_size=128)
        ),
        tree=TreeSettings(sizes=(2, 4), p_mins=(0.0, 0.05), questions=13, measured_share=4),
    )


def test_a_folder_that_is_served_comes_out(settings: TrainingSettings) -> None:
    train(settings)

    card = (settings.output / "README.md").read_text(encoding="utf-8")
    assert "plans: 8 epochs, more: 1 epochs, refined: 1 epochs, last: 1 epochs" in card
    for part in ("adapter_model", "medusa_heads", "prefill_head", "early_exit"):
        assert (settings.output / f"{part}.safetensors").stat().st_size > 0
    tree = json.loads((settings.output / "medusa_tree.json").read_text(encoding="utf-8"))
    assert 1 <= len(tree) <= 4

    served = load(EngineConfig(model_dir=settings.output, cache_dir=settings.cache, dtype="float32"))
    question = Question.parse("red shoes")
    request = GenerationRequest(prompt=render_prompt(question), grammar=plan_grammar(question, shipped_vocabulary()))
    medusa = served.generate(request)
    greedy = served.generate(replace(request, strategy="autoregressive"))
    assert medusa.tokens == greedy.tokens
    assert parse(medusa.text, question, shipped_vocabulary())

    before = {path: path.stat().st_mtime_ns for path in settings.work.rglob("*.safetensors")}
    train(settings)
    assert {path: path.stat().st_mtime_ns for path in settings.work.rglob("*.safetensors")} == before, "done twice"
