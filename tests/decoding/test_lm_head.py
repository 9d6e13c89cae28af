import numpy as np
import pytest
import torch

from service.decoding import lm_head
from service.decoding.lm_head import HiddenScores, LmHead

HIDDEN, VOCABULARY = 16, 400


@pytest.fixture
def hidden() -> torch.Tensor:
    return torch.randn(3, HIDDEN, generator=torch.Generator().manual_seed(0))


@pytest.fixture
def weight() -> torch.Tensor:
    return torch.randn(VOCABULARY, HIDDEN, generator=torch.Generator().manual_seed(1))


def test_some_tokens_alone_have_the_logits_of_the_whole_row(hidden: torch.Tensor, weight: torch.Tensor) -> None:
    head = LmHead(weight)
    token_ids = torch.tensor([0, 7, 399])

    torch.testing.assert_close(head.logits(hidden, token_ids), head.logits(hidden)[:, token_ids])
    torch.testing.assert_close(head.logits(hidden), hidden @ weight.T)


def test_given_tokens_are_not_rounded_to_the_weights_dtype(hidden: torch.Tensor, weight: torch.Tensor) -> None:
    rounded, state = weight.bfloat16(), hidden.bfloat16()

    logits = LmHead(rounded).logits(state, torch.arange(50))

    assert logits.dtype is torch.float32
    torch.testing.assert_close(logits, state.float() @ rounded[:50].float().T)


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16])
def test_large_sets_find_the_best_as_small_ones_do(
    dtype: torch.dtype, hidden: torch.Tensor, weight: torch.Tensor, monkeypatch: pytest.MonkeyPatch
) -> None:
    head, state = LmHead(weight.to(dtype)), hidden.to(dtype)
    token_ids = np.arange(5, 395, dtype=np.int64)
    gathered = [HiddenScores(head, state).of(row, token_ids) for row in range(3)]
    monkeypatch.setattr(lm_head, "MOST_GATHERED_TOKENS", 10)

    scores = HiddenScores(head, state)

    for row in (2, 0, 1):
        of_row = scores.of(row, token_ids)
        best = np.argsort(-of_row)[:4]
        assert best.tolist() == np.argsort(-gathered[row])[:4].tolist()
        np.testing.assert_allclose(of_row[best], gathered[row][best], rtol=1e-5)
        np.testing.assert_allclose(of_row, gathered[row], atol=0.1)


def test_sixteen_tokens_that_tie_once_rounded_are_told_apart(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(lm_head, "MOST_GATHERED_TOKENS", 10)
    places = np.random.default_rng(0).choice(VOCABULARY, 16, replace=False)
    weight = torch.zeros(VOCABULARY, HIDDEN)
    weight[places, 0] = 1
    weight[places, 1] = torch.arange(16.0)
    state = torch.zeros(1, HIDDEN)
    state[0, :2] = torch.tensor([1, 2**-12])  # bfloat16 knows nothing between 1 and 1 + 2**-7
    head = LmHead(weight.bfloat16())
    assert set(head.logits(state)[0, places].tolist()) == {1.0}

    scores = HiddenScores(head, state).of(0, np.arange(VOCABULARY))

    assert np.argsort(-scores)[:16].tolist() == places[::-1].tolist()
