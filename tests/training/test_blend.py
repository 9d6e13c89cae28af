"""Tests that blended adapters add the mean of their updates."""

import json
from pathlib import Path

import pytest
import torch
from safetensors.torch import load_file, save_file
from torch import Tensor

from training.blend import blend

LAYER = "base_model.model.model.layers.0.self_attn.q_proj"


def write_adapter(folder: Path, seed: int, rank: int = 3, layer: str = LAYER) -> Path:
    generator = torch.Generator().manual_seed(seed)
    folder.mkdir()
    weights = {
        f"{layer}.lora_A.weight": torch.randn((rank, 10), generator=generator),
        f"{layer}.lora_B.weight": torch.randn((12, rank), generator=generator),
    }
    save_file(weights, folder / "adapter_model.safetensors")
    (folder / "adapter_config.json").write_text(json.dumps({"peft_type": "LORA", "r": rank, "lora_alpha": 2 * rank}))
    return folder


def added(folder: Path) -> Tensor:
    weights = load_file(folder / "adapter_model.safetensors")
    config = json.loads((folder / "adapter_config.json").read_text())
    product: Tensor = weights[f"{LAYER}.lora_B.weight"].float() @ weights[f"{LAYER}.lora_A.weight"].float()
    return product * float(config["lora_alpha"] / config["r"])


def test_the_mean_is_kept_where_the_rank_suffices(tmp_path: Path) -> None:
    adapters = [write_adapter(tmp_path / "a", 1), write_adapter(tmp_path / "b", 2)]

    mean = added(blend(adapters, 6, tmp_path / "both"))

    expected = (added(adapters[0]) + added(adapters[1])) / 2
    assert (mean - expected).norm() / expected.norm() < 0.01  # bfloat16


def test_a_lower_rank_keeps_the_most_that_it_can(tmp_path: Path) -> None:
    adapters = [write_adapter(tmp_path / "a", 1), write_adapter(tmp_path / "b", 2)]
    expected = (added(adapters[0]) + added(adapters[1])) / 2

    cut = added(blend(adapters, 4, tmp_path / "both"))

    best = torch.linalg.svdvals(expected)[4:].norm()
    assert torch.linalg.matrix_rank(cut) == 4
    assert (cut - expected).norm() == pytest.approx(float(best), rel=0.02)


def test_adapters_of_other_layers_are_refused(tmp_path: Path) -> None:
    adapters = [write_adapter(tmp_path / "a", 1), write_adapter(tmp_path / "b", 2, layer=f"{LAYER}.other")]

    with pytest.raises(ValueError, match="other layers"):
        blend(adapters, 4, tmp_path / "both")
