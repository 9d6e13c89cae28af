"""Tests that a model folder is read as its files specify, and refused with clear messages."""

import json
from pathlib import Path

import pytest
import torch
from safetensors.torch import save_file

from service.weights.model_folder import ModelFolderError, base_folder, merge_adapter, read_card

CARD = {"id": "mine", "base": "base", "bos_token_id": 1, "eos_token_id": 2, "max_tokens": 64}


def _write_card(folder: Path, **changes: object) -> None:
    (folder / "model.json").write_text(json.dumps({**CARD, **changes}))


def test_a_missing_card_names_the_file_and_the_way_out(tmp_path: Path) -> None:
    with pytest.raises(ModelFolderError, match=r"model\.json is missing.*make train"):
        read_card(tmp_path)


def test_a_wrong_field_is_named(tmp_path: Path) -> None:
    _write_card(tmp_path, max_tokens="many", surprise=1)
    with pytest.raises(ModelFolderError) as raised:
        read_card(tmp_path)
    assert "max_tokens" in str(raised.value)
    assert "surprise" in str(raised.value)


def test_a_base_of_ones_own_is_found_beside_the_model_folder(tmp_path: Path) -> None:
    (tmp_path / "model").mkdir()
    (tmp_path / "llama").mkdir()
    _write_card(tmp_path / "model", base="../llama")

    assert base_folder(read_card(tmp_path / "model"), tmp_path / "model", tmp_path) == tmp_path / "llama"


def test_a_base_that_is_not_there_is_named(tmp_path: Path) -> None:
    _write_card(tmp_path, base="nowhere")
    with pytest.raises(ModelFolderError, match="nowhere"):
        base_folder(read_card(tmp_path), tmp_path, tmp_path)


def _write_adapter(
    folder: Path, up: torch.Tensor, down: torch.Tensor, module: str = "model.layers.0.mlp.up_proj"
) -> None:
    prefix = f"base_model.model.{module}"
    save_file({f"{prefix}.lora_A.weight": down, f"{prefix}.lora_B.weight": up}, folder / "adapter_model.safetensors")
    (folder / "adapter_config.json").write_text(json.dumps({"r": 2, "lora_alpha": 6}))


def test_an_adapter_is_added_with_its_scale(tmp_path: Path) -> None:
    up, down, weight = torch.randn(5, 2), torch.randn(2, 3), torch.randn(5, 3)
    _write_adapter(tmp_path, up, down)
    weights = {"model.layers.0.mlp.up_proj.weight": weight.clone()}
    merge_adapter(weights, tmp_path)

    assert torch.allclose(weights["model.layers.0.mlp.up_proj.weight"], weight + 3 * up @ down, atol=1e-5)


@pytest.mark.parametrize("module", ["model.layers.9.mlp.up_proj", "model.layers.0.mlp.up_proj"])
def test_an_adapter_of_another_model_is_refused(tmp_path: Path, module: str) -> None:
    _write_adapter(tmp_path, torch.randn(7, 2), torch.randn(2, 3), module)
    with pytest.raises(ValueError, match="does not fit the base"):
        merge_adapter({"model.layers.0.mlp.up_proj.weight": torch.randn(5, 3)}, tmp_path)
