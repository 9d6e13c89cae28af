"""The forwards of every architecture beside transformers' own, and the description that they are made from."""

import ctypes
from dataclasses import replace
from typing import Any

import pytest
import torch

from service.decoding.llama import Llama
from service.decoding.llama_config import LlamaConfig, RopeScaling
from service.decoding.native_llama import NativeLlama
from service.decoding.tree import ancestor_mask
from tests.bases import ARCHITECTURES, config_of, random_base
from tests.decoding.tiny import forward_all

TOKENS = [3, 1, 4, 1, 5, 9, 2, 6, 5, 3, 5, 8, 9, 7, 9, 3, 2, 3, 8, 4]


@pytest.fixture(params=ARCHITECTURES)
def architecture(request: pytest.FixtureRequest) -> str:
    name: str = request.param
    return name


def ours(model: Any) -> tuple[LlamaConfig, dict[str, torch.Tensor]]:
    return LlamaConfig.from_dict(model.config.to_dict()), dict(model.state_dict())


def test_torch_s_forward_is_transformers_own(architecture: str) -> None:
    reference = random_base(architecture)
    config, weights = ours(reference)
    with torch.inference_mode():
        expected = reference(torch.tensor([TOKENS])).logits[0]

    model = Llama(config, weights, torch.float32)

    torch.testing.assert_close(model.logits(forward_all(model, TOKENS)), expected, rtol=2e-4, atol=2e-4)


def test_the_int8_kernels_are_as_near_to_it_as_they_are_for_llama(architecture: str, library: ctypes.CDLL) -> None:
    config, weights = ours(random_base(architecture))
    exact = forward_all(Llama(config, weights, torch.float32), TOKENS)

    computed = forward_all(NativeLlama(config, weights, library), TOKENS)

    assert computed.shape == exact.shape
    assert (computed - exact).norm() / exact.norm() < 0.05


def test_a_node_of_a_tree_has_the_bits_of_its_path(architecture: str, library: ctypes.CDLL) -> None:
    config, weights = ours(random_base(architecture))
    model = NativeLlama(config, weights, library)
    cache = model.new_cache(20)
    model.forward(torch.tensor(TOKENS[:9]), torch.arange(9), cache)
    cache.keep(range(9))
    tree = torch.tensor([7, 8, 9, 10, 11])
    read = model.forward(tree, torch.tensor([9, 10, 10, 11, 11]), cache, ancestor_mask([-1, 0, 0, 1, 2]))

    alone = forward_all(model, [*TOKENS[:9], 7, 9, 11])

    assert torch.equal(read[4], alone[-1])
    torch.testing.assert_close(model.lm_head.logits(alone, torch.arange(5)), model.logits(alone)[:, :5], atol=1, rtol=1)


def test_each_says_what_it_adds() -> None:
    def described(name: str) -> LlamaConfig:
        return LlamaConfig.from_dict(config_of(name, 128).to_dict())

    assert described("llama-3").rope_scaling == RopeScaling("llama3", 8.0, 1.0, 4.0, 64)
    assert (described("qwen2").qkv_bias, described("qwen2").output_bias) == (True, False)
    assert (described("llama-biased").qkv_bias, described("llama-biased").output_bias) == (True, True)
    assert described("qwen3").qk_norm
    assert described("smollm3").unrotated_layers == (3,)
    assert (described("mistral-v0.1").longest_sequence, described("mistral-v0.2").longest_sequence) == (2048, 4096)


OLD = {
    "hidden_size": 64, "intermediate_size": 128, "num_hidden_layers": 8, "num_attention_heads": 4, "vocab_size": 9,
    "rms_norm_eps": 1e-5, "max_position_embeddings": 32_768, "hidden_act": "silu", "num_key_value_heads": 4,
}  # fmt: skip


@pytest.mark.parametrize(
    ("older", "newer"),
    [
        ({"rope_theta": 1e6}, {"rope_parameters": {"rope_theta": 1e6, "rope_type": "default"}}),
        (
            {"rope_theta": 5e5, "rope_scaling": {"type": "linear", "factor": 2.0}},
            {"rope_parameters": {"rope_theta": 5e5, "rope_type": "linear", "factor": 2.0}},
        ),
        (
            {"rope_theta": 1e6, "layer_types": ["full_attention"] * 8},
            {"rope_parameters": {"full_attention": {"rope_theta": 1e6, "rope_type": "default"}}},
        ),
        ({}, {"rope_parameters": {"rope_theta": 10_000.0, "rope_type": "default"}}),
    ],
)
def test_transformers_4_and_5_write_the_same_thing_in_two_forms(older: dict[str, Any], newer: dict[str, Any]) -> None:
    described = LlamaConfig.from_dict({**OLD, **older})

    assert described == LlamaConfig.from_dict({**OLD, **newer})
    assert described == LlamaConfig.from_dict({**OLD, **described.rope_fields()}), "and what we write is read alike"


def test_what_a_config_leaves_out_is_its_type_s_default() -> None:
    bare = {name: value for name, value in OLD.items() if name != "num_key_value_heads"}

    smollm3 = LlamaConfig.from_dict({**bare, "model_type": "smollm3"})
    assert (smollm3.rope_theta, smollm3.tie_word_embeddings, smollm3.unrotated_layers) == (2e6, True, (3, 7))
    mistral = LlamaConfig.from_dict({**OLD, "model_type": "mistral"})
    assert mistral.sliding_window == 4096
    assert LlamaConfig.from_dict({**OLD, "model_type": "mistral", "sliding_window": None}).sliding_window is None
    assert LlamaConfig.from_dict({**OLD, "model_type": "qwen2", "num_key_value_heads": None}).num_kv_heads == 4
    qwen = {**OLD, "model_type": "qwen2", "sliding_window": 4096}
    assert LlamaConfig.from_dict(qwen).sliding_window is None
    assert LlamaConfig.from_dict({**qwen, "use_sliding_window": True}).sliding_window == 4096


@pytest.mark.parametrize(
    ("changes", "named"),
    [
        ({"model_type": "gemma2"}, "model_type 'gemma2' is not served; llama, mistral, qwen2, qwen3 and smollm3 are"),
        ({"hidden_act": "gelu"}, "activation 'gelu'"),
        ({"mlp_bias": True}, "mlp_bias"),
        ({"rope_scaling": {"rope_type": "yarn", "factor": 4.0}}, "rotary embedding of type 'yarn'"),
        ({"rope_theta": 1e4, "rope_parameters": {"rope_theta": 1e6}}, "contradict each other"),
        ({"partial_rotary_factor": 0.5}, "partial_rotary_factor"),
        ({"final_logit_softcapping": 30.0}, "final_logit_softcapping"),
        ({"layer_types": ["linear_attention"] * 8}, "layers of type 'linear_attention'"),
        ({"num_key_value_heads": 3}, "4 attention heads cannot share 3"),
    ],
)
def test_what_is_computed_otherwise_is_refused_by_name(changes: dict[str, Any], named: str) -> None:
    with pytest.raises(ValueError, match=named):
        LlamaConfig.from_dict({**OLD, **changes})


WITHOUT: dict[str, dict[str, Any]] = {
    "qwen2": {"qkv_bias": False},
    "qwen3": {"qk_norm": False},
    "llama-3": {"rope_scaling": None},
    "smollm3": {"unrotated_layers": ()},
    "llama-biased": {"output_bias": False},
}


@pytest.mark.parametrize("name", WITHOUT)
def test_without_what_it_adds_its_states_differ(name: str) -> None:
    config, weights = ours(random_base(name))
    whole = forward_all(Llama(config, weights, torch.float32), TOKENS)

    part = forward_all(Llama(replace(config, **WITHOUT[name]), weights, torch.float32), TOKENS)

    assert (whole - part).norm() / whole.norm() > 0.01
