"""The tuned weights in a GGUF file are the weights that we serve."""

import json
from pathlib import Path

import gguf
import numpy as np
import pytest
from safetensors.numpy import load_file
from tokenizers import Tokenizer

from rehearsal.bench.peers.checkpoint import prepare, write_gguf
from rehearsal.bench.peers.files import read_weights, token_names
from service.weights.gguf_base import convert_gguf


@pytest.fixture(scope="module")
def checkpoint(tiny_model_dir: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    return prepare(tiny_model_dir, tmp_path_factory.mktemp("cache"), lambda _: None)


def test_it_is_made_once_for_a_model(checkpoint: Path, tiny_model_dir: Path) -> None:
    said: list[str] = []
    assert prepare(tiny_model_dir, checkpoint.parents[1], said.append) == checkpoint
    assert said == []


def test_float16_comes_back_bit_for_bit(checkpoint: Path, tmp_path: Path) -> None:
    convert_gguf(checkpoint / "float16.gguf", tmp_path / "back")
    written, back = load_file(checkpoint / "model.safetensors"), load_file(tmp_path / "back" / "model.safetensors")

    assert written.keys() == back.keys()
    for name, weight in written.items():
        assert np.array_equal(weight, back[name]), name
    config = json.loads((tmp_path / "back" / "config.json").read_text(encoding="utf-8"))
    assert config["rope_theta"] == 10000.0
    assert (config["bos_token_id"], config["eos_token_id"]) == (0, 1)


def test_the_tokenizer_comes_back(checkpoint: Path, tmp_path: Path) -> None:
    convert_gguf(checkpoint / "float16.gguf", tmp_path / "back")
    text = " red running shoes size 10\n"
    ids = [
        Tokenizer.from_file(str(folder / "tokenizer.json")).encode(text).ids
        for folder in (checkpoint, tmp_path / "back")
    ]
    assert ids[0] == ids[1]


@pytest.mark.parametrize(("file", "matrix", "most"), [("q8_0.gguf", "Q8_0", 0.01), ("q4_0.gguf", "Q4_0", 0.15)])
def test_quantised_weights_are_near(checkpoint: Path, file: str, matrix: str, most: float) -> None:
    kinds = {tensor.name: tensor.tensor_type.name for tensor in gguf.GGUFReader(checkpoint / file).tensors}
    assert kinds["blk.0.ffn_up.weight"] == matrix
    assert kinds["token_embd.weight"] == "Q8_0"  # a tied head keeps 8 bits
    assert kinds["output_norm.weight"] == "F32"

    (read,) = (t for t in gguf.GGUFReader(checkpoint / file).tensors if t.name == "blk.0.ffn_up.weight")
    written = read_weights(checkpoint)["model.layers.0.mlp.up_proj.weight"]
    error = np.abs(gguf.quants.dequantize(read.data, read.tensor_type) - written).max()
    assert error < most * np.abs(written).max()


def test_scaled_positions_are_refused(checkpoint: Path, tmp_path: Path) -> None:
    config = json.loads((checkpoint / "config.json").read_text(encoding="utf-8"))
    (tmp_path / "config.json").write_text(json.dumps(config | {"rope_scaling": {"factor": 8}}), encoding="utf-8")
    with pytest.raises(ValueError, match="rope_scaling"):
        write_gguf(tmp_path, tmp_path / "x.gguf", gguf.GGMLQuantizationType.Q8_0)


def test_only_bpe_tokenizers_are_written(checkpoint: Path, tmp_path: Path) -> None:
    (tmp_path / "tokenizer.json").write_text(json.dumps({"model": {"type": "Unigram"}}), encoding="utf-8")
    with pytest.raises(ValueError, match="only BPE"):
        token_names(tmp_path, {"vocab_size": 4})
    config = json.loads((checkpoint / "config.json").read_text(encoding="utf-8"))
    assert len(token_names(checkpoint, config)) == config["vocab_size"]
