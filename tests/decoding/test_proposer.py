"""What a guess adds to a tree, and which of its tokens are told as forced."""

import pytest

from service.decoding.proposer import Budget, Guess
from service.decoding.tree import MedusaTree, TokenTree
from tests.decoding.decode import decode_medusa, numbers
from tests.decoding.tiny import compile_grammar, encode, ids, random_heads, random_model

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


@pytest.mark.parametrize("forced", [False, True])
def test_what_follows_a_guess_without_a_choice_is_forced_and_the_guess_itself_where_it_is_said_to_be(
    forced: bool,
) -> None:
    run = encode(" abcd ef")

    tree, node = tree_after("a", 'start: ("a" | "c") " abcd ef" ("a" | "c") "g"', forced=forced)

    assert tree.tokens == [5, 6, *ids("a"), *run]
    assert node == 2 + len(run)
    # Drafts are counted without what is forced, and no legal tokens are looked up for it.
    assert tree.forced == {*range(3, 3 + len(run)), *([2] if forced else [])}


@pytest.mark.parametrize("missing", [0, 1])
def test_drafting_goes_on_after_a_run_that_just_fits_and_not_after_one_that_is_cut(missing: int) -> None:
    run = encode(" abcd ef")
    budget = Budget(deepest=20, most_nodes=2 + 1 + len(run) - missing)

    tree, node = tree_after("a", 'start: ("a" | "c") " abcd ef" ("a" | "c") "g"', budget=budget)

    assert len(tree.tokens) == 2 + 1 + len(run) - missing
    assert node == (None if missing else 2 + len(run))


def test_a_guess_for_which_there_is_no_room_adds_nothing() -> None:
    tree, node = tree_after("a", 'start: ("a" | "c") ("e" | "g") "g"', budget=Budget(deepest=20, most_nodes=2))

    assert (tree.tokens, node) == ([5, 6], None)


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
