"""int8 weights over the real NxDI source: its quantised layers read what we write; see test_real_nxdi.py."""

import shutil
from importlib import import_module
from pathlib import Path

import pytest
import torch
from safetensors.torch import load_file, save_file

from benchmarks import neuron, nxdi_on_cpu
from service.engines.neuron.configuration import INT8
from service.engines.neuron.quantising import quantise_checkpoint, quantised

pytestmark = [
    pytest.mark.skipif(bool(nxdi_on_cpu.why_not()), reason=nxdi_on_cpu.why_not()),
    pytest.mark.filterwarnings("ignore"),  # NxDI's own, by the dozen
]
_WEIGHTS = "model.safetensors"
PROMPT = [5, 9, 2, 7]


def test_the_scheme_is_nxd_s_own() -> None:
    nxdi_on_cpu.import_nxdi()
    theirs = import_module("neuronx_distributed.quantization.quantization_utils")
    weight = torch.randn(48, 64) * torch.logspace(-3, 2, 48)[:, None]
    weight[5] = 0

    values, scale = quantised(weight)

    expected = theirs.quantize_per_channel_symmetric(weight, 0)
    torch.testing.assert_close(scale, theirs.extract_q_scale(expected), rtol=1e-6, atol=0)
    assert torch.equal(values, expected.int_repr())


def _dequantised(folder: Path, into: Path) -> list[int]:
    """Write a quantised checkpoint's weights as they are multiplied; return transformers' greedy tokens."""
    from transformers import LlamaForCausalLM

    shutil.copytree(folder, into)
    tensors = load_file(folder / _WEIGHTS)
    scales = {name for name in tensors if name.endswith(".scale")}
    for name in scales:
        tensors[name.removesuffix("scale") + "weight"] = tensors[name.removesuffix("scale") + "weight"] * tensors[name]
    save_file({name: tensors[name] for name in tensors.keys() - scales}, into / _WEIGHTS, metadata={"format": "pt"})
    model = LlamaForCausalLM.from_pretrained(into, dtype=torch.float32).eval()
    prompt = torch.tensor([PROMPT])
    with torch.inference_mode():
        ids = model.generate(
            prompt, attention_mask=torch.ones_like(prompt), max_new_tokens=neuron.NEW_TOKENS, do_sample=False
        )
    tokens: list[int] = ids[0, len(PROMPT) :].tolist()
    return tokens


@pytest.mark.parametrize("seed", range(3))
def test_tokens_are_those_of_the_weights_as_they_are_multiplied(seed: int, tmp_path: Path) -> None:
    nxdi_on_cpu.import_nxdi()
    made = neuron.random_model(tmp_path / "model", seed)
    before = (made.folder / _WEIGHTS).stat().st_size
    quantise_checkpoint(made.folder)
    expected = _dequantised(made.folder, tmp_path / "dequantised")

    with nxdi_on_cpu.persisted_relocation(), torch.inference_mode():
        model = nxdi_on_cpu.cpu_model(made.folder, neuron.neuron_arguments(neuron.TREE) | INT8)
        each = neuron.RandomModel(made.folder, PROMPT, expected)
        tokens, _ = neuron.ours(model, each, neuron.TREE, relocates=True)

    assert tokens == expected
    kept = dict(model.models[0].model.named_parameters())
    layers = [name for name in kept if name.startswith("layers.") and name.endswith("proj.weight")]
    assert layers
    assert {kept[name].dtype for name in layers} == {torch.int8}
    assert (made.folder / _WEIGHTS).stat().st_size < 0.6 * before
