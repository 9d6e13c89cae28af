"""Proposers: they attach drafted guesses to the tokens that a forward has to read anyway.

A proposer decides how fast tokens come and never which: `verify()` keeps what the model would have chosen. Besides
`NoProposer` there are three: Medusa heads (`medusa.py`), what a request foretells, and below both of them what the
prompt says.
"""

import math
from collections.abc import Sequence
from concurrent.futures import Future
from dataclasses import dataclass
from typing import NamedTuple, Protocol

from service.decoding.constraint import Constraint, accept_forced, known
from service.decoding.tree import NO_NODE, TokenTree, path_to

# Runs of forced tokens add nodes beyond a tree's shape. No device gains from more than this in one forward.
MOST_DRAFTED_NODES = 128

Predicted = Sequence[tuple[int, float]]  # tokens, and how likely each is once those before it were right
LONGEST = 8  # nodes of a copy
MOST_LEAVES = 8  # that are continued in one forward


class Budget(NamedTuple):
    """Limits on a draft: `deepest` bounds the depth of nodes, `most_nodes` their number, including the run."""

    deepest: int
    most_nodes: int

    def below(self, tree: TokenTree, node: int) -> int:
        """Return how many nodes a chain after `node` may have."""
        return min(self.most_nodes - len(tree.tokens), self.deepest - tree.depths[node])


class Proposer(Protocol):
    """The source of drafts for one generation."""

    def propose(self, tree: TokenTree, grammar: Constraint | Future[Constraint], budget: Budget) -> None:
        """Add guesses, or none, below the root of `tree`, where the grammar stands; the grammar is left unmoved."""
        ...


class NoProposer:
    """Autoregressive decoding without a draft."""

    def propose(self, tree: TokenTree, grammar: Constraint | Future[Constraint], budget: Budget) -> None:
        """Leave the tree as it is."""


NO_PROPOSER = NoProposer()


class ChainProposer:
    """Keeps of another proposer's draft one chain, for a target that reads no branches."""

    def __init__(self, then: Proposer) -> None:
        self._then = then

    def propose(self, tree: TokenTree, grammar: Constraint | Future[Constraint], budget: Budget) -> None:
        """Let it draft without regard to the target's room, which branches that are dropped would take."""
        self._then.propose(tree, grammar, Budget(budget.deepest, tree.run + MOST_DRAFTED_NODES))
        tree.keep_chain(budget.most_nodes)


class Guess:
    """Context manager that adds a token below `parent`, with the tokens that the grammar forces after it.

    In `with Guess(...) as node`, `node` is the last of them, where the constraint stands inside the block and drafting
    may go on. It is None where drafting must stop: there is no room, the grammar ends, or there are more than
    `most_nodes` tokens. On exit, the constraint is back where it was.
    """

    __slots__ = ("_accepted", "_budget", "_constraint", "_forced", "_most_nodes", "_parent", "_token", "_tree")

    def __init__(
        self,
        tree: TokenTree,
        constraint: Constraint,
        budget: Budget,
        parent: int,
        token: int,
        *,
        forced: bool = False,
        most_nodes: float = math.inf,
    ) -> None:
        self._tree = tree
        self._constraint = constraint
        self._budget = budget
        self._parent = parent
        self._token = token
        self._forced = forced
        self._most_nodes = most_nodes
        self._accepted = 0

    def __enter__(self) -> int | None:
        room = self._budget.below(self._tree, self._parent)
        if room <= 0:
            return None
        self._constraint.accept([self._token])
        self._accepted = 1
        # Most guesses are leaves that are never accepted, so what follows them is not looked up.
        run = [self._token, *accept_forced(self._constraint, room, look=False)]
        self._accepted = len(run)
        # Where the grammar ends, the parent decides the guess and nothing would read what follows.
        if len(run) > self._most_nodes or self._constraint.finished():
            return None
        node = self._parent
        for position, each in enumerate(run[:room]):
            node = self._tree.add(node, each, forced=self._forced or position > 0)
        return node if len(run) <= room else None

    def __exit__(self, *_: object) -> None:
        if self._accepted:
            self._constraint.rollback(self._accepted)


@dataclass(frozen=True, slots=True)
class PredictionProposer:
    """Drafts one chain, and lets another proposer draft beside it.

    The chain ends where it is less likely than `p_min`: a row costs more there than it saves.
    """

    predicted: Predicted
    then: Proposer
    p_min: float = 0.0

    def propose(self, tree: TokenTree, grammar: Constraint | Future[Constraint], budget: Budget) -> None:
        place = self._place(tree.text)
        if isinstance(grammar, Future):  # it is not waited for: what it forbids, verification drops
            self._draft_unchecked(tree, place, budget)
        else:
            self._draft(tree, grammar, budget, tree.root, place, 1.0)
        self.then.propose(tree, grammar, budget)

    def _place(self, text: Sequence[int]) -> int:
        """Return where the prediction goes on after a text.

        A token that is not foretold stands for the next one that is, unless the text comes back to it.
        """
        place, is_foretold = 0, True
        for token in text:
            found = next((at for at in range(place, len(self.predicted)) if self.predicted[at][0] == token), None)
            is_foretold = found is not None
            place = place if found is None else found + 1
        return place if is_foretold else place + 1

    def _draft_unchecked(self, tree: TokenTree, place: int, budget: Budget) -> None:
        node, probability = tree.root, 1.0
        for token, likely in self.predicted[place:-1]:  # what follows the last but one is the model's own choice
            probability *= likely
            if probability < self.p_min or budget.below(tree, node) <= 0:
                return
            node = tree.add(node, token)

    def _draft(
        self, tree: TokenTree, constraint: Constraint, budget: Budget, node: int, place: int, probability: float
    ) -> None:
        """Draft from a place on, below a node at which the constraint stands."""
        if place >= len(self.predicted) or budget.below(tree, node) <= 0:
            return
        token, likely = self.predicted[place]
        probability *= likely
        if probability < self.p_min or not constraint.allows(token):
            return
        first = len(tree.tokens)
        with Guess(tree, constraint, budget, node, token) as last:
            if last is None:
                return
            added = len(tree.tokens) - first  # with what the grammar forces after it
            foretold = [each for each, _ in self.predicted[place : place + added]]
            if tree.tokens[first:] == foretold:
                self._draft(tree, constraint, budget, last, place + added, probability)


class PromptCopyProposer:
    """Lets another proposer draft, then extends each leaf by the tokens that follow its token in the prompt."""

    def __init__(self, prompt: Sequence[int], then: Proposer, longest: int = LONGEST) -> None:
        """Copy at most `longest` nodes from a leaf on."""
        self._prompt = list(prompt)
        self._then = then
        self._longest = longest
        self._after: dict[int, list[int]] = {}
        for position, token in enumerate(self._prompt[:-1]):
            self._after.setdefault(token, []).append(position + 1)

    def propose(self, tree: TokenTree, grammar: Constraint | Future[Constraint], budget: Budget) -> None:
        self._then.propose(tree, grammar, budget)
        if tree.first:  # the prompt is being read; the text that could repeat it has not begun
            return
        constraint = known(grammar)
        parents = {parent for parent in tree.parents[tree.run :] if parent != NO_NODE}
        leaves = [node for node in range(tree.root, len(tree.tokens)) if node not in parents]
        for leaf in leaves[:MOST_LEAVES]:
            self._continue(tree, constraint, budget, leaf)

    def _continue(self, tree: TokenTree, constraint: Constraint, budget: Budget, leaf: int) -> None:
        """Add the prompt's tokens after the leaf's. The constraint stands at the root, and does again afterwards."""
        position = self._position_after(tree, leaf)
        if position is None or budget.below(tree, leaf) <= 0:
            return
        drafted = [tree.tokens[node] for node in path_to(leaf, tree.parents) if node > tree.root]
        constraint.accept(drafted)
        try:
            if not constraint.finished():
                self._copy(tree, constraint, budget, leaf, position, self._longest)
        finally:
            constraint.rollback(len(drafted))

    def _copy(
        self, tree: TokenTree, constraint: Constraint, budget: Budget, node: int, position: int, left: int
    ) -> None:
        if left <= 0 or position >= len(self._prompt) or budget.below(tree, node) <= 0:
            return
        token = self._prompt[position]
        if tree.child(node, token) is not None or not constraint.allows(token):
            return
        first = len(tree.tokens)
        with Guess(tree, constraint, budget, node, token) as last:
            if last is not None:
                # What the grammar forced after it is a copy only as long as the prompt goes on alike.
                added = tree.tokens[first:]
                if added == self._prompt[position : position + len(added)]:
                    self._copy(tree, constraint, budget, last, position + len(added), left - len(added))

    def _position_after(self, tree: TokenTree, leaf: int) -> int | None:
        """Return where the prompt goes on after the leaf's token: after the one before it too, where that is there."""
        positions = self._after.get(tree.tokens[leaf])
        if not positions:
            return None
        parent = tree.parents[leaf]
        before = tree.tokens[parent] if parent != NO_NODE else None
        return next((each for each in positions if each > 1 and self._prompt[each - 2] == before), positions[0])
