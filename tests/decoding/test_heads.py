from pathlib import Path

import numpy as np
import pytest
import torch
from safetensors.torch import save_file
from torch import Tensor
from torch.nn.functional import silu

from service.decoding.heads import MedusaHeads
from service.decoding.linear import Linear, linear
from service.decoding.lm_head import LmHead

HIDDEN, VOCABULARY = 8, 30


def random_state(count: int, *, own_lm_heads: bool = False) -> dict[str, Tensor]:
    generator = torch.Generator().manual_seed(count)
    state = {}
    for head in range(count):
        state[f"{head}.0.linear.weight"] = torch.randn(HIDDEN, HIDDEN, generator=generator)
        state[f"{head}.0.linear.bias"] = torch.randn(HIDDEN, generator=generator)
        if own_lm_heads:
            state[f"{head}.1.weight"] = torch.randn(VOCABULARY, HIDDEN, generator=generator)
    return state


@pytest.mark.parametrize("count", [1, 2, 11])
def test_each_head_is_a_residual_block(count: int) -> None:
    state = random_state(count)
    heads = MedusaHeads.from_state_dict(state)
    hidden = torch.randn(HIDDEN, generator=torch.Generator().manual_seed(9))

    states = heads.hidden(hidden)

    assert heads.num_heads == count
    for head in range(count):
        block = silu(state[f"{head}.0.linear.weight"] @ hidden + state[f"{head}.0.linear.bias"])
        torch.testing.assert_close(states[head], hidden + block)


def test_other_products_make_the_same_heads_and_leave_the_first_as_they_were() -> None:
    heads = MedusaHeads.from_state_dict(random_state(3))
    hidden = torch.randn(HIDDEN, generator=torch.Generator().manual_seed(9))
    shapes = []

    def make(weight: Tensor) -> Linear:
        shapes.append(tuple(weight.shape))
        return linear(2 * weight)

    doubled = heads.with_products(make)

    assert shapes == [(3 * HIDDEN, HIDDEN)]
    before, after = heads.hidden(hidden), doubled.hidden(hidden)
    bias = torch.stack([random_state(3)[f"{head}.0.linear.bias"] for head in range(3)])
    weight = torch.stack([random_state(3)[f"{head}.0.linear.weight"] for head in range(3)])
    torch.testing.assert_close(before, hidden + silu(weight @ hidden + bias))
    torch.testing.assert_close(after, hidden + silu(2 * weight @ hidden + bias))


def test_half_precision_states_are_read_in_float32() -> None:
    heads = MedusaHeads.from_state_dict({name: tensor.bfloat16() for name, tensor in random_state(2).items()})

    assert heads.hidden(torch.ones(HIDDEN, dtype=torch.bfloat16)).dtype is torch.float32


@pytest.mark.parametrize("own_lm_heads", [False, True])
def test_scores_go_through_the_right_lm_head(own_lm_heads: bool) -> None:
    state = random_state(3, own_lm_heads=own_lm_heads)
    heads = MedusaHeads.from_state_dict(state)
    shared = torch.randn(VOCABULARY, HIDDEN, generator=torch.Generator().manual_seed(5))
    hidden = torch.randn(HIDDEN, generator=torch.Generator().manual_seed(6))
    legal = np.array([2, 3, 29])

    scores = heads.scores(LmHead(shared), hidden)

    for head in (2, 0):
        weight = state[f"{head}.1.weight"] if own_lm_heads else shared
        expected = heads.hidden(hidden)[head] @ weight[legal].T
        np.testing.assert_allclose(scores.of(head, legal), expected.numpy(), rtol=1e-5, atol=1e-5)


@pytest.mark.parametrize("name", ["medusa_heads.safetensors", "medusa_lm_head.pt"])
def test_both_file_formats_load(tmp_path: Path, name: str) -> None:
    state = random_state(2)
    path = tmp_path / name
    if path.suffix == ".pt":
        torch.save(state, path)
    else:
        save_file(state, path)

    heads = MedusaHeads.load(path)

    hidden = torch.ones(HIDDEN)
    torch.testing.assert_close(heads.hidden(hidden), MedusaHeads.from_state_dict(state).hidden(hidden))


@pytest.mark.parametrize(
    ("change", "named"),
    [
        ({"0.0.linear.bias": None}, "0.0.linear.bias"),
        ({"0.0.linear.weight": None, "0.0.linear.bias": None}, "0.0.linear.bias"),  # heads 1 and 2 of three
        ({"1.1.linear.weight": torch.zeros(HIDDEN, HIDDEN)}, "1.1.linear.weight"),
        ({"2.1.weight": torch.zeros(VOCABULARY, HIDDEN)}, "2.1.weight"),
    ],
    ids=["no-bias", "gap", "two-blocks", "one-lm-head-of-three"],
)
def test_other_layouts_are_refused_by_name(change: dict[str, Tensor | None], named: str) -> None:
    state = {name: tensor for name, tensor in {**random_state(3), **change}.items() if tensor is not None}

    with pytest.raises(ValueError, match=named):
        MedusaHeads.from_state_dict(state)


def test_a_file_without_heads_is_refused() -> None:
    with pytest.raises(ValueError, match="no head at all"):
        MedusaHeads.from_state_dict({})


def test_of_many_names_of_another_layout_the_first_four_are_told() -> None:
    with pytest.raises(ValueError, match=r"each: a, b, c, d$"):
        MedusaHeads.from_state_dict({name: torch.zeros(1) for name in "abcdef"})
