from dataclasses import asdict, replace
from typing import Any

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from transformers import LlamaConfig as TransformersConfig
from transformers import LlamaForCausalLM

from service.decoding.interruption import ForwardStoppedError, Interruption
from service.decoding.linear import has_packed_kernels, linear
from service.decoding.llama import Llama
from service.decoding.llama_config import LlamaConfig
from service.decoding.tree import ancestor_mask, path_to
from tests.decoding.tiny import CONFIG, UNTIED, forward_all, random_model, random_weights

TOKENS = [3, 1, 4, 1, 5, 9, 2, 6]
AS_WIDE_AS_OURS = replace(CONFIG, hidden_size=576, intermediate_size=1536, num_heads=9, num_kv_heads=3, head_dim=64)


def hugging_face_config(config: LlamaConfig) -> dict[str, Any]:
    renamed = {
        "num_layers": "num_hidden_layers",
        "num_heads": "num_attention_heads",
        "num_kv_heads": "num_key_value_heads",
    }
    return {renamed.get(name, name): value for name, value in asdict(config).items()}


@pytest.mark.parametrize(
    "config",
    [
        CONFIG,
        UNTIED,
        replace(CONFIG, num_kv_heads=4),
        replace(CONFIG, num_kv_heads=1),
        replace(CONFIG, head_dim=16, num_layers=3, rope_theta=50.0),
    ],
    ids=["tied", "untied", "no-grouping", "one-kv-head", "wide-heads"],
)
def test_agrees_with_transformers(config: LlamaConfig) -> None:
    weights = random_weights(config, seed=1)
    reference = LlamaForCausalLM(TransformersConfig(**hugging_face_config(config)))
    missing, unexpected = reference.load_state_dict(weights, strict=False)
    assert not unexpected
    assert missing in ([], ["lm_head.weight"])
    model = Llama(config, weights, torch.float32)

    with torch.inference_mode():
        expected = reference(torch.tensor([TOKENS])).logits[0]

    torch.testing.assert_close(model.logits(forward_all(model, TOKENS)), expected, rtol=1e-4, atol=1e-4)


def test_reads_the_config_that_transformers_writes() -> None:
    written = TransformersConfig(**hugging_face_config(CONFIG)).to_dict()

    assert LlamaConfig.from_dict(written) == CONFIG


def test_config_defaults_follow_llama() -> None:
    minimal = hugging_face_config(CONFIG)
    for optional in ("num_key_value_heads", "head_dim", "rope_theta", "tie_word_embeddings"):
        del minimal[optional]

    assert LlamaConfig.from_dict(minimal) == replace(UNTIED, num_kv_heads=4, rope_theta=10_000.0)


@pytest.mark.parametrize(
    ("change", "reason"),
    [
        ({"hidden_act": "gelu"}, "activation 'gelu'"),
        ({"mlp_bias": True}, "mlp_bias"),
    ],
)
def test_refuses_what_it_does_not_compute(change: dict[str, Any], reason: str) -> None:
    with pytest.raises(ValueError, match=reason):
        LlamaConfig.from_dict({**hugging_face_config(CONFIG), **change})


def test_bfloat16_stays_near_float32() -> None:
    exact = random_model(2)
    rounded = random_model(2, dtype=torch.bfloat16)

    hidden, expected = forward_all(rounded, TOKENS), forward_all(exact, TOKENS)

    assert hidden.dtype is torch.bfloat16
    assert torch.nn.functional.cosine_similarity(hidden.float(), expected).min() > 0.99


@given(sizes=st.lists(st.integers(1, 5), min_size=1, max_size=5), seed=st.integers(0, 3))
@settings(max_examples=40, deadline=None)
def test_reading_in_pieces_equals_reading_at_once(sizes: list[int], seed: int) -> None:
    model = random_model(seed)
    tokens = [(7 * index + seed) % CONFIG.vocab_size for index in range(sum(sizes))]
    cache = model.new_cache(len(tokens))
    pieces = []
    for size in sizes:
        start = cache.length
        pieces.append(
            model.forward(torch.tensor(tokens[start : start + size]), torch.arange(start, start + size), cache)
        )
        cache.keep(range(size))

    torch.testing.assert_close(torch.cat(pieces), forward_all(model, tokens), rtol=1e-4, atol=1e-4)


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


def test_rows_of_padding_leave_no_trace() -> None:
    model = random_model(0)
    cache = model.new_cache(6)

    hidden = model.forward(torch.tensor([3]), torch.tensor([0]), cache)

    assert hidden.shape == (1, CONFIG.hidden_size)
    assert cache.data[:, :, :, 1:].count_nonzero() == 0


def test_a_full_cache_is_refused() -> None:
    model = random_model(0)
    cache = model.new_cache(20)
    cache.length = 19

    with pytest.raises(ValueError, match="2 nodes after 19 positions overflow a cache of 20"):
        model.forward(torch.tensor([1, 2]), torch.tensor([19, 20]), cache)


def test_a_forward_stops_between_layers() -> None:
    model = Llama(CONFIG, random_weights(CONFIG, seed=0), torch.float32)
    cache, tokens = model.new_cache(16), torch.arange(3)
    looks = iter([False, True])
    model.stop_when(Interruption(lambda: next(looks)))
    with pytest.raises(ForwardStoppedError):
        model.forward(tokens, tokens, cache)
    assert [bool(layer.any()) for layer in cache.data] == [True] + [False] * (CONFIG.num_layers - 1)


def test_missing_weights_are_named() -> None:
    weights = random_weights(CONFIG, seed=0)
    del weights["model.layers.1.mlp.up_proj.weight"]

    with pytest.raises(KeyError, match=r"model\.layers\.1\.mlp\.up_proj\.weight"):
        Llama(CONFIG, weights, torch.float32)
