"""The check that runs before head training must pass on right labels and fail on wrong ones."""

import pytest
import torch

from training import heads
from training.data.examples import IGNORED
from training.heads import HeadCheckError, TrainableHeads, check_heads, head_labels
from training.positions import Positions
from training.settings import HeadSettings


def test_labels_are_shifted_by_each_heads_distance_and_stop_at_the_plans_end() -> None:
    labels = head_labels(torch.tensor([10, 11, 12, 20, 21]), [3, 2], 2)

    assert labels.tolist() == [[11, 12], [12, IGNORED], [IGNORED, IGNORED], [21, IGNORED], [IGNORED, IGNORED]]


def test_the_check_passes() -> None:
    check_heads(4)


@pytest.mark.parametrize("shift", [-1, 1])
def test_the_check_finds_labels_that_are_one_place_off(monkeypatch: pytest.MonkeyPatch, shift: int) -> None:
    right = heads.head_labels
    monkeypatch.setattr(heads, "head_labels", lambda *arguments: right(*arguments).roll(shift, dims=0))

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


def test_heads_learn_what_follows() -> None:
    """Token n is followed by n + 1: one position foresees the next ones exactly."""
    torch.manual_seed(0)
    vocabulary, plans, length = 12, 60, 8
    embedding = torch.randn(vocabulary, 32)
    tokens = torch.stack([(torch.arange(length) + start) % vocabulary for start in range(plans)]).flatten()
    positions = Positions(embedding[(tokens - 1) % vocabulary].bfloat16(), tokens, [length] * plans)
    settings = HeadSettings(heads=3, epochs=40, batch_size=64, learning_rate=5e-3)

    _, accuracy = heads._fit(positions, embedding, settings, torch.device("cpu"))

    assert min(accuracy) > 0.95
