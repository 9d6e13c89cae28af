"""Tests of `make train` after the adapter, on a model of two layers, up to a folder that is served."""

import json
from pathlib import Path

import pytest

from service.engines.protocol import GenerationRequest
from service.engines.torch.engine import load
from service.planner.grammar import plan_grammar
from service.planner.prompt import render_prompt
from service.planner.question import Question
from service.planner.vocabulary import shipped_vocabulary
from service.settings.engines import EngineConfig
from tests.tiny_model import write_tiny_model
from tests.training.tiny_data import write_data
from training.export import trees_tried
from training.heads import train_heads
from training.positions import collect
from training.prefill_head import train_prefill_head
from training.settings import HeadSettings, PrefillHeadSettings, TrainingSettings, TreeSettings
from training.tree import calibrate


@pytest.mark.slow
def test_heads_prefill_head_and_tree_come_out_as_they_are_served(tmp_path: Path) -> None:
    model_dir = write_tiny_model(tmp_path / "tiny", with_heads=False)
    settings = TrainingSettings(
        data=write_data(tmp_path / "data"),
        cache=tmp_path / "cache",
        work=tmp_path / "work",
        output=tmp_path / "output",
        processes=1,
        heads=HeadSettings(heads=3, epochs=1, questions=60),
        prefill_head=PrefillHeadSettings(phrases=6, features=8, epochs=2, p_mins=(0.01, 0.5)),
        tree=TreeSettings(sizes=(2, 4), p_mins=(0.0, 0.05), questions=13, measured_share=4),
    )
    positions = collect(settings, model_dir)
    assert len(positions.lengths) == len(positions.prompt_lengths)
    assert int(positions.prompt_lengths.sum()) == len(positions.prompts)
    train_heads(positions, settings, model_dir)
    with pytest.raises(ValueError, match="no prefill head"):
        calibrate(settings, model_dir)
    train_prefill_head(positions, settings, model_dir)
    calibrate(settings, model_dir)

    drafting = json.loads((model_dir / "drafting.json").read_text(encoding="utf-8"))
    report = json.loads((settings.work / "tree_calibration.json").read_text(encoding="utf-8"))
    assert json.loads((model_dir / "medusa_tree.json").read_text(encoding="utf-8")) == report["tree"]
    assert trees_tried(settings).startswith("Tried were trees of 2, 4 nodes, each grown to whatever depth the 3 heads'")
    card = json.loads((model_dir / "prefill_head.json").read_text(encoding="utf-8"))
    times = {float(least): spent for least, spent in report["prefill_head_ms"].items()}
    assert card["p_min"] == min(times, key=times.__getitem__)
    assert 1 <= len(card["phrases"]) <= 6
    assert drafting["prefill_draft"] == []
    served = load(EngineConfig(model_dir=model_dir, cache_dir=tmp_path, dtype="float32"))
    question = Question.parse("red shoes for men")
    request = GenerationRequest(prompt=render_prompt(question), grammar=plan_grammar(question, shipped_vocabulary()))
    greedy = GenerationRequest(prompt=request.prompt, grammar=request.grammar, strategy="autoregressive")
    assert served.generate(request).tokens == served.generate(greedy).tokens
