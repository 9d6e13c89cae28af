"""Medusa heads, the LM head that they share, and the head of kinds."""

from pathlib import Path

import numpy as np
import pytest
import torch
from safetensors.torch import save_file
from torch import Tensor
from torch.nn.functional import silu

from service.decoding import linear as scoring
from service.decoding.kind_head import KindHead, KindHeadWeights, load_kind_head_weights
from service.decoding.linear import HiddenScores, LmHead
from service.decoding.medusa import MedusaHeads

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
        (dict.fromkeys(random_state(3)), "no head at all"),
    ],
    ids=["no-bias", "gap", "two-blocks", "one-lm-head-of-three", "none"],
)
def test_other_layouts_are_refused_by_name(change: dict[str, Tensor | None], named: str) -> None:
    state = {name: tensor for name, tensor in {**random_state(3), **change}.items() if tensor is not None}

    with pytest.raises(ValueError, match=named):
        MedusaHeads.from_state_dict(state)


BREADTH, TOKENS = 16, 400


@pytest.fixture
def hidden() -> torch.Tensor:
    return torch.randn(3, BREADTH, generator=torch.Generator().manual_seed(0))


@pytest.fixture
def weight() -> torch.Tensor:
    return torch.randn(TOKENS, BREADTH, generator=torch.Generator().manual_seed(1))


def test_some_tokens_alone_have_the_logits_of_the_whole_row(hidden: torch.Tensor, weight: torch.Tensor) -> None:
    head = LmHead(weight)
    token_ids = torch.tensor([0, 7, 399])

    torch.testing.assert_close(head.logits(hidden, token_ids), head.logits(hidden)[:, token_ids])
    torch.testing.assert_close(head.logits(hidden), hidden @ weight.T)


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16])
def test_large_sets_find_the_best_as_small_ones_do(
    dtype: torch.dtype, hidden: torch.Tensor, weight: torch.Tensor, monkeypatch: pytest.MonkeyPatch
) -> None:
    head, state = LmHead(weight.to(dtype)), hidden.to(dtype)
    token_ids = np.arange(5, 395, dtype=np.int64)
    gathered = [HiddenScores(head, state).of(row, token_ids) for row in range(3)]
    monkeypatch.setattr(scoring, "MOST_GATHERED_TOKENS", 10)

    scores = HiddenScores(head, state)

    for row in (2, 0, 1):
        of_row = scores.of(row, token_ids)
        best = np.argsort(-of_row)[:4]
        assert best.tolist() == np.argsort(-gathered[row])[:4].tolist()
        np.testing.assert_allclose(of_row[best], gathered[row][best], rtol=1e-5)
        np.testing.assert_allclose(of_row, gathered[row], atol=0.1)


def test_sixteen_tokens_that_tie_once_rounded_are_told_apart(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(scoring, "MOST_GATHERED_TOKENS", 10)
    places = np.random.default_rng(0).choice(TOKENS, 16, replace=False)
    weight = torch.zeros(TOKENS, BREADTH)
    weight[places, 0] = 1
    weight[places, 1] = torch.arange(16.0)
    state = torch.zeros(1, BREADTH)
    state[0, :2] = torch.tensor([1, 2**-12])  # bfloat16 knows nothing between 1 and 1 + 2**-7
    head = LmHead(weight.bfloat16())
    assert set(head.logits(state)[0, places].tolist()) == {1.0}

    scores = HiddenScores(head, state).of(0, np.arange(TOKENS))

    assert np.argsort(-scores)[:16].tolist() == places[::-1].tolist()


WIDTH, FEATURES, SPACE = 4, 3, 2


def weights(**more: torch.Tensor) -> KindHeadWeights:
    parts = {
        "centre": torch.zeros(2 * WIDTH),
        "scale": torch.ones(2 * WIDTH),
        "inner": torch.zeros(FEATURES, 2 * WIDTH),
        "inner_bias": torch.zeros(FEATURES),
        "outer": torch.zeros(SPACE, FEATURES),
        "outer_bias": torch.zeros(SPACE),
        "need": torch.zeros(1, 2 * WIDTH),
        "need_bias": torch.zeros(1),
    }
    return KindHeadWeights(**parts | more)


def test_states_are_normalised_point_and_tell_a_need() -> None:
    inner = torch.zeros(FEATURES, 2 * WIDTH)
    inner[0, 0] = 1.0  # the first number of the mean
    need = torch.zeros(1, 2 * WIDTH)
    need[0, WIDTH] = 2.0  # the first number of the last state
    centre, scale = torch.full((2 * WIDTH,), 1.0), torch.full((2 * WIDTH,), 0.5)
    outer = torch.tensor([[1.0, 0, 0], [0, 1.0, 0]])
    head = KindHead(weights(centre=centre, scale=scale, inner=inner, outer=outer, need=need), "space")

    direction, odds = head.of(torch.tensor([[0.0] * WIDTH, [2.0] * WIDTH, [1.5] * WIDTH]))

    assert direction.tolist() == pytest.approx([torch.nn.functional.gelu(torch.tensor(2.0)).item(), 0.0])
    assert odds == pytest.approx(2.0)
    assert head.of(torch.full((3, WIDTH), 1e6))[1] == pytest.approx(10.0)  # what is far off is cut


def test_files_that_are_no_kind_head_are_refused(tmp_path: Path) -> None:
    path = tmp_path / "kind_head.safetensors"
    save_file(vars(weights()), path)
    assert load_kind_head_weights(path).inner.shape == (FEATURES, 2 * WIDTH)

    save_file(vars(weights(outer=torch.zeros(SPACE, FEATURES + 1))), path)
    with pytest.raises(ValueError, match=r"outer has the shape \(2, 4\), not \(2, 3\)"):
        load_kind_head_weights(path)
    save_file({name: part for name, part in vars(weights()).items() if name != "need"}, path)
    with pytest.raises(ValueError, match="no kind head: need"):
        load_kind_head_weights(path)
