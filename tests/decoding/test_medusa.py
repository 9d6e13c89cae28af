import math

import numpy as np
import pytest
from numpy.typing import NDArray

from service.decoding.medusa import MedusaProposer, best
from service.decoding.proposer import Budget
from service.decoding.tree import MedusaTree, TokenTree, path_to
from tests.decoding.tiny import CONFIG, compile_grammar, ids

SCORES = np.array([0.5, -1.0, 3.0, 2.0, -7.0, 2.5], dtype=np.float32)
CHOICES = {"a": 0.6, "c": 0.3, "e": 0.1}  # and what each head holds them to be worth


class Heads:
    """Two heads of the same opinion."""

    num_heads, read_again = 2, 0

    def head_scores(self) -> "Heads":
        return self

    def of(self, row: int, token_ids: NDArray[np.int64]) -> NDArray[np.float32]:
        assert row < self.num_heads
        logits = np.full(CONFIG.vocab_size, -math.inf, dtype=np.float32)
        logits[ids(*CHOICES)] = np.log(list(CHOICES.values()))
        return logits[token_ids]


def paths(p_min: float) -> list[str]:
    """Return the drafts, by their letters, of a tree of the two best of two heads."""
    shape = MedusaTree.from_choices([[0], [1], [0, 0], [0, 1], [1, 0], [1, 1]], 2, p_min)
    choice = "(" + " | ".join(f'"{letter}"' for letter in CHOICES) + ")"
    tree = TokenTree([3], start=5)
    MedusaProposer(Heads(), shape).propose(
        tree, compile_grammar(f"start: {choice} {choice} {choice}"), Budget(deepest=9, most_nodes=20)
    )
    letters = dict(zip(ids(*CHOICES), CHOICES, strict=True))
    routes = (path_to(node, tree.parents)[1:] for node in range(1, len(tree.tokens)))
    return sorted("".join(letters[tree.tokens[node]] for node in route) for route in routes)


def test_a_path_is_worth_the_product_of_its_guesses() -> None:
    # aa 0.36, ac and ca 0.18, cc 0.09
    assert paths(0.0) == ["a", "aa", "ac", "c", "ca", "cc"]
    assert paths(0.1) == ["a", "aa", "ac", "c", "ca"]
    assert paths(0.2) == ["a", "aa", "c"]
    assert paths(0.35) == ["a", "aa"]
    assert paths(0.5) == ["a"]
    assert paths(0.7) == []


@pytest.mark.parametrize("count", [1, 2, 3, 5, 6, 9])
def test_the_best_are_as_many_as_are_asked_for_and_the_best_comes_first(count: int) -> None:
    assert best(SCORES, count).tolist() == [2, 5, 3, 0, 1, 4][:count]
