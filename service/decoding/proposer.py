"""Proposers: they attach drafted guesses to the tokens that a forward has to read anyway.

A proposer decides how fast tokens come and never which: `verification.py` keeps what the model would have chosen.
Besides `NoProposer` there are four: Medusa heads (`medusa.py`), while the prompt is read usual beginnings of answers
(`prefill_draft.py`), once it was read what its states say of the whole answer (`prompt_tags.py`), and below any of them
what the prompt says (`prompt_copy.py`).
"""

import math
from concurrent.futures import Future
from typing import NamedTuple, Protocol

from service.decoding.constraint import Constraint, accept_forced
from service.decoding.tree import TokenTree

# Runs of forced tokens add nodes beyond a tree's shape. No device gains from more than this in one forward.
MOST_DRAFTED_NODES = 128


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
