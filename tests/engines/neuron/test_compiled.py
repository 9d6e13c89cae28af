"""A compiled folder: its manifest, its weights, what is loaded from it and started again."""

import json
import os
import shutil
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pytest
import torch
from safetensors.torch import load_file

from service.engines.neuron import __main__ as command
from service.engines.neuron.compilation import compile_model, quantise_checkpoint
from service.engines.neuron.configuration import INT8, CompileSettings
from service.engines.neuron.manifest import FILE, HOST_WEIGHTS, Manifest, ManifestError, check_manifest
from service.engines.neuron.model import NeuronModel
from service.engines.neuron.packages import VISIBLE_CORES
from service.engines.protocol import GenerationRequest, QuestionMeaning
from service.weights.checkpoint import EMBEDDING, read_weights
from tests.bases import write_base
from tests.engines.neuron.fake_compiled import ANY_TEXT, PACKAGES, FakeDriver, compiled, loaded
from tests.engines.test_torch import write_kind_head
from tests.tiny_model import MODEL_ID, TREE


def test_artifacts_carry_all_that_they_were_made_from(tiny_model_dir: Path, artifacts: Path) -> None:
    manifest = Manifest.read(artifacts)

    assert (manifest.model_id, manifest.sdk, manifest.packages) == (MODEL_ID, "2.28", PACKAGES)
    assert sorted(map(tuple, manifest.arguments["medusa_tree"])) == sorted(map(tuple, TREE))
    assert {"model.pt", "tokenizer.json", "host.safetensors"} <= set(manifest.files)
    assert set(load_file(artifacts / "host.safetensors")) == {EMBEDDING}
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


def test_a_folder_that_is_not_empty_is_left_alone(tiny_model_dir: Path, artifacts: Path) -> None:
    with pytest.raises(ManifestError, match="is not empty"):
        compiled(tiny_model_dir, artifacts)


def changed_copy(artifacts: Path, tmp_path: Path, **changes: Any) -> Path:
    folder = tmp_path / "copy"
    shutil.copytree(artifacts, folder)
    Manifest.read(folder).model_copy(update=changes).write(folder)
    return folder


@pytest.mark.parametrize(
    ("changes", "longest", "words"),
    [
        ({"model": "0123456789ab"}, 40, ["it was compiled from model 0123456789ab (tiny-random), and "]),
        ({"base": "feedfeedfeed"}, 40, ["another base (feedfeedfeed;"]),
        ({"packages": {**PACKAGES, "neuronx-cc": "2.22.1"}}, 40, ["neuronx-cc 2.22.1, and 2.23.6484 is here"]),
        ({"files": {"model.pt": 6}}, 40, ["model.pt has 5 bytes, and was written with 6"]),
        ({"files": {"weights/tp1_sharded.safetensors": 7}}, 40, ["tp1_sharded.safetensors is missing"]),
        ({"sdk": "2.27", "packages": {}}, 41,
         ["Neuron SDK 2.27, and this service runs SDK 2.28", "neuronx-cc none, and 2.23.6484 is here",
          "compiled for max_context_length 40, and 41 is wanted"]),
    ],
)  # fmt: skip
def test_artifacts_of_something_else_refuse_readiness_with_every_difference(
    tiny_model_dir: Path, artifacts: Path, tmp_path: Path, changes: dict[str, Any], longest: int, words: list[str]
) -> None:
    driver = FakeDriver()

    with pytest.raises(ManifestError) as caught:
        loaded(tiny_model_dir, changed_copy(artifacts, tmp_path, **changes), driver, max_prompt_tokens=longest)

    assert [each for each in [*words, "peakplan compile"] if each not in str(caught.value)] == []
    assert not driver.loaded


@pytest.mark.parametrize("is_base", [False, True])
def test_a_changed_model_or_base_is_another_one(tiny_model_dir: Path, tmp_path: Path, is_base: bool) -> None:
    shutil.copytree(tiny_model_dir.parent, tmp_path / "tiny")
    folder, weights = tmp_path / "tiny" / tiny_model_dir.name, tmp_path / "tiny" / "base" / "model.safetensors"
    compiled(folder, tmp_path / "compiled")
    loaded(folder, tmp_path / "compiled")
    if is_base:
        weights.write_bytes(weights.read_bytes()[:-1] + bytes([weights.read_bytes()[-1] ^ 1]))
    else:
        (folder / "medusa_tree.json").write_text(json.dumps(TREE[:-1]), encoding="utf-8")

    with pytest.raises(ManifestError, match="it was compiled from another base" if is_base else f"and {folder} is "):
        loaded(folder, tmp_path / "compiled")


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


@pytest.fixture(scope="module")
def model(tiny_model_dir: Path, artifacts: Path) -> NeuronModel:
    return loaded(tiny_model_dir, artifacts)


@pytest.mark.parametrize("word", [" red", " blue", " 7", "\u3042"])
def test_a_choice_is_exact_however_unlikely_the_model_holds_its_tokens(model: NeuronModel, word: str) -> None:
    """Check a grammar of two words among hundreds of tokens: the model's best ones hold neither."""
    grammar = f'start: ("{word}" | " shoes") " waterproof"'
    answers = [
        model.generate(GenerationRequest(prompt=" red", grammar=grammar, strategy=strategy)).text
        for strategy in ("autoregressive", "medusa")
    ]

    assert answers[0] == answers[1]
    assert answers[0] in (f"{word} waterproof", " shoes waterproof")


def test_a_kind_head_reads_a_prompt_that_a_step_holds_and_of_a_longer_one_nothing_is_said(
    tiny_model_dir: Path, tmp_path: Path
) -> None:
    """The prompt's own graph gives the last position's state alone; a direction out of that one would be another's."""
    shutil.copytree(tiny_model_dir.parent, tmp_path / "tiny")
    folder = write_kind_head(tmp_path / "tiny" / tiny_model_dir.name)
    compiled(folder, tmp_path / "compiled")
    reading = loaded(folder, tmp_path / "compiled", kinds=True)
    short, long = (GenerationRequest(prompt=" red shoes" * times, grammar=ANY_TEXT) for times in (2, 8))

    graph = FakeDriver().load(tmp_path / "compiled")
    words = reading._tokenizer.encode(short.prompt, add_special_tokens=False).ids
    tokens = torch.tensor([reading._bos_token_id, *words])
    count = len(tokens)
    assert count <= graph.shape.rows
    causal = torch.ones(count, count, dtype=torch.bool).tril()
    states, _ = graph._hidden(tokens, torch.arange(count), graph._cache[0, :, :, :0], causal)

    meaning = QuestionMeaning.unpacked(reading.generate(short).meaning)
    assert meaning is not None
    assert meaning.direction == pytest.approx([torch.nn.functional.gelu(states[-1, 0]).item()], rel=2e-3, abs=1e-3)
    assert reading.generate(long).meaning == ""
    assert loaded(folder, tmp_path / "compiled").generate(short).meaning == "", "nobody without a shop waits for it"


@pytest.mark.parametrize("architecture", ["llama-2", "qwen2"])
def test_layers_alone_are_quantised_and_biases_stay(architecture: str, tmp_path: Path) -> None:
    base = write_base(tmp_path / architecture, architecture)
    before = read_weights(base)

    quantise_checkpoint(base)

    after = read_weights(base)
    products = {name for name in before if name.startswith("model.layers.") and name.endswith("proj.weight")}
    assert {name for name in after if after[name].dtype == torch.int8} == products
    assert after.keys() - before.keys() == {name.removesuffix("weight") + "scale" for name in products}
    for name in before.keys() - products:
        assert torch.equal(after[name], before[name])


class _Looking(FakeDriver):
    """A driver that looks into the checkpoint that it is given."""

    def compile(self, checkpoint: Path, output: Path, arguments: Mapping[str, Any]) -> None:
        self.kinds = {tensor.dtype for name, tensor in read_weights(checkpoint).items() if "proj.weight" in name}
        super().compile(checkpoint, output, arguments)


@pytest.mark.parametrize("is_int8", [True, False])
def test_it_is_compiled_from_int8_and_the_host_keeps_the_rest_whole(
    tiny_model_dir: Path, tmp_path: Path, is_int8: bool
) -> None:
    driver = _Looking()
    settings = CompileSettings(
        max_prompt_tokens=40, max_new_tokens=512, dtype="float32", weights="int8" if is_int8 else "as computed"
    )

    manifest = compile_model(tiny_model_dir, tmp_path, tmp_path / "compiled", settings, PACKAGES, driver)

    assert (driver.kinds == {torch.int8}) == is_int8
    assert (manifest.arguments.items() >= INT8.items()) == is_int8
    assert load_file(tmp_path / "compiled" / HOST_WEIGHTS)[EMBEDDING].dtype != torch.int8
