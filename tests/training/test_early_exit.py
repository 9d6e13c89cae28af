"""Tests that the exit learns the model's own tokens, and that the service loads its files."""

from pathlib import Path

import pytest
import torch

from service.decoding.draft_model import ChainShape
from service.decoding.early_exit import TunedLens
from service.weights.model_folder import ExitCard
from tests.training.tiny_data import counting_plans
from training import early_exit
from training.early_exit import own_targets, train_early_exit
from training.settings import EarlyExitSettings, HeadSettings, TrainingSettings


def test_each_position_learns_its_own_token() -> None:
    assert own_targets(torch.tensor([7, 7, 9])).tolist() == [[0], [1], [2]]


def test_an_exit_learns_and_is_written(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    torch.manual_seed(0)
    embedding = torch.randn(12, 32)
    monkeypatch.setattr(early_exit, "collect_early", lambda *_: counting_plans(embedding, 60, 8))
    monkeypatch.setattr(early_exit, "lm_head", lambda *_: embedding)
    chosen = EarlyExitSettings(
        layers=3,
        shape=ChainShape(5, 0.25),
        questions=60,
        tuned_lens=HeadSettings(heads=1, epochs=30, batch_size=64, learning_rate=5e-3),
    )
    settings = TrainingSettings(data=tmp_path, cache=tmp_path, work=tmp_path, output=tmp_path, early_exit=chosen)

    assert train_early_exit(settings, tmp_path) > 0.95

    card = ExitCard.model_validate_json((tmp_path / "early_exit.json").read_text(encoding="utf-8"))
    assert (card.layers, card.longest, card.p_min) == (3, 5, 0.25)
    assert TunedLens.load(tmp_path / "early_exit.safetensors").hidden_size == 32
    assert (tmp_path / "early_exit.safetensors").stat().st_size < 1_000_000
