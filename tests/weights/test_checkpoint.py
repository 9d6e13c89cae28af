"""A checkpoint that our forward cannot run is refused before anything is computed."""

import json
from pathlib import Path
from typing import Any

import pytest
import torch
from safetensors.torch import load_file, save_file

from service.weights.checkpoint import (
    check_shapes,
    read_config,
    read_lm_head,
    read_shapes,
    read_weights,
)
from service.weights.head_weights import LayoutError, same_bits
from tests.tiny_model import write_tiny_model
from tests.weights.samples import configure, shard


@pytest.fixture
def base(tmp_path: Path) -> Path:
    return write_tiny_model(tmp_path).with_name("base")


def check(base: Path) -> None:
    check_shapes(read_shapes(base), read_config(base), base)


def test_a_whole_checkpoint_passes_and_all_of_it_is_looked_at(base: Path) -> None:
    check(base)
    assert read_shapes(base) == {name: tuple(weight.shape) for name, weight in read_weights(base).items()}


def test_shards_are_one_checkpoint(base: Path) -> None:
    whole = read_weights(base)
    shard(base)

    check(base)
    sharded = read_weights(base)
    assert all(same_bits(whole[name], sharded[name]) for name in whole)
    assert same_bits(read_lm_head(base, read_config(base)), whole["model.embed_tokens.weight"])


def test_a_missing_shard_is_named(base: Path) -> None:
    shard(base)
    (base / "model-00002-of-00003.safetensors").unlink()
    with pytest.raises(LayoutError, match=r"lacks model-00002-of-00003\.safetensors"):
        check(base)


def test_a_shard_cut_short_is_named(base: Path) -> None:
    shard(base)
    file = base / "model-00001-of-00003.safetensors"
    file.write_bytes(file.read_bytes()[:-100])
    with pytest.raises(LayoutError, match=r"model-00001-of-00003\.safetensors is not a whole"):
        check(base)


def test_pickled_weights_say_how_to_get_others(base: Path) -> None:
    (base / "model.safetensors").rename(base / "pytorch_model.bin")
    with pytest.raises(LayoutError, match="save_pretrained"):
        check(base)


@pytest.mark.parametrize(
    ("changes", "words"),
    [
        ({"model_type": "gemma2"}, "model_type 'gemma2' is not served"),
        ({"quantization_config": {"bits": 4}}, "quantised"),
        ({"rope_scaling": {"rope_type": "llama3"}}, "lacks 'factor'"),
        ({"attention_bias": True}, "q_proj.bias is missing"),
        ({"hidden_act": "gelu"}, "activation 'gelu'"),
    ],
)
def test_what_the_forward_does_not_compute_is_refused(base: Path, changes: dict[str, Any], words: str) -> None:
    configure(base, **changes)
    with pytest.raises(LayoutError, match=words) as refused:
        check(base)
    assert "config.json" in str(refused.value)


def test_a_configuration_without_a_field_names_it(base: Path) -> None:
    config = json.loads((base / "config.json").read_text(encoding="utf-8"))
    del config["rms_norm_eps"]
    (base / "config.json").write_text(json.dumps(config), encoding="utf-8")
    with pytest.raises(LayoutError, match="lacks 'rms_norm_eps'"):
        check(base)


def test_tensors_that_do_not_fit_are_named(base: Path) -> None:
    weights = load_file(base / "model.safetensors")
    del weights["model.layers.1.mlp.up_proj.weight"]
    weights["model.layers.0.self_attn.q_proj.bias"] = torch.zeros(4)
    weights["model.norm.weight"] = torch.zeros(3)
    save_file(weights, base / "model.safetensors")

    with pytest.raises(LayoutError) as refused:
        check(base)
    message = str(refused.value)
    assert "model.layers.1.mlp.up_proj.weight is missing" in message
    assert "model.layers.0.self_attn.q_proj.bias is not of this architecture" in message
    assert "model.norm.weight is [3], and config.json says [64]" in message


def test_tables_of_old_checkpoints_and_a_copied_lm_head_are_no_harm(base: Path) -> None:
    weights = load_file(base / "model.safetensors")
    weights["model.layers.0.self_attn.rotary_emb.inv_freq"] = torch.zeros(8)
    weights["lm_head.weight"] = weights["model.embed_tokens.weight"].clone()
    save_file(weights, base / "model.safetensors")

    check(base)
    assert "model.layers.0.self_attn.rotary_emb.inv_freq" not in read_weights(base)


@pytest.mark.parametrize(
    ("changes", "longest"),
    [
        ({}, 4096),
        ({"sliding_window": 512}, 512),
        ({"sliding_window": None}, 4096),
        ({"sliding_window": 512, "use_sliding_window": False}, 4096),
        ({"max_position_embeddings": 300, "sliding_window": 512}, 300),
    ],
)
def test_a_sliding_window_limits_how_long_a_sequence_may_be(base: Path, changes: dict[str, Any], longest: int) -> None:
    configure(base, **changes)
    assert read_config(base).longest_sequence == longest
