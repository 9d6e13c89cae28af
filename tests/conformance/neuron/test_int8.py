"""int8 weights over the real NxDI source: its quantised layers read what we write; see test_real_nxdi.py."""

import shutil
from dataclasses import replace
from importlib import import_module
from pathlib import Path

import pytest
import torch
from safetensors.torch import load_file, save_file

from service.engines.neuron.compilation import quantise_checkpoint, quantised
from service.engines.neuron.configuration import INT8
from service.engines.neuron.nxdi import architecture_problems
from service.planner.vocabulary import FILE_NAME
from service.settings.choices import SHIPPED_MODEL
from service.weights.checkpoint import read_config, weight_files
from service.weights.importing import import_model
from tests.bases import ARCHITECTURES, QUERY, hidden_size, transformers_greedy, write_base, write_heads
from tests.conformance.neuron import nxdi_on_cpu
from tests.conformance.neuron import random_models as neuron
from tests.tiny_model import plan_request

pytestmark = [
    pytest.mark.skipif(bool(nxdi_on_cpu.why_not()), reason=nxdi_on_cpu.why_not()),
    pytest.mark.filterwarnings("ignore"),  # NxDI's own, by the dozen
]
_WEIGHTS = "model.safetensors"
BIASED = ("llama-biased", "qwen2")


def test_the_scheme_is_nxd_s_own() -> None:
    nxdi_on_cpu.import_nxdi()
    theirs = import_module("neuronx_distributed.quantization.quantization_utils")
    weight = torch.randn(48, 64) * torch.logspace(-3, 2, 48)[:, None]
    weight[5] = 0

    values, scale = quantised(weight)

    expected = theirs.quantize_per_channel_symmetric(weight, 0)
    torch.testing.assert_close(scale, theirs.extract_q_scale(expected), rtol=1e-6, atol=0)
    assert torch.equal(values, expected.int_repr())


def _multiplied_out(checkpoint: Path) -> None:
    """Replace a quantised checkpoint's weights by what they are multiplied as."""
    for file in weight_files(checkpoint):
        tensors = load_file(file)
        for name in [name for name in tensors if name.endswith(".scale")]:
            tensors[name.removesuffix("scale") + "weight"] = (
                tensors[name.removesuffix("scale") + "weight"] * tensors[name]
            )
            del tensors[name]
        save_file(tensors, file, metadata={"format": "pt"})


@pytest.mark.parametrize("architecture", [name for name in ARCHITECTURES if name not in BIASED])
def test_its_plans_are_those_of_the_weights_as_they_are_multiplied(architecture: str, tmp_path: Path) -> None:
    nxdi_on_cpu.import_nxdi()
    base = write_base(tmp_path / architecture, architecture)
    quantise_checkpoint(base)
    _multiplied_out(base)  # quantised once more it has the same int8 weights
    expected = transformers_greedy(base)
    beside = {FILE_NAME: SHIPPED_MODEL / FILE_NAME}
    made = import_model(base, tmp_path / "made", write_heads(tmp_path / "heads", hidden_size(base)), beside=beside)

    over_nxdi, _ = neuron.shipped_model(made.folder, tmp_path, tmp_path / "checkpoint", "int8")
    plan = over_nxdi.generate(replace(plan_request(QUERY), max_tokens=48))

    assert plan.tokens == (expected if plan.stop_reason == "finished" else expected[:48])


@pytest.mark.parametrize("architecture", BIASED)
def test_a_bias_beside_int8_weights_cannot_be_sharded_and_is_refused(architecture: str, tmp_path: Path) -> None:
    nxdi_on_cpu.import_nxdi()
    base = write_base(tmp_path / architecture, architecture)
    beside = {FILE_NAME: SHIPPED_MODEL / FILE_NAME}
    made = import_model(base, tmp_path / "made", write_heads(tmp_path / "heads", hidden_size(base)), beside=beside)
    with pytest.raises(NotImplementedError):
        neuron.shipped_model(made.folder, tmp_path, tmp_path / "checkpoint", "int8")
    (problem,) = architecture_problems(read_config(made.folder / "base"), 64, int8=True)
    assert "--int8" in problem


@pytest.mark.parametrize("seed", range(2))
def test_a_tree_s_layers_are_int8_and_its_tokens_exact(seed: int, tmp_path: Path) -> None:
    from transformers import LlamaForCausalLM

    nxdi_on_cpu.import_nxdi()
    made = neuron.random_model(tmp_path / "model", seed)
    quantised_folder = tmp_path / "int8"
    shutil.copytree(made.folder, quantised_folder)
    quantise_checkpoint(quantised_folder)
    shutil.copy(quantised_folder / _WEIGHTS, made.folder)
    _multiplied_out(made.folder)
    model, prompt = LlamaForCausalLM.from_pretrained(made.folder).eval(), torch.tensor([made.prompt])
    with torch.inference_mode():
        asked = {"attention_mask": torch.ones_like(prompt), "max_new_tokens": neuron.NEW_TOKENS, "do_sample": False}
        expected = model.generate(prompt, **asked)[0, len(made.prompt) :].tolist()

    with torch.inference_mode():
        graph = nxdi_on_cpu.cpu_model(quantised_folder, neuron.neuron_arguments(neuron.TREE) | INT8)
        tokens, _ = neuron.ours(graph, made, neuron.TREE)

    assert tokens == expected
    kept = dict(graph.models[0].model.named_parameters())
    layers = [name for name in kept if name.startswith("layers.") and name.endswith("proj.weight")]
    assert layers
    assert {kept[name].dtype for name in layers} == {torch.int8}
    assert (quantised_folder / _WEIGHTS).stat().st_size < 0.6 * (made.folder / _WEIGHTS).stat().st_size
