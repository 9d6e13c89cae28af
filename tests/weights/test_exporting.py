"""Tests that an export loads in transformers, computes the same as our forward, and imports unchanged."""

import json
from pathlib import Path

import pytest
import torch
from safetensors.torch import load_file
from transformers import AutoModelForCausalLM, AutoTokenizer

from service.engines.torch.engine import load
from service.settings.engines import EngineConfig
from service.weights.__main__ import FORMATS, main
from service.weights.head_layouts import read_heads
from service.weights.importing import import_model
from service.weights.model_folder import load_model
from tests.tiny_model import BOS, EOS, TREE, write_tiny_model
from tests.weights.samples import plan


@pytest.fixture
def model(tmp_path: Path) -> Path:
    return write_tiny_model(tmp_path / "tiny")


def export(model: Path, name: str, output: Path) -> Path:
    assert main(["export", "--format", name, "--model", str(model), "--output", str(output)]) == 0
    return output


@pytest.mark.parametrize("name", FORMATS)
def test_an_export_comes_back_bit_for_bit(model: Path, name: str, tmp_path: Path) -> None:
    exported = export(model, name, tmp_path / "out")
    heads = exported if name == "nxdi" else exported / "medusa"

    made = import_model(exported, tmp_path / "back", heads, tree=model / "medusa_tree.json")

    sent, back = (load_file(folder / "medusa_heads.safetensors") for folder in (model, made.folder))
    assert sent.keys() == back.keys()
    assert all(torch.equal(sent[key], back[key]) for key in sent)
    for key, tensor in load_model(model, tmp_path).weights.items():
        assert torch.equal(tensor, load_model(made.folder, tmp_path).weights[key])


def test_an_export_is_a_model_folder_itself(model: Path, tmp_path: Path) -> None:
    exported = export(model, "vllm", tmp_path / "out")
    ours = load(
        EngineConfig(
            model_dir=exported, cache_dir=tmp_path, dtype="float32", strategy="autoregressive", max_prompt_tokens=128
        )
    )

    assert plan(ours, "autoregressive") == plan(
        load(EngineConfig(model_dir=model, cache_dir=tmp_path, dtype="float32", max_prompt_tokens=128)), "medusa"
    )


@pytest.mark.parametrize("name", ["fasterdecoding", "nxdi"])
def test_engines_that_take_a_tree_get_it(model: Path, name: str, tmp_path: Path) -> None:
    exported = export(model, name, tmp_path / "out")
    folder = exported if name == "nxdi" else exported / "medusa"
    assert json.loads((folder / "medusa_tree.json").read_text(encoding="utf-8")) == TREE


def test_transformers_reads_the_same_prompt_and_says_the_same(model: Path, tmp_path: Path) -> None:
    exported = export(model, "tgi-v2", tmp_path / "out")
    tokenizer = AutoTokenizer.from_pretrained(exported)
    peer = AutoModelForCausalLM.from_pretrained(exported, dtype=torch.float32)

    tokens = tokenizer(" red nike shoes\n")["input_ids"]
    ours = load_model(model, tmp_path)
    assert tokens == [BOS, *ours.tokenizer.encode(" red nike shoes\n", add_special_tokens=False).ids]
    assert (tokenizer.bos_token_id, tokenizer.eos_token_id) == (BOS, EOS)
    assert peer.generation_config.eos_token_id == EOS
    state = peer.state_dict()
    assert all(torch.equal(tensor, state[key]) for key, tensor in ours.weights.items())


def test_a_model_without_heads_is_exported_alone(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    bare = write_tiny_model(tmp_path / "bare", with_heads=False)
    exported = export(bare, "vllm", tmp_path / "out")

    assert "the model has none" in capsys.readouterr().out
    assert not (exported / "medusa").exists()


def test_a_folder_in_use_is_not_written_into(model: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["export", "--format", "vllm", "--model", str(model), "--output", str(model)]) == 2
    assert "is not empty" in capsys.readouterr().err


def test_exported_heads_are_found_by_their_names(model: Path, tmp_path: Path) -> None:
    exported = export(model, "nxdi", tmp_path / "out")
    found = read_heads(exported, load_model(model, tmp_path).weights["model.embed_tokens.weight"])

    assert found.path == exported / "medusa_heads.pt"
    assert found.layout.name == "nxdi"


def test_what_was_exported_is_told_to_programs(model: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    output = tmp_path / "out"
    assert main(["export", "--json", "--format", "nxdi", "--model", str(model), "--output", str(output)]) == 0
    told = json.loads(capsys.readouterr().out)
    assert told == {"folder": str(output), "format": "nxdi", "heads": ["medusa_heads.pt", "medusa_tree.json"]}
