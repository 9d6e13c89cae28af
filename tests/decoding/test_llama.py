"""The forward in torch's operators, the forwards of every architecture beside transformers' own, and their cache."""

from dataclasses import replace
from typing import Any

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from service.decoding.kv_cache import KVCache
from service.decoding.linear import has_packed_kernels, linear
from service.decoding.llama import Llama
from service.decoding.llama_config import LlamaConfig
from service.decoding.tree import ancestor_mask, path_to
from tests.bases import ARCHITECTURES, random_base
from tests.decoding.tiny import CONFIG, forward_all, random_model

TOKENS = [3, 1, 4, 1, 5, 9, 2, 6]
AS_WIDE_AS_OURS = replace(CONFIG, hidden_size=576, intermediate_size=1536, num_heads=9, num_kv_heads=3, head_dim=64)


@st.composite
def parents(draw: st.DrawFn) -> list[int]:
    """Draw any tree of up to nine nodes, parents first."""
    return [draw(st.integers(-1, node - 1)) if node else -1 for node in range(draw(st.integers(1, 9)))]


@given(parents=parents(), prefix=st.integers(0, 5), seed=st.integers(0, 3))
@settings(max_examples=80, deadline=None)
def test_every_node_of_a_tree_reads_its_own_path_alone(parents: list[int], prefix: int, seed: int) -> None:
    model = random_model(seed)
    before = TOKENS[:prefix]
    tokens = [(5 * node + seed) % CONFIG.vocab_size for node in range(len(parents))]
    depths = [len(path_to(node, parents)) - 1 for node in range(len(parents))]
    cache = model.new_cache(prefix + len(parents))
    if before:
        model.forward(torch.tensor(before), torch.arange(prefix), cache)
        cache.keep(range(prefix))

    hidden = model.forward(torch.tensor(tokens), torch.tensor(depths) + prefix, cache, ancestor_mask(parents))

    for node in range(len(parents)):
        path = [tokens[ancestor] for ancestor in path_to(node, parents)]
        alone = forward_all(model, before + path)[-1]
        torch.testing.assert_close(hidden[node], alone, rtol=1e-4, atol=1e-4)


@st.composite
def prefixed_trees(draw: st.DrawFn) -> tuple[int, list[int]]:
    return draw(st.integers(1, 60)), draw(parents())


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16])
def test_a_state_is_the_same_to_the_last_bit_whatever_is_read_with_it(dtype: torch.dtype) -> None:
    if not (has_packed_kernels(dtype) and products_ignore_company(dtype)):
        pytest.skip(f"this CPU's kernels sum {dtype} differently for different numbers of rows")
    model = random_model(0, AS_WIDE_AS_OURS, dtype)

    @given(prefixed_trees())
    @settings(max_examples=15, deadline=None)
    def check(case: tuple[int, list[int]]) -> None:
        prefix, parents = case
        tokens = [(5 * node + 3) % CONFIG.vocab_size for node in range(prefix + len(parents))]
        depths = torch.tensor([len(path_to(node, parents)) - 1 for node in range(len(parents))])
        cache = model.new_cache(len(tokens))
        before = torch.tensor(tokens[:prefix])
        model.forward(before, torch.arange(prefix), cache)
        cache.keep(range(prefix))
        new = torch.tensor(tokens[prefix:])
        together = model.forward(new, depths + prefix, cache, ancestor_mask(parents))

        path = path_to(len(parents) - 1, parents)
        for node in path:  # one by one, as greedy decoding does
            alone = model.forward(new[node : node + 1], depths[node : node + 1] + prefix, cache)
            cache.keep([0])
            assert torch.equal(alone[0], together[node])

    check()


def products_ignore_company(dtype: torch.dtype) -> bool:
    """Tell whether this CPU's oneDNN and MKL sum a row alike among few and among many rows."""
    generator = torch.Generator().manual_seed(0)
    weight = torch.randn((96, 1536), generator=generator)
    x = torch.randn((40, 1536), generator=generator)
    packed = linear(weight.to(dtype))
    keys = torch.randn((3, 64, 100), generator=generator)
    queries = torch.randn((3, 60, 64), generator=generator)
    return torch.equal(packed(x.to(dtype))[:4], packed(x[:4].to(dtype))) and torch.equal(
        torch.bmm(queries, keys)[:, :12, :17], torch.bmm(queries[:, :12], keys[..., :17])
    )


def test_a_full_cache_is_refused() -> None:
    model = random_model(0)
    cache = model.new_cache(20)
    cache.length = 19

    with pytest.raises(ValueError, match="2 nodes after 19 positions overflow a cache of 20"):
        model.forward(torch.tensor([1, 2]), torch.tensor([19, 20]), cache)


def test_places_in_the_cache_that_do_not_ascend_or_fit_are_refused() -> None:
    cache = KVCache(torch.zeros(1, 2, 1, 8, 4))
    for offsets in ([1, 0], [2, 2], [-1]):
        with pytest.raises(ValueError, match="do not ascend from 0"):
            cache.keep(offsets)
    for offsets in ([8], [0, 1, 8]):
        with pytest.raises(ValueError, match="offset 8 after 0 positions overflows a cache of 8"):
            cache.keep(offsets)
    assert cache.length == 0


MANY = [3, 1, 4, 1, 5, 9, 2, 6, 5, 3, 5, 8, 9, 7, 9, 3, 2, 3, 8, 4]


def ours(model: Any) -> tuple[LlamaConfig, dict[str, torch.Tensor]]:
    return LlamaConfig.from_dict(model.config.to_dict()), dict(model.state_dict())


@pytest.mark.parametrize("architecture", ARCHITECTURES)
def test_torch_s_forward_is_transformers_own(architecture: str) -> None:
    reference = random_base(architecture)
    config, weights = ours(reference)
    with torch.inference_mode():
        expected = reference(torch.tensor([MANY])).logits[0]

    model = Llama(config, weights, torch.float32)

    torch.testing.assert_close(model.lm_head.logits(forward_all(model, MANY)), expected, rtol=2e-4, atol=2e-4)


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
