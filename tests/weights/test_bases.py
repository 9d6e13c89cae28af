"""A base of every architecture goes from transformers' files to plans and back: imported, moved, decoded, exported."""

import json
import shutil
from pathlib import Path
from typing import Any

import pytest
import torch
from safetensors.torch import load_file

from service.engines.torch.engine import TorchModel, load
from service.planner.plan_text import parse
from service.planner.vocabulary import shipped_vocabulary
from service.settings.choices import Precision
from service.settings.engines import EngineConfig
from service.weights.__main__ import FORMATS, main
from service.weights.exporting import export_model
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
from tests.weights.samples import QUESTION, configure, plan

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


def refusal(checkpoint: Path, capsys: pytest.CaptureFixture[str]) -> str:
    """Import by the command; return what it says, after a look that it wrote nothing."""
    output = checkpoint.parent / "output"
    before = sorted(checkpoint.parent.iterdir())
    assert main(["import", "--checkpoint", str(checkpoint), "--output", str(output)]) == 2
    assert sorted(checkpoint.parent.iterdir()) == before
    said = capsys.readouterr().err
    assert "Traceback" not in said
    return said


@pytest.mark.parametrize(
    ("changes", "named"),
    [
        ({"model_type": "gemma3"}, "model_type 'gemma3' is not served; llama, mistral"),
        (
            {"rope_parameters": {"rope_type": "yarn", "rope_theta": 1e4, "factor": 4.0}},
            "rotary embedding of type 'yarn'",
        ),
        ({"logits_scaling": 8.0}, "logits_scaling (8.0)"),
    ],
)
def test_an_unknown_architecture_is_named(
    llama: Path, changes: dict[str, Any], named: str, capsys: pytest.CaptureFixture[str]
) -> None:
    configure(llama, **changes)
    said = refusal(llama, capsys)
    assert str(llama / "config.json") in said
    assert named in said


def test_a_shard_that_lacks_is_named(llama: Path, capsys: pytest.CaptureFixture[str]) -> None:
    shard = sorted(llama.glob("model-00002-*.safetensors"))[0]
    shard.unlink()
    said = refusal(llama, capsys)
    assert shard.name in said
    assert "Is the download whole?" in said


def test_a_special_token_of_another_tokenizer_is_named(llama: Path, capsys: pytest.CaptureFixture[str]) -> None:
    configure(llama, eos_token_id=90_000)
    assert "eos_token_id 90000, and" in refusal(llama, capsys)


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

    monkeypatch.setattr("service.weights.self_contained.os.link", other_disk)
    import_model(llama, llama.parent / "copied")
    monkeypatch.setattr("service.weights.self_contained.shutil.disk_usage", lambda _: shutil._ntuple_diskusage(9, 9, 0))  # type: ignore[attr-defined]
    with pytest.raises(ValueError, match="room for"):
        import_model(llama, llama.parent / "made")
    assert not (llama.parent / "made").exists()
