"""Tests of `make train` after the adapter, on a model of two layers, up to a folder that is served."""

import json
from collections import Counter
from pathlib import Path

import pytest

from service.engines.protocol import GenerationRequest
from service.engines.torch_engine import load
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
from training.settings import HeadSettings, TrainingSettings, TreeSettings
from training.tree import Acceptance, Measured, Shape, calibrate, choose

SEEN = Acceptance(Counter({(0,): 80, (1,): 10, (0, 0): 60, (0, 1): 9, (0, 0, 0): 40, (1, 0): 8}), starts=100)


def test_the_best_tree_takes_the_most_accepted_paths_and_is_closed_under_prefixes() -> None:
    tree = SEEN.best_tree(4)

    assert tree == [[0], [1], [0, 0], [0, 0, 0]]
    for size in range(1, 7):
        nodes = {tuple(path) for path in SEEN.best_tree(size)}
        assert all(path[:-1] in nodes or len(path) == 1 for path in nodes)


def test_of_shapes_that_are_about_as_fast_the_one_with_the_fewest_forwards_is_drafted() -> None:
    table = [
        Measured(Shape(3, 0.2), 33.9, 3.85),
        Measured(Shape(12, 0.1), 34.5, 3.67),
        Measured(Shape(12, 0.0), 49.9, 3.4),
    ]

    assert choose(table).shape == Shape(12, 0.1)


@pytest.mark.slow
def test_heads_and_tree_come_out_as_they_are_served(tmp_path: Path) -> None:
    model_dir = write_tiny_model(tmp_path / "tiny", with_heads=False)
    settings = TrainingSettings(
        data=write_data(tmp_path / "data"),
        cache=tmp_path / "cache",
        work=tmp_path / "work",
        output=tmp_path / "output",
        processes=1,
        heads=HeadSettings(heads=3, epochs=1, questions=60),
        tree=TreeSettings(sizes=(2, 4), p_mins=(0.0, 0.05), questions=13, measured_share=4),
    )
    positions = collect(settings, model_dir)
    assert len(positions.lengths) == len(positions.prompt_lengths)
    assert int(positions.prompt_lengths.sum()) == len(positions.prompts)
    train_heads(positions, settings, model_dir)
    calibrate(settings, model_dir)

    drafting = json.loads((model_dir / "drafting.json").read_text(encoding="utf-8"))
    report = json.loads((settings.work / "tree_calibration.json").read_text(encoding="utf-8"))
    assert json.loads((model_dir / "medusa_tree.json").read_text(encoding="utf-8")) == report["tree"]
    assert trees_tried(settings).startswith("Tried were trees of 2, 4 nodes, each grown to whatever depth the 3 heads'")
    assert drafting == {"p_min": report["p_min"]}
    served = load(EngineConfig(model_dir=model_dir, cache_dir=tmp_path, dtype="float32"))
    question = Question.parse("red shoes for men")
    request = GenerationRequest(prompt=render_prompt(question), grammar=plan_grammar(question, shipped_vocabulary()))
    greedy = GenerationRequest(prompt=request.prompt, grammar=request.grammar, strategy="autoregressive")
    assert served.generate(request).tokens == served.generate(greedy).tokens
