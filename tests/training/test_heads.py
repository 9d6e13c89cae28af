"""Tests of the heads' labels, of what each learns from, and that it learns."""

import math
from dataclasses import replace

import pytest
import torch

from tests.training.tiny_data import counting_plans
from training import heads
from training.data.examples import IGNORED
from training.heads import Choices, TrainableHeads, head_targets
from training.settings import HeadSettings


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
