"""What a forward drafts: guesses of heads, copies of the prompt and what the grammar forces, within a budget."""

import math
from dataclasses import dataclass

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from numpy.typing import NDArray

from service.decoding.generation import generate
from service.decoding.linear import LmHead
from service.decoding.medusa import MedusaProposer
from service.decoding.proposer import NO_PROPOSER, Budget, Guess, PromptCopyProposer
from service.decoding.statistics import Statistics
from service.decoding.target import TargetWithHeads
from service.decoding.tree import MedusaTree, TokenTree, ancestor_mask, path_to
from service.engines.neuron.forward import ForwardShape
from tests.decoding.tiny import (
    CONFIG,
    choices,
    compile_grammar,
    decode_medusa,
    encode,
    ids,
    numbers,
    random_heads,
    random_model,
)
from tests.engines.neuron.fake_compiled import FakeCompiled, greedy

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


def test_guesses_are_counted_by_their_place_in_the_row() -> None:
    statistics = Statistics()
    for guesses, accepted in ((3, 2), (2, 0), (4, 3), (1, 1)):
        statistics.count_draft(guesses, accepted)
    assert (statistics.drafts, statistics.draft_tokens) == (4, 10)
    assert statistics.accepted_by_position == [3, 2, 1]


def test_without_heads_there_is_nothing_to_ask() -> None:
    target = TargetWithHeads(LmHead(torch.zeros(2, 2)), None)
    assert target.num_heads == 0
    with pytest.raises(ValueError, match="no Medusa heads"):
        target.head_scores()


ROOMY = Budget(deepest=20, most_nodes=20)


def tree_after(
    token: str, grammar: str, *, forced: bool = False, budget: Budget = ROOMY
) -> tuple[TokenTree, int | None]:
    """Guess one token at the start of a grammar, below a run of two; return the tree and where drafting may go on."""
    tree, constraint = TokenTree([5, 6]), compile_grammar(grammar)
    legal = constraint.legal().tolist()
    with Guess(tree, constraint, budget, tree.root, *ids(token), forced=forced) as node:
        pass
    assert constraint.legal().tolist() == legal
    return tree, node


@pytest.mark.parametrize("missing", [0, 1])
def test_drafting_goes_on_after_a_run_that_just_fits_and_not_after_one_that_is_cut(missing: int) -> None:
    run = encode(" abcd ef")
    budget = Budget(deepest=20, most_nodes=2 + 1 + len(run) - missing)

    tree, node = tree_after("a", 'start: ("a" | "c") " abcd ef" ("a" | "c") "g"', budget=budget)

    assert len(tree.tokens) == 2 + 1 + len(run) - missing
    assert node == (None if missing else 2 + len(run))


def test_a_forward_drafts_no_more_nodes_than_any_device_gains_from() -> None:
    """Without the limit a guess before a long literal drafts all of it: as many rows, and places in the cache."""
    literal = " ef" * 190
    assert len(encode(literal)) == 190
    grammar = f'start: ("a" | "c") ("e" | "g") "{literal}"'
    shape = MedusaTree.from_choices([[0], [1]], 1)

    generation = decode_medusa(
        random_model(1), random_heads(1, 1), shape, [3], compile_grammar(grammar), max_tokens=200, trace=numbers,
        cache=random_model(1).new_cache(600),
    )  # fmt: skip

    _, second, *_ = (len(step.nodes) for step in generation.steps)
    assert second == 1 + 128  # what the model chose, and the draft
    assert generation.stop_reason == "finished"


HEADS = 3


def compiled(rows: int, seed: int) -> FakeCompiled:
    shape = ForwardShape(HEADS, rows, max_context_length=24, seq_len=160)
    return FakeCompiled(shape, CONFIG.vocab_size, seed)


@dataclass(frozen=True)
class Right:
    """Drafts one token that is right, as a head would: what comes first of the answer."""

    token: int

    def propose(self, tree: TokenTree, _grammar: object, _budget: Budget) -> None:
        if tree.start and len(tree.tokens) == tree.run:
            tree.add(tree.root, self.token)


@pytest.mark.parametrize("seed", range(4))
def test_an_answer_that_the_prompt_holds_takes_a_step_for_many_tokens(seed: int) -> None:
    """Check a model whose greedy answer is copied into the prompt, so that each token is followed by what followed."""
    free = "start: /[a-g ]{40}/"
    answer = greedy(compiled(12, seed), [5, 6], compile_grammar(free), 12)
    # The fake model's answers hang on the whole prompt, so the copy is offered to the proposer alone.
    spent = {}
    for name, prompt in (("with the answer", [5, 6, *answer]), ("without", [5, 6])):
        model = compiled(12, seed)
        found = generate(
            model.target(), PromptCopyProposer(prompt, NO_PROPOSER), [5, 6], compile_grammar(free), max_tokens=12
        )
        assert found.tokens == answer
        spent[name] = found.statistics.forwards
    assert spent["with the answer"] < spent["without"]


def test_a_leaf_goes_on_as_the_prompt_does_after_the_same_two_tokens() -> None:
    constraint = compile_grammar("start: /[a-g ]{2,40}/")
    a, b, c, d = (encode(letter)[0] for letter in "abcd")
    tree = TokenTree([a], start=9)
    PromptCopyProposer([c, b, d, a, b, c, c], Right(b)).propose(tree, constraint, Budget(deepest=9, most_nodes=9))

    assert tree.tokens == [a, b, c, c], "after a and b comes c; after the first b alone it would be d"
    assert constraint.legal().size > 1, "the grammar stands where it stood"


@given(st.integers(1, 6).flatmap(choices))
def test_nodes_are_the_choices(chosen: list[list[int]]) -> None:
    tree = MedusaTree.from_choices(chosen, num_heads=6)
    mask = ancestor_mask(tree.parents)

    named = {}
    for node in range(1, len(tree.parents)):
        named[tuple(tree.ranks[each] for each in path_to(node, tree.parents)[1:])] = node
    assert sorted(named) == sorted(map(tuple, chosen))
    for choice, node in named.items():
        ancestors = {0, *(named[choice[:length]] for length in range(1, len(choice) + 1))}
        assert set(mask[node].nonzero().flatten().tolist()) == ancestors


@pytest.mark.parametrize(
    ("chosen", "reason"),
    [
        ([[0], [0, 0], [0, 0, 0]], r"choice \[0, 0, 0\] needs 3 heads, and there are 2"),
        ([[0], [1, 0]], r"choice \[1, 0\] hangs from \[1\], which is not a choice"),
        ([[0], [1], [0]], r"choice \[0\] is listed twice"),
        ([[0], [0, -1]], r"choice \[0, -1\] has a negative rank"),
        ([[0], []], "an empty choice names nothing"),
    ],
)
def test_impossible_trees_are_refused(chosen: list[list[int]], reason: str) -> None:
    with pytest.raises(ValueError, match=reason):
        MedusaTree.from_choices(chosen, num_heads=2)
