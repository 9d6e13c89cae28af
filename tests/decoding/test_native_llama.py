"""The forward in int8 kernels: near the model in float32, and a node's bits depend on its path alone."""

import contextlib
import ctypes
import os
import socket
import sys
import time
from dataclasses import replace
from functools import partial
from pathlib import Path

import numpy as np
import pytest
import torch
import torch.nn.functional as F
from hypothesis import given, settings
from hypothesis import strategies as st
from torch import Tensor

from service.decoding.llama import NEVER, ForwardInput, ForwardStoppedError, Interruption, Llama, rotary_table
from service.decoding.llama_config import LlamaConfig
from service.decoding.native.library import NativeUnavailableError, load_kernels
from service.decoding.native_llama import NativeLinear, NativeLlama
from service.decoding.tree import MedusaTree, ancestor_mask
from tests.bases import ARCHITECTURES, random_base
from tests.decoding.test_llama import MANY, ours
from tests.decoding.tiny import (
    NARROW,
    compile_grammar,
    decode_greedy,
    decode_medusa,
    encode,
    forward_all,
    random_heads,
    random_weights,
)

TOKENS = [3, 1, 4, 1, 5, 9, 2, 6, 5, 3, 5, 8]


@pytest.fixture(scope="session")
def library() -> ctypes.CDLL:
    """Load the int8 kernels, where this machine supports them."""
    try:
        return load_kernels().functions
    except NativeUnavailableError as error:
        pytest.skip(f"the int8 kernels cannot run here: {error}")


@pytest.mark.parametrize(
    "config",
    [
        NARROW,
        replace(NARROW, tie_word_embeddings=False),
        replace(NARROW, num_heads=2, num_kv_heads=1, head_dim=64),
        replace(NARROW, num_heads=4, num_kv_heads=4, head_dim=48, hidden_size=192),
        replace(NARROW, num_heads=1, num_kv_heads=1, head_dim=128),
    ],
    ids=["two-registers", "untied", "four-registers", "any-width", "eight-registers"],
)
def test_computes_the_quantised_model(library: ctypes.CDLL, config: LlamaConfig) -> None:
    """Compare with a plain forward that rounds weights and activations as the kernels do, and with float32."""
    weights = random_weights(config, seed=3)
    exact = forward_all(Llama(config, weights, torch.float32), TOKENS)

    computed = forward_all(NativeLlama(config, weights, library), TOKENS)

    assert (computed - reference_forward(config, weights, TOKENS)).norm() / exact.norm() < 0.02  # roundings flip
    assert (computed - exact).norm() / exact.norm() < 0.15


def rounded_product(x: Tensor, weight: Tensor) -> Tensor:
    """Multiply x [N, in], a scale per row and 64 inputs, by weight [out, in], a scale per output, both in int8."""
    groups = x.unflatten(1, (-1, 64))
    scale = groups.abs().amax(-1, keepdim=True).clamp(min=1e-30) / 127
    weight_scale = weight.abs().amax(1, keepdim=True) / 127
    return ((groups / scale).round() * scale).flatten(1) @ ((weight / weight_scale).round() * weight_scale).T


def reference_forward(config: LlamaConfig, weights: dict[str, Tensor], tokens: list[int]) -> Tensor:
    """Return causal hidden states [N, H] from torch's float64 operators only."""
    weights = {name: value.double() for name, value in weights.items()}
    rotary = rotary_table(config, torch.device("cpu"))[: len(tokens), :, None].double()  # [N, 2, 1, D]

    def norm(x: Tensor, name: str) -> Tensor:
        return F.rms_norm(x, x.shape[1:], weights[f"{name}.weight"], config.rms_norm_eps)

    def rotate(x: Tensor) -> Tensor:
        return x * rotary[:, 0] + x.roll(config.head_dim // 2, -1) * rotary[:, 1]

    hidden = weights["model.embed_tokens.weight"].bfloat16().double()[torch.tensor(tokens)]
    for index in range(config.num_layers):
        prefix = f"model.layers.{index}."
        product = partial(_product, weights, prefix)
        x = norm(hidden, f"{prefix}input_layernorm")
        query, key, value = (product(x, f"self_attn.{name}_proj").unflatten(1, (-1, config.head_dim)) for name in "qkv")
        mixed = F.scaled_dot_product_attention(
            rotate(query).transpose(0, 1)[None], rotate(key).transpose(0, 1)[None], value.transpose(0, 1)[None],
            is_causal=True, enable_gqa=True,
        )  # fmt: skip
        hidden = hidden + product(mixed[0].transpose(0, 1).flatten(1), "self_attn.o_proj")
        x = norm(hidden, f"{prefix}post_attention_layernorm")
        hidden = hidden + product(F.silu(product(x, "mlp.gate_proj")) * product(x, "mlp.up_proj"), "mlp.down_proj")
    return norm(hidden, "model.norm").float()


def _product(weights: dict[str, Tensor], prefix: str, x: Tensor, name: str) -> Tensor:
    return rounded_product(x, weights[f"{prefix}{name}.weight"])


@settings(max_examples=40, deadline=None)
@given(data=st.data(), count=st.integers(1, 27))
def test_a_node_depends_on_its_path_alone(library: ctypes.CDLL, data: st.DataObject, count: int) -> None:
    """Check that a node of any tree has the bits of reading its path one token at a time."""
    model = NativeLlama(NARROW, random_weights(NARROW, seed=4), library)
    parents = [-1] + [data.draw(st.integers(0, node - 1)) for node in range(1, count)]
    tokens = data.draw(st.lists(st.integers(1, NARROW.vocab_size - 1), min_size=count, max_size=count))
    prefix = data.draw(st.lists(st.integers(1, NARROW.vocab_size - 1), min_size=1, max_size=20))
    path = [count - 1]
    while parents[path[0]] >= 0:
        path.insert(0, parents[path[0]])
    depths = [0] * count
    for node in range(1, count):
        depths[node] = depths[parents[node]] + 1

    cache = model.new_cache(len(prefix) + count)
    model.forward(torch.tensor(prefix), torch.arange(len(prefix)), cache)
    cache.keep(range(len(prefix)))
    positions = torch.tensor(depths) + len(prefix)
    tree = model.forward(torch.tensor(tokens), positions, cache, ancestor_mask(parents))

    one_by_one = model.new_cache(len(prefix) + count)
    for position, token in enumerate([*prefix, *(tokens[node] for node in path)]):
        alone = model.forward(torch.tensor([token]), torch.tensor([position]), one_by_one)
        one_by_one.keep([0])
    assert torch.equal(tree[-1], alone[0])


def test_requests_that_share_a_forward_have_the_states_of_their_own(library: ctypes.CDLL) -> None:
    """Check trees and chains after prefixes of several lengths, in more rows than a tile and than a panel have."""
    model = NativeLlama(NARROW, random_weights(NARROW, seed=5), library)
    forks, most = ancestor_mask([-1, 0, 0, 1, 2]), NARROW.vocab_size

    def inputs() -> list[ForwardInput]:
        made = []
        for prefix, count, mask in ((0, 30, None), (7, 5, forks), (20, 1, None), (3, 5, forks), (11, 25, None)):
            cache = model.new_cache(prefix + count)
            if prefix:
                model.forward((torch.arange(prefix) + count) % most, torch.arange(prefix), cache)
                cache.keep(range(prefix))
            made.append(ForwardInput((torch.arange(count) + 1) % most, torch.arange(count) + prefix, cache, mask))
        return made

    alone, shared = inputs(), inputs()
    states = [model.forward(*each) for each in alone]
    for one, other in zip(states, model.forward_batch(shared), strict=True):
        assert torch.equal(one, other)
    for one, other in zip(alone, shared, strict=True):
        assert torch.equal(one.cache.data, other.cache.data)

    asked, read = inputs()[:3], list[int]()
    counted = model._library.peakplan_forward_batch

    class Counting:
        def __getattr__(self, name: str) -> object:
            return getattr(library, name)

        def peakplan_forward_batch(self, *arguments: object) -> int:
            read.append(int(arguments[-1]))  # type: ignore[call-overload]
            return int(counted(*arguments))

    model._library = Counting()  # type: ignore[assignment]
    model.forward_batch(asked)
    assert read == [3]  # the weights are read once for all of them


@pytest.mark.parametrize("seed", range(3))
def test_medusa_writes_exactly_what_greedy_writes(library: ctypes.CDLL, seed: int) -> None:
    model = NativeLlama(NARROW, random_weights(NARROW, seed=seed), library)
    heads = random_heads(seed, 3, NARROW)
    tree = MedusaTree.from_choices([[0], [1], [0, 0], [0, 1], [0, 0, 0]], 3)
    grammar = r"start: /( ?[a-g]{1,4}){2,8}/"
    prompt = encode("abcd efg ab")

    greedy = decode_greedy(model, prompt, compile_grammar(grammar), max_tokens=20)
    medusa = decode_medusa(model, heads, tree, prompt, compile_grammar(grammar), max_tokens=20)

    assert medusa.tokens == greedy.tokens


def test_heads_and_logits_are_those_of_torch(library: ctypes.CDLL) -> None:
    weights = random_weights(NARROW, seed=5)
    model, reference = NativeLlama(NARROW, weights, library), Llama(NARROW, weights, torch.bfloat16)
    hidden = torch.randn(NARROW.hidden_size, generator=torch.Generator().manual_seed(6))
    tokens = np.array([0, 3, NARROW.vocab_size - 1])
    heads = random_heads(5, 3, NARROW)

    np.testing.assert_allclose(
        model.lm_head.of_tokens(hidden, tokens), reference.lm_head.of_tokens(hidden, tokens), rtol=1e-5, atol=1e-5
    )
    ours, exact = heads.with_products(model.linear).hidden(hidden), heads.hidden(hidden)
    assert (ours - exact).norm() / exact.norm() < 0.02


def test_a_forward_stops_between_layers_and_leaves_no_trace(library: ctypes.CDLL) -> None:
    config = replace(NARROW, num_layers=60)
    model = NativeLlama(config, random_weights(config, seed=5), library)
    tokens, positions = torch.tensor(TOKENS * 3), torch.arange(36)
    ours, theirs = socket.socketpair()
    with ours, theirs:
        model.stop_when(Interruption(socket=ours.fileno(), deadline=time.monotonic() + 60))
        expected = model.forward(tokens, positions, model.new_cache(40))
        theirs.send(b"x")
        with pytest.raises(ForwardStoppedError):
            model.forward(tokens, positions, model.new_cache(40))

    model.stop_when(NEVER)
    read = 0  # layers that were read before the deadline
    while not 0 < read < config.num_layers:
        cache, started = model.new_cache(40), time.monotonic()
        assert torch.equal(model.forward(tokens, positions, cache), expected)
        model.stop_when(Interruption(deadline=time.monotonic() + (time.monotonic() - started) / 2))
        cache.data.zero_()
        with contextlib.suppress(ForwardStoppedError):
            model.forward(tokens, positions, cache)
        read = int(cache.data.flatten(1).any(1).sum())
        model.stop_when(NEVER)
    assert torch.equal(model.forward(tokens, positions, cache), expected)


MEGABYTE = 2**20


@pytest.mark.parametrize("inputs", [64, 576, 640, 1600], ids=["a group", "a chunk", "two chunks", "three chunks"])
def test_a_row_s_product_does_not_depend_on_the_rows_beside_it(library: ctypes.CDLL, inputs: int) -> None:
    """Rows of one tile, of several tiles, and of more than one panel (at most 48 rows)."""
    generator = torch.Generator().manual_seed(inputs)
    product = NativeLinear(torch.randn((96, inputs), generator=generator), library)
    rows = torch.randn((101, inputs), generator=generator)
    alone = torch.cat([product(row[None]) for row in rows])
    for count in (2, 5, 6, 7, 8, 13, 16, 48, 49, 101):
        assert torch.equal(product(rows[:count]), alone[:count])


@pytest.mark.skipif(sys.platform != "linux", reason="processes tell their shared memory on Linux")
def test_processes_that_are_forked_share_the_weights(library: ctypes.CDLL) -> None:
    """Replicas of one host are forked (fork_server.py): multiplying must not copy what all of them read."""
    product = NativeLinear(torch.ones((16_384, 4096)), library)
    rows = torch.ones((8, 4096))
    reading, writing = os.pipe()
    child = os.fork()
    if child == 0:
        product(rows)
        os.write(writing, repr(_memory()).encode())
        os._exit(0)
    os.close(writing)
    with os.fdopen(reading, "rb") as answer:
        shared, private = map(int, answer.read().decode().strip("()").split(","))
    assert os.waitpid(child, 0)[1] == 0
    assert shared >= 64 * MEGABYTE
    assert private < 16 * MEGABYTE


def _memory() -> tuple[int, int]:
    """Return the bytes that this process shares with others, and those that it has alone."""
    lines = (line.split() for line in Path("/proc/self/smaps_rollup").read_text(encoding="ascii").splitlines()[1:])
    sizes = {name.rstrip(":"): 1024 * int(size) for name, size, *_ in lines}
    return sizes["Shared_Clean"] + sizes["Shared_Dirty"], sizes["Private_Clean"] + sizes["Private_Dirty"]


PADDED = {  # widths that do not fit
    "inner": replace(NARROW, intermediate_size=100), "heads": replace(NARROW, num_heads=16, head_dim=8),
    "hidden": replace(NARROW, hidden_size=72),
}  # fmt: skip


@pytest.mark.parametrize("name", [*ARCHITECTURES, *PADDED])
def test_every_architecture_and_width_is_near_to_its_forward_in_float32(name: str, library: ctypes.CDLL) -> None:
    padded = PADDED.get(name)
    config, weights = (padded, random_weights(padded, seed=1)) if padded else ours(random_base(name))
    exact = forward_all(Llama(config, weights, torch.float32), MANY)

    computed = forward_all(NativeLlama(config, weights, library), MANY)

    assert computed.shape == exact.shape
    assert (computed - exact).norm() / exact.norm() < (0.15 if padded else 0.05)


@pytest.mark.parametrize("name", ARCHITECTURES)
def test_a_node_of_a_tree_has_the_bits_of_its_path(name: str, library: ctypes.CDLL) -> None:
    config, weights = ours(random_base(name))
    model = NativeLlama(config, weights, library)
    cache = model.new_cache(20)
    model.forward(torch.tensor(MANY[:9]), torch.arange(9), cache)
    cache.keep(range(9))
    tree = torch.tensor([7, 8, 9, 10, 11])
    read = model.forward(tree, torch.tensor([9, 10, 10, 11, 11]), cache, ancestor_mask([-1, 0, 0, 1, 2]))

    alone = forward_all(model, [*MANY[:9], 7, 9, 11])

    assert torch.equal(read[4], alone[-1])
    torch.testing.assert_close(
        model.lm_head.logits(alone, torch.arange(5)), model.lm_head.logits(alone)[:, :5], atol=1, rtol=1
    )
