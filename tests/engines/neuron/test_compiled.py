"""From a model folder to an answering replica, with `FakeDriver` in place of NxDI's compiler and device."""

import json
import os
import shutil
from pathlib import Path
from typing import Any

import pytest
from safetensors.torch import load_file, save_file
from tokenizers import Tokenizer

from service.engines.neuron import __main__ as command
from service.engines.neuron.compilation import compile_model
from service.engines.neuron.configuration import CompileSettings, ConfigurationError
from service.engines.neuron.cores import VISIBLE_CORES, core_count
from service.engines.neuron.manifest import FILE, Manifest, ManifestError, check_manifest
from service.engines.protocol import GenerationRequest
from tests.engines.neuron import published_tree
from tests.engines.neuron.fake_driver import ANY_TEXT, PACKAGES, SETTINGS, FakeDriver, compiled, loaded
from tests.tiny_model import HIDDEN, MODEL_ID, TREE


def test_artifacts_carry_all_that_they_were_made_from(tiny_model_dir: Path, artifacts: Path) -> None:
    manifest = Manifest.read(artifacts)

    assert manifest.model_id == MODEL_ID
    assert manifest.sdk == "2.28"
    assert manifest.packages == PACKAGES
    assert sorted(map(tuple, manifest.arguments["medusa_tree"])) == sorted(map(tuple, TREE))
    assert manifest.arguments["context_encoding_buckets"] == [32, 40]
    assert set(manifest.files) == {
        "model.pt",
        "tokenizer.json",
        "host.safetensors",
        "weights/tp0_sharded_checkpoint.safetensors",
    }
    assert {name: tuple(weight.shape) for name, weight in load_file(artifacts / "host.safetensors").items()} == {
        "model.embed_tokens.weight": (Tokenizer.from_file(str(artifacts / "tokenizer.json")).get_vocab_size(), HIDDEN)
    }
    assert check_manifest(artifacts, tiny_model_dir, PACKAGES, {"max_context_length": 40}) == manifest
    assert not [path for path in artifacts.parent.iterdir() if path.name.startswith(".checkpoint")]


def test_the_plain_graph_decodes_what_the_tree_s_does(tiny_model_dir: Path, artifacts: Path, tmp_path: Path) -> None:
    manifest = compiled(tiny_model_dir, tmp_path / "compiled", graph="chain")

    assert manifest.arguments["speculation_length"] == len(TREE) + 1
    request = GenerationRequest(prompt=" red shoes", grammar=ANY_TEXT, trace=True)
    found = loaded(tiny_model_dir, tmp_path / "compiled").generate(request)
    assert found.tokens == loaded(tiny_model_dir, artifacts).generate(request).tokens
    for step in found.steps:
        assert [node.depth for node in step.nodes] == list(range(len(step.nodes))), "no branches"


def test_what_cannot_be_right_is_refused_before_anything_is_compiled(tiny_model_dir: Path, tmp_path: Path) -> None:
    driver = FakeDriver()
    settings = SETTINGS.model_copy(update={"sequence_length": 500})

    with pytest.raises(ConfigurationError, match="seq_len 500"):
        compile_model(tiny_model_dir, tmp_path, tmp_path / "compiled", settings, PACKAGES, driver)
    assert not driver.compiled


def test_a_folder_that_is_not_empty_is_left_alone(tiny_model_dir: Path, artifacts: Path) -> None:
    with pytest.raises(ManifestError, match="is not empty"):
        compiled(tiny_model_dir, artifacts)


def test_a_checkpoint_with_the_published_tree_compiles_as_it_is_and_decodes(
    tiny_model_dir: Path, tmp_path: Path
) -> None:
    """Check 4 heads and 64 rows without a sequence length: 70 + 512 + 4 + 1 + 64 = 651 positions become 704."""
    shutil.copytree(tiny_model_dir.parent, tmp_path / "tiny")
    folder = tmp_path / "tiny" / tiny_model_dir.name
    heads = load_file(folder / "medusa_heads.safetensors")
    heads |= {f"3{name[1:]}": weight.clone() for name, weight in heads.items() if name.startswith("2.")}
    save_file(heads, folder / "medusa_heads.safetensors")
    (folder / "medusa_tree.json").write_text(json.dumps(published_tree.CHOICES), encoding="utf-8")
    settings = CompileSettings(max_prompt_tokens=70, max_new_tokens=512, dtype="float32")

    manifest = compile_model(folder, tmp_path, tmp_path / "compiled", settings, PACKAGES, FakeDriver())

    assert manifest.arguments["medusa_speculation_length"] == published_tree.ROWS
    assert manifest.arguments["seq_len"] == 704
    model = loaded(folder, tmp_path / "compiled")
    medusa, plain = (
        model.generate(GenerationRequest(prompt=" red shoes", grammar=ANY_TEXT, strategy=strategy))
        for strategy in ("medusa", "autoregressive")
    )
    assert medusa.tokens == plain.tokens


def changed_copy(artifacts: Path, tmp_path: Path, **changes: Any) -> Path:
    folder = tmp_path / "copy"
    shutil.copytree(artifacts, folder)
    Manifest.read(folder).model_copy(update=changes).write(folder)
    return folder


@pytest.mark.parametrize(
    ("changes", "words"),
    [
        ({"model": "0123456789ab"}, "it was compiled from model 0123456789ab (tiny-random), and "),
        ({"base": "feedfeedfeed"}, "another base (feedfeedfeed;"),
        ({"sdk": "2.27"}, "Neuron SDK 2.27, and this service runs SDK 2.28"),
        ({"packages": {**PACKAGES, "neuronx-cc": "2.22.1"}}, "neuronx-cc 2.22.1, and 2.23.6484 is here"),
        ({"packages": {}}, "neuronx-cc none, and 2.23.6484 is here"),
        ({"files": {"model.pt": 6}}, "model.pt has 5 bytes, and was written with 6"),
        ({"files": {"weights/tp1_sharded_checkpoint.safetensors": 7}}, "tp1_sharded_checkpoint.safetensors is missing"),
    ],
)
def test_artifacts_of_something_else_refuse_readiness_with_the_difference(
    tiny_model_dir: Path, artifacts: Path, tmp_path: Path, changes: dict[str, Any], words: str
) -> None:
    driver = FakeDriver()

    with pytest.raises(ManifestError) as caught:
        loaded(tiny_model_dir, changed_copy(artifacts, tmp_path, **changes), driver)

    assert words in str(caught.value)
    assert "peakplan compile" in str(caught.value)
    assert not driver.loaded


def test_every_difference_is_said_at_once(tiny_model_dir: Path, artifacts: Path, tmp_path: Path) -> None:
    folder = changed_copy(artifacts, tmp_path, sdk="2.27", packages={})

    with pytest.raises(ManifestError) as caught:
        loaded(tiny_model_dir, folder, max_prompt_tokens=41)

    for words in ("SDK 2.27", "neuronx-cc none", "compiled for max_context_length 40, and 41 is wanted"):
        assert words in str(caught.value)


def test_a_base_of_the_same_sizes_is_another_base(tiny_model_dir: Path, tmp_path: Path) -> None:
    shutil.copytree(tiny_model_dir.parent, tmp_path / "tiny")
    folder, weights = tmp_path / "tiny" / tiny_model_dir.name, tmp_path / "tiny" / "base" / "model.safetensors"
    compiled(folder, tmp_path / "compiled")
    changed = bytearray(weights.read_bytes())
    changed[-1] ^= 1
    weights.write_bytes(changed)

    with pytest.raises(ManifestError, match="it was compiled from another base"):
        loaded(folder, tmp_path / "compiled")


def test_a_changed_model_is_another_model(tiny_model_dir: Path, artifacts: Path, tmp_path: Path) -> None:
    shutil.copytree(tiny_model_dir.parent, tmp_path / "tiny")
    folder = tmp_path / "tiny" / tiny_model_dir.name
    loaded(folder, artifacts)
    (folder / "medusa_tree.json").write_text(json.dumps(TREE[:-1]), encoding="utf-8")

    with pytest.raises(ManifestError, match=f"and {folder} is "):
        loaded(folder, artifacts)


@pytest.mark.parametrize("missing", [FILE, "model.pt"])
def test_nothing_compiles_at_boot_whatever_is_missing(
    tiny_model_dir: Path, artifacts: Path, tmp_path: Path, missing: str
) -> None:
    driver, folder = FakeDriver(), tmp_path / "copy"
    shutil.copytree(artifacts, folder)
    (folder / missing).unlink()

    with pytest.raises(ManifestError, match=missing.replace(".", r"\.")):
        loaded(tiny_model_dir, folder, driver)

    assert not driver.compiled
    assert not driver.loaded
    assert loaded(tiny_model_dir, artifacts, driver).id == MODEL_ID
    assert not driver.compiled


def test_a_manifest_of_another_kind_says_which_field(artifacts: Path, tmp_path: Path) -> None:
    folder = changed_copy(artifacts, tmp_path)
    (folder / FILE).write_text('{"format": 1}', encoding="utf-8")

    with pytest.raises(ManifestError, match="is not a manifest of this version: format: Input should be 2"):
        Manifest.read(folder)


@pytest.mark.parametrize(("cores", "count"), [("", 0), ("3", 1), ("2-3", 2), ("0,4-7", 5)])
def test_cores_are_counted_as_the_runtime_counts_them(cores: str, count: int) -> None:
    assert core_count(cores) == count


def test_each_replica_has_its_own_cores_as_many_as_the_graph_spans(
    tiny_model_dir: Path, artifacts: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv(VISIBLE_CORES, "")  # and is put back

    loaded(tiny_model_dir, artifacts, number=3)

    assert os.environ[VISIBLE_CORES] == "3"  # of graphs that span one core each
    loaded(tiny_model_dir, artifacts)
    monkeypatch.setenv(VISIBLE_CORES, "2-3")
    with pytest.raises(ManifestError, match="it spans 1 NeuronCores, and this replica has 2"):
        loaded(tiny_model_dir, artifacts)


def test_the_commands_say_what_is_missing_and_where_it_comes_from(
    tmp_path: Path, tiny_model_dir: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert command.main(["compile", "--model", str(tiny_model_dir), "--output", str(tmp_path / "compiled")]) == 2

    assert "needs Neuron SDK 2.28" in capsys.readouterr().err
    assert not (tmp_path / "compiled").exists()
