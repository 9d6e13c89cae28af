"""Tests of the check before head training: it must pass on right labels and fail on wrong ones."""

import math
from dataclasses import replace

import pytest
import torch

from training import heads
from training.data.examples import IGNORED
from training.heads import Choices, HeadCheckError, TrainableHeads, check_heads, head_targets
from training.positions import Positions
from training.settings import HeadSettings


def test_labels_are_shifted_by_each_heads_distance_and_stop_at_the_plans_end() -> None:
    targets = head_targets(torch.tensor([3, 2]), 2)

    assert targets.tolist() == [[1, 2], [2, IGNORED], [IGNORED, IGNORED], [4, IGNORED], [IGNORED, IGNORED]]


def test_the_check_passes() -> None:
    check_heads(4)


@pytest.mark.parametrize("shift", [-1, 1])
def test_the_check_finds_labels_that_are_one_place_off(monkeypatch: pytest.MonkeyPatch, shift: int) -> None:
    right = heads.head_targets
    monkeypatch.setattr(heads, "head_targets", lambda *arguments: right(*arguments).roll(shift, dims=0))

    with pytest.raises(HeadCheckError, match="head 0"):
        check_heads(4)


def test_the_check_finds_a_head_without_gradient(monkeypatch: pytest.MonkeyPatch) -> None:
    right = TrainableHeads.forward

    def frozen_last(self: TrainableHeads, hidden: torch.Tensor) -> torch.Tensor:
        states = right(self, hidden)
        return torch.cat([states[:-1], states[-1:].detach()])

    monkeypatch.setattr(TrainableHeads, "forward", frozen_last)
    with pytest.raises((HeadCheckError, RuntimeError)):
        check_heads(4)


def test_untrained_heads_are_the_lm_head_itself() -> None:
    hidden = torch.randn(3, 8)

    assert torch.equal(TrainableHeads(2, 8)(hidden), torch.stack([hidden, hidden]))


def counting_plans(embedding: torch.Tensor, plans: int, length: int) -> Positions:
    """Return plans where n + 1 follows n, and the grammar allows that token and one other."""
    vocabulary = len(embedding)
    tokens = torch.stack([(torch.arange(length) + start) % vocabulary for start in range(plans)]).flatten()
    legal = torch.stack([tokens, (tokens + 5) % vocabulary], dim=1).sort(dim=1).values.flatten()
    count = len(tokens)
    return Positions(
        hidden=embedding[(tokens - 1) % vocabulary].bfloat16(),
        tokens=tokens,
        lengths=torch.full((plans,), length),
        forced=torch.zeros(count, dtype=torch.bool),
        legal=legal,
        legal_counts=torch.full((count,), 2),
        prompts=tokens[::length],
        prompt_lengths=torch.ones(plans, dtype=torch.int64),
    )


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
