"""int8 weights: a checkpoint's layers halved, its host weights whole, and compiled with NxDI's arguments for them."""

from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pytest
import torch
from safetensors.torch import load_file

from service.engines.neuron.architectures import architecture_problems
from service.engines.neuron.compilation import compile_model
from service.engines.neuron.configuration import INT8, CompileSettings
from service.engines.neuron.manifest import HOST_WEIGHTS
from service.engines.neuron.quantising import quantise_checkpoint, quantised
from service.weights.checkpoint import EMBEDDING, read_config, read_weights
from tests.bases import write_base
from tests.engines.neuron.fake_driver import PACKAGES, FakeDriver


def test_a_row_is_off_by_half_a_step_at_most_and_zeroes_stay() -> None:
    weight = torch.randn(6, 32) * torch.tensor([1e-4, 1.0, 30.0, 0.0, 2.0, 0.1])[:, None]

    values, scale = quantised(weight)

    assert (values.dtype, values.shape, scale.dtype, scale.shape) == (torch.int8, (6, 32), torch.float32, (6, 1))
    assert ((values * scale - weight).abs() <= scale / 2 * 1.001).all()
    assert not values[3].any()
    assert values.abs().amax(1).tolist() == [127, 127, 127, 0, 127, 127]


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


@pytest.mark.parametrize(("architecture", "is_refused"), [("qwen2", True), ("llama-biased", True), ("qwen3", False)])
def test_an_attention_bias_beside_int8_is_refused(architecture: str, is_refused: bool, tmp_path: Path) -> None:
    config = read_config(write_base(tmp_path / architecture, architecture))

    problems = [*architecture_problems(config, 64, int8=True)]

    assert bool(problems) == is_refused
    assert all("leave out --int8" in problem for problem in problems)
    assert not [*architecture_problems(config, 64)]


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
