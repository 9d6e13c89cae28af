"""EAGLE-3 heads in their published forms: imported and exported; others refused by name."""

from pathlib import Path
from typing import Any

import pytest
import torch
from safetensors.torch import load_file, save_file

from service.weights.__main__ import main
from service.weights.checkpoint import read_config
from service.weights.eagle_head import FOLDER, check_eagle_head
from service.weights.exporting import export_model
from service.weights.head_layouts import LAYOUTS
from service.weights.importing import import_model
from tests.bases import write_base
from tests.eagle_heads import Form, random_head, write_eagle_head

FEWER = 60  # tokens of a draft's vocabulary


@pytest.fixture
def base(tmp_path: Path) -> Path:
    return write_base(tmp_path / "base", "qwen3")


def head_of(base: Path, folder: Path, form: Form = "vllm", *, vocabulary: int = 0, **changes: Any) -> Path:
    head = random_head(3, read_config(base), vocabulary=vocabulary, layers=(1, 2))
    return write_eagle_head(folder, head, form, **changes)


@pytest.mark.parametrize(("form", "vocabulary"), [("vllm", 0), ("pickled", FEWER), ("speculators", FEWER)])
def test_an_import_keeps_it_for_engines_that_draft_with_one(
    form: Form, vocabulary: int, base: Path, tmp_path: Path
) -> None:
    eagle = head_of(base, tmp_path / "eagle", form, vocabulary=vocabulary)
    output = tmp_path / "made"
    assert main(["import", "--checkpoint", str(base), "--eagle", str(eagle), "--output", str(output)]) == 0

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
        sent, again = (
            load_file(folder / "model.safetensors") for folder in (tmp_path / "eagle", exported.folder / FOLDER)
        )
        assert sent.keys() == again.keys()
        assert all(torch.equal(sent[name], again[name]) for name in sent)


@pytest.mark.parametrize(
    ("changes", "words"),
    [
        ({"hidden_size": 48}, "for states of 48, and the model's are 64"),
        ({"num_hidden_layers": 2}, "heads of 2 layers are not taken"),
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
            check_eagle_head(eagle, config)
    (eagle / "model.safetensors").unlink()
    with pytest.raises(ValueError, match=r"neither model\.safetensors nor pytorch_model\.bin"):
        check_eagle_head(eagle, config)
