"""EAGLE-3 heads in their published forms: imported, served with greedy's tokens, exported; others refused by name."""

import json
from pathlib import Path
from typing import Any

import pytest
import torch
from safetensors.torch import load_file, save_file

from service.engines.torch.engine import TorchModel, load
from service.settings.engines import EngineConfig
from service.weights.__main__ import main
from service.weights.checkpoint import read_config
from service.weights.eagle_head import FOLDER, read_eagle_head
from service.weights.exporting import export_model
from service.weights.head_layouts import LAYOUTS
from service.weights.importing import import_model
from service.weights.model_folder import ModelFolderError
from tests.bases import write_base
from tests.eagle_heads import Form, random_head, write_eagle_head
from tests.tiny_model import plan_request
from tests.weights.samples import plan

FEWER = 60  # tokens of a draft's vocabulary


@pytest.fixture
def base(tmp_path: Path) -> Path:
    return write_base(tmp_path / "base", "qwen3")


def head_of(base: Path, folder: Path, form: Form = "vllm", *, vocabulary: int = 0, **changes: Any) -> Path:
    head = random_head(3, read_config(base), vocabulary=vocabulary, layers=(1, 2))
    return write_eagle_head(folder, head, form, **changes)


def served(folder: Path) -> TorchModel:
    return load(EngineConfig(model_dir=folder, cache_dir=folder, dtype="float32", strategy="draft",
                             max_prompt_tokens=128))  # fmt: skip


@pytest.mark.parametrize(("form", "vocabulary"), [("vllm", 0), ("pickled", FEWER), ("speculators", FEWER)])
def test_an_import_drafts_with_it_and_plans_greedy_s_tokens(
    form: Form, vocabulary: int, base: Path, tmp_path: Path
) -> None:
    eagle = head_of(base, tmp_path / "eagle", form, vocabulary=vocabulary)
    output = tmp_path / "made"
    assert main(["import", "--checkpoint", str(base), "--eagle", str(eagle), "--output", str(output)]) == 0

    model = served(output)

    assert model.strategies == ("autoregressive", "draft")
    assert plan(model, "draft") == plan(model, "autoregressive")
    assert model.generate(plan_request("red nike shoes", strategy="draft")).draft_forwards > 0
    sent = load_file(eagle / "model.safetensors") if form != "pickled" else torch.load(eagle / "pytorch_model.bin")
    kept = load_file(output / FOLDER / "model.safetensors")
    assert sent.keys() == kept.keys()
    assert all(torch.equal(sent[name], kept[name]) for name in sent)


@pytest.mark.parametrize(
    ("layout", "vocabulary", "goes"),
    [("vllm", FEWER, True), ("nxdi", 0, True), ("nxdi", FEWER, False), ("tgi-v2", 0, False)],
)
def test_an_export_has_it_where_the_engine_reads_it(
    layout: str,
    vocabulary: int,
    goes: bool,
    base: Path,
    tmp_path: Path,
) -> None:
    made = import_model(base, tmp_path / "made", eagle=head_of(base, tmp_path / "eagle", vocabulary=vocabulary))

    exported = export_model(made.folder, tmp_path, LAYOUTS[layout], tmp_path / "exported")

    assert (exported.folder / FOLDER).is_dir() == goes
    if goes:
        again = read_eagle_head(exported.folder / FOLDER, read_config(base))
        assert torch.equal(again.tokens, read_eagle_head(tmp_path / "eagle", read_config(base)).tokens)


@pytest.mark.parametrize(
    ("changes", "words"),
    [
        ({"hidden_size": 48}, "for states of 48, and the model's are 64"),
        ({"num_hidden_layers": 2}, "heads of 2 layers are not served"),
        ({"norm_before_fc": True}, r"norm_before_fc \(True\)"),
        ({"model_type": "deepseek_v3"}, "model_type 'deepseek_v3' is not served"),
        ({"eagle_aux_hidden_state_layer_ids": [1, 9]}, "states after layers 1, 9 are not those of a model of 2"),
        ({"eagle_aux_hidden_state_layer_ids": None}, "states after layers 2, 1, -1"),
        ({"intermediate_size": 41}, r"mlp.gate_proj.weight is \[40, 64\], and its config says \[41, 64\]"),
    ],
)
def test_another_s_head_is_refused_and_nothing_is_written(
    changes: dict[str, Any], words: str, base: Path, tmp_path: Path
) -> None:
    eagle = head_of(base, tmp_path / "eagle", **changes)
    with pytest.raises(ValueError, match=words):
        import_model(base, tmp_path / "made", eagle=eagle)
    assert not (tmp_path / "made").exists()


def test_what_its_file_lacks_or_has_too_much_is_named(base: Path, tmp_path: Path) -> None:
    eagle, config = head_of(base, tmp_path / "eagle", vocabulary=FEWER), read_config(base)
    whole = load_file(eagle / "model.safetensors")
    for changed, words in (
        ({name: tensor for name, tensor in whole.items() if name != "fc.weight"}, "fc.weight is missing"),
        (whole | {"midlayer.mlp.bias": torch.zeros(3)}, "midlayer.mlp.bias is not of an EAGLE-3 head"),
        (whole | {"d2t": whole["d2t"] + 100}, "d2t leads to tokens"),
        (whole | {"norm.weight": whole["norm.weight"] * float("nan")}, "norm.weight holds values that are no numbers"),
    ):
        save_file(changed, eagle / "model.safetensors")
        with pytest.raises(ValueError, match=words):
            read_eagle_head(eagle, config)
    (eagle / "model.safetensors").unlink()
    with pytest.raises(ValueError, match=r"neither model\.safetensors nor pytorch_model\.bin"):
        read_eagle_head(eagle, config)


def test_a_head_that_reads_too_few_positions_is_refused_at_load(base: Path, tmp_path: Path) -> None:
    made = import_model(base, tmp_path / "made", eagle=head_of(base, tmp_path / "eagle"))
    path = made.folder / FOLDER / "config.json"
    config = json.loads(path.read_text(encoding="utf-8"))
    path.write_text(json.dumps(config | {"max_position_embeddings": 100}), encoding="utf-8")
    with pytest.raises(ModelFolderError, match=r"reads 100 positions, and 2\d\d are wanted"):
        served(made.folder)
