"""What a verdict says, and what the grammar is asked for it."""

from collections.abc import Sequence

import numpy as np
from numpy.typing import NDArray

from service.decoding.constraint import GrammarConstraint
from service.decoding.tree import TokenTree
from service.decoding.verification import verify
from tests.decoding.tiny import CONFIG, compile_grammar, encode, ids

RUN = encode(" abcd ef")


class Favourite:
    """Scores that prefer some tokens, whatever the row."""

    def __init__(self, *words: str) -> None:
        self._logits = np.zeros(CONFIG.vocab_size, dtype=np.float32)
        self._logits[ids(*words)] = 1

    def of(self, row: int, token_ids: NDArray[np.int64]) -> NDArray[np.float32]:
        del row
        return self._logits[token_ids]


class Asked:
    """A grammar that counts what it is asked beside the tokens that it accepts."""

    def __init__(self, grammar: GrammarConstraint) -> None:
        self._grammar = grammar
        self.legals = 0
        self.forceds = 0

    def legal(self) -> NDArray[np.int64]:
        self.legals += 1
        return self._grammar.legal()

    def forced(self, *, look: bool = True) -> list[int]:
        self.forceds += 1
        return self._grammar.forced(look=look)

    def accept(self, tokens: Sequence[int]) -> None:
        self._grammar.accept(tokens)

    def rollback(self, count: int) -> None:
        self._grammar.rollback(count)

    def finished(self) -> bool:
        return self._grammar.finished()

    def allows(self, token: int) -> bool:
        return self._grammar.allows(token)


def test_where_a_forced_run_is_cut_no_choice_is_due() -> None:
    """The loop emits what is forced next by itself: told as the model's choice, a trace would show it as sampled."""
    tree, constraint = TokenTree([3]), compile_grammar('start: " abcd ef" ("a" | "c")')
    cut = tree.add(tree.root, RUN[0])

    verdict = verify(tree, Favourite("a"), constraint, fast_forward=True)

    assert (verdict.path, verdict.sampled, verdict.decisions) == ([cut], None, 0)
    assert constraint.forced() == RUN[1:]


def test_without_fast_forward_what_is_forced_is_read_as_the_models_choice() -> None:
    tree, constraint = TokenTree([3]), compile_grammar('start: " abcd ef" ("a" | "c")')

    verdict = verify(tree, Favourite("a"), constraint, fast_forward=False)

    assert (verdict.path, verdict.sampled, verdict.decisions) == ([], RUN[0], 0)


def test_of_what_a_proposer_found_forced_the_grammar_is_asked_nothing() -> None:
    """Most of a plan is forced: to look it up a second time would cost what drafting just paid."""
    tree, constraint = TokenTree([3]), Asked(compile_grammar('start: " abcd ef" ("a" | "c") "g"'))
    node = tree.root
    for token in RUN:
        node = tree.add(node, token, forced=True)
    assert tree.forced_child(tree.root) == tree.root + 1

    verdict = verify(tree, Favourite("c"), constraint, fast_forward=True)

    assert verdict.path == list(range(1, 1 + len(RUN)))
    assert (verdict.sampled, verdict.decisions) == (ids("c")[0], 1)
    assert (constraint.legals, constraint.forceds) == (1, 1)  # at the choice alone
