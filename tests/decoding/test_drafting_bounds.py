"""Where drafting stops, at the bounds: room, depth, what a guess must be worth, what only a scan shows as forced."""

from collections.abc import Mapping, Sequence

import numpy as np
import pytest
from numpy.typing import NDArray

from service.decoding.constraint import GrammarError
from service.decoding.lm_head import LmHead
from service.decoding.medusa import MedusaProposer
from service.decoding.prefill_draft import PrefillDraft, PrefillProposer
from service.decoding.proposer import NO_PROPOSER, Budget, Guess
from service.decoding.statistics import Statistics
from service.decoding.target import LlamaTarget, TargetWithHeads
from service.decoding.tree import MedusaTree, TokenTree
from tests.decoding.tiny import compile_grammar, encode, ids, random_model

ROOMY = Budget(deepest=20, most_nodes=20)
RUN = encode(" abcd ef ef")


class Table:
    """A grammar as a table of what may follow a text of tokens; that only one may, only a scan of all of them shows."""

    def __init__(self, follows: Mapping[tuple[int, ...], Sequence[int]]) -> None:
        self._follows = follows
        self._text: tuple[int, ...] = ()

    def legal(self) -> NDArray[np.int64]:
        return np.array(self._follows.get(self._text, ()), dtype=np.int64)

    def forced(self, *, look: bool = True) -> list[int]:
        legal = self.legal()
        return legal.tolist() if look and legal.size == 1 else []

    def accept(self, tokens: Sequence[int]) -> None:
        for token in tokens:
            if token not in self.legal():
                raise GrammarError(f"{token} is not legal")
            self._text = (*self._text, token)

    def rollback(self, count: int) -> None:
        self._text = self._text[: len(self._text) - count]

    def finished(self) -> bool:
        return not self.legal().size

    def allows(self, token: int) -> bool:
        return token in self.legal()


class Heads:
    """Heads that all hold the first token of a row for e times as likely as the second, and so on."""

    def __init__(self, count: int) -> None:
        self.num_heads, self.read_again = count, 0
        self.asked: list[int] = []

    def head_scores(self) -> "Heads":
        return self

    def of(self, row: int, token_ids: NDArray[np.int64]) -> NDArray[np.float32]:
        self.asked.append(row)
        return -token_ids.astype(np.float32)


def test_what_a_scan_alone_shows_as_forced_is_drafted_without_a_head() -> None:
    """It costs a row and no guess: the guess after it is the next one of the same shape, from the head of its place."""
    grammar = Table({(): [1, 2], (1,): [7], (1, 7): [1, 2], (1, 7, 1): [3, 4]})
    tree, heads = TokenTree([9], start=4), Heads(3)
    MedusaProposer(heads, MedusaTree.from_choices([[0], [0, 0]], 2, p_min=0.5)).propose(tree, grammar, ROOMY)
    assert (tree.tokens, tree.parents) == ([9, 1, 7, 1], [-1, 0, 1, 2])
    assert tree.forced == {2}
    assert heads.asked == [0, 2], "and the one between them is not asked"
    assert {node: legal.tolist() for node, legal in tree.legal.items()} == {0: [1, 2], 1: [7], 2: [1, 2]}
    assert grammar.legal().tolist() == [1, 2], "it is back where it was"


@pytest.mark.parametrize(("heads", "drafted"), [(0, 0), (1, 1), (2, 2), (3, 3)])
def test_there_is_a_guess_for_each_head_and_no_more(heads: int, drafted: int) -> None:
    tree = TokenTree([9], start=4)
    shape = MedusaTree.from_choices([[0] * depth for depth in (1, 2, 3)], 3)
    MedusaProposer(Heads(heads), shape).propose(tree, compile_grammar("start: /[a-g]{9}/"), ROOMY)
    assert len(tree.tokens) == 1 + drafted


def test_while_the_prompt_is_read_no_head_is_asked() -> None:
    tree, heads = TokenTree([9], start=0), Heads(3)
    MedusaProposer(heads, MedusaTree.from_choices([[0]], 3)).propose(tree, Table({(): [1, 2]}), ROOMY)
    assert (tree.tokens, heads.asked) == ([9], [])


@pytest.mark.parametrize(("least", "drafted"), [(0.5, [1, 2]), (0.51, [])])
def test_a_guess_that_is_worth_just_as_much_as_it_must_be_is_drafted(least: float, drafted: list[int]) -> None:
    class Undecided(Heads):
        def of(self, row: int, token_ids: NDArray[np.int64]) -> NDArray[np.float32]:
            return 0 * super().of(row, token_ids)

    tree, grammar = TokenTree([9], start=4), Table({(): [1, 2], (1,): [3, 4], (2,): [3, 4]})
    shape = MedusaTree.from_choices([[0], [1], [2]], 1, p_min=least)
    MedusaProposer(Undecided(1), shape).propose(tree, grammar, ROOMY)
    assert sorted(tree.tokens[1:]) == drafted, "the third best of two is none"


@pytest.mark.parametrize(("most_nodes", "added"), [(1 + len(RUN), 1 + len(RUN)), (len(RUN), 0)])
def test_a_guess_after_which_more_is_forced_than_it_is_worth_adds_nothing(most_nodes: int, added: int) -> None:
    tree = TokenTree([5, 6])
    grammar = compile_grammar('start: ("a" | "c") " abcd ef ef" ("a" | "c") "g"')
    with Guess(tree, grammar, ROOMY, tree.root, *ids("a"), most_nodes=most_nodes) as node:
        assert (node is None) == (added == 0)
    assert len(tree.tokens) == 2 + added


@pytest.mark.parametrize("room", [1, 2, len(RUN), 1 + len(RUN), 2 + len(RUN)])
@pytest.mark.parametrize("is_deep", [False, True])
def test_what_is_forced_fills_the_room_and_drafting_goes_on_where_all_of_it_fits(room: int, is_deep: bool) -> None:
    tree = TokenTree([5, 6])
    grammar = compile_grammar('start: ("a" | "c") " abcd ef ef" ("a" | "c") "g"')
    budget = Budget(deepest=1 + room, most_nodes=99) if is_deep else Budget(deepest=99, most_nodes=2 + room)
    assert budget.below(tree, tree.root) == room
    with Guess(tree, grammar, budget, tree.root, *ids("a")) as node:
        fits = room >= 1 + len(RUN)
        assert node == (2 + len(RUN) if fits else None)
    assert tree.tokens[2:] == [*ids("a"), *RUN][:room]


def test_a_guess_after_which_the_text_ends_is_none() -> None:
    tree = TokenTree([5, 6])
    with Guess(tree, compile_grammar('start: "a" | "c"'), ROOMY, tree.root, *ids("a")) as node:
        assert node is None
    assert tree.tokens == [5, 6]


def test_usual_beginnings_are_drafted_where_they_are_legal_and_only_with_the_prompt() -> None:
    draft = PrefillDraft.from_sequences([[1, 3], [2], [8]])
    for start, expected in ((0, [9, 1, 3, 2]), (4, [9])):
        grammar = Table({(): [1, 2], (1,): [3, 4], (2,): [5, 6], (1, 3): [7, 8]})
        tree = TokenTree([9], start=start)
        PrefillProposer(draft, NO_PROPOSER).propose(tree, grammar, ROOMY)
        assert tree.tokens == expected
        assert sorted(tree.legal) == ([0, 1] if start == 0 else [])


def test_guesses_are_counted_by_their_place_in_the_row() -> None:
    statistics = Statistics()
    for guesses, accepted in ((3, 2), (2, 0), (4, 3), (1, 1)):
        statistics.count_draft(guesses, accepted)
    assert (statistics.drafts, statistics.draft_tokens) == (4, 10)
    assert statistics.accepted_by_position == [3, 2, 1]


def test_a_target_reads_as_many_guesses_as_its_cache_has_room_for() -> None:
    model = random_model(0)
    target = LlamaTarget(model, model.new_cache(30))
    assert (target.most_run, target.room(10), target.room(30)) == (30, 20, 0)
    target.most_drafted_nodes = 7
    assert (target.room(22), target.room(23), target.room(24)) == (7, 7, 6)
    assert target.begin(range(26), 4) == 0
    with pytest.raises(ValueError, match="do not fit"):
        target.begin(range(26), 5)


def test_without_heads_there_is_nothing_to_ask() -> None:
    target = TargetWithHeads(LmHead(random_model(0).lm_head._weight), None)
    assert target.num_heads == 0
    with pytest.raises(ValueError, match="no Medusa heads"):
        target.head_scores()
