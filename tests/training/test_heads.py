"""Tests of the heads' labels, of what each learns from, that it learns, and of the tree that is drafted.

One goes the whole way, on a model of two layers, up to a folder that is served.
"""

import json
import math
from collections import Counter
from dataclasses import replace
from pathlib import Path

import pytest
import torch

from service.engines.protocol import GenerationRequest
from service.engines.torch_engine import load
from service.planner.grammar import plan_grammar
from service.planner.prompt import render_prompt
from service.planner.question import Question
from service.planner.vocabulary import shipped_vocabulary
from service.settings.engines import EngineConfig
from tests.tiny_model import write_tiny_model
from tests.training.tiny_data import counting_plans, write_data
from training import heads
from training.data.examples import IGNORED
from training.export import trees_tried
from training.heads import Choices, TrainableHeads, head_targets, train_heads
from training.positions import collect
from training.settings import HeadSettings, TrainingSettings, TreeSettings
from training.tree import Acceptance, Measured, Shape, calibrate, choose


def test_labels_are_shifted_by_each_heads_distance_and_stop_at_the_plans_end() -> None:
    targets = head_targets(torch.tensor([3, 2]), 2)

    assert targets.tolist() == [[1, 2], [2, IGNORED], [IGNORED, IGNORED], [4, IGNORED], [IGNORED, IGNORED]]


def test_the_loss_of_a_head_reaches_that_head_alone() -> None:
    embedding, module = torch.randn(12, 8), TrainableHeads(3, 8)
    plans = counting_plans(embedding, 2, 6)
    targets = head_targets(plans.lengths, 3)
    for head in range(3):
        module.zero_grad()
        only = torch.full_like(targets, IGNORED)
        only[:, head] = targets[:, head]
        Choices.of(plans, only, embedding).loss(module(plans.hidden.float()), 0.8).backward()  # type: ignore[no-untyped-call]
        assert module.weight.grad is not None
        assert [bool(gradient.any()) for gradient in module.weight.grad] == [index == head for index in range(3)]


def test_untrained_heads_are_the_lm_head_itself() -> None:
    hidden = torch.randn(3, 8)

    assert torch.equal(TrainableHeads(2, 8)(hidden), torch.stack([hidden, hidden]))


def test_heads_learn_what_follows() -> None:
    torch.manual_seed(0)
    embedding = torch.randn(12, 32)
    settings = HeadSettings(heads=3, epochs=30, batch_size=64, learning_rate=5e-3)

    plans = counting_plans(embedding, 60, 8)
    module = TrainableHeads(3, 32)
    accuracy = heads.fit(module, plans, head_targets(plans.lengths, 3), embedding, settings)

    assert min(accuracy) > 0.95


def test_only_legal_tokens_compete_and_forced_ones_are_not_learnt() -> None:
    embedding = torch.randn(12, 8)
    positions = counting_plans(embedding, 2, 4)
    positions.forced[2] = True
    choices = Choices.of(positions, head_targets(positions.lengths, 1), embedding)

    assert all(allowed.sum(dim=1).tolist() == [2] * len(allowed) for allowed in choices.allowed)
    assert choices.rows[0].tolist() == [0, 2, 4, 5, 6], "position 1 would foretell the forced token"
    right = choices.allowed[0][torch.arange(5), choices.labels[0]]
    assert right.all()


@pytest.mark.parametrize("held_out", [6, 0], ids=["all that is learnt", "what is held out too"])
def test_plans_in_which_everything_is_forced_teach_nothing(held_out: int) -> None:
    embedding = torch.randn(12, 32)
    positions = counting_plans(embedding, 4, 6)
    counts = torch.where(torch.arange(24) < held_out, 2, 0)  # of the first plan, which is held out
    forced = replace(positions, forced=counts == 0, legal=positions.legal[: 2 * held_out], legal_counts=counts)
    module = TrainableHeads(2, 32)
    before = {name: value.clone() for name, value in module.state_dict().items()}

    accuracy = heads.fit(module, forced, head_targets(positions.lengths, 2), embedding, HeadSettings(heads=2, epochs=1))

    assert all(map(math.isnan, accuracy)) == (held_out == 0)
    assert all(torch.equal(value, before[name]) for name, value in module.state_dict().items())


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
