"""Speculation with a draft model: a chain of guesses under the grammar, one forward of the draft each.

Leviathan et al. (arXiv 2211.17192) with greedy verification: the target keeps what it would have chosen itself, so the
draft decides how fast tokens come and never which. What the grammar forces after a guess is read together with it and
costs no forward of the draft.
"""

from dataclasses import dataclass
from typing import Protocol

import numpy as np
from numpy.typing import NDArray
from torch import Tensor

from service.decoding.constraint import Constraint
from service.decoding.draft import MOST_DRAFTED_NODES, TokenTree, accept_forced
from service.decoding.kv_cache import KVCache
from service.decoding.lm_head import Scores
from service.decoding.model import TargetModel


@dataclass(frozen=True, slots=True)
class ChainShape:
    """How far a draft guesses: at most `longest` times, and not beyond a path that it holds to be improbable.

    The first guess whose path falls under `p_min` still costs the target only a row; to read it and guess
    further would cost a forward of the draft (the draft-exiting of Draft & Verify, Zhang et al., arXiv 2309.08168, on
    the probability of the whole path).
    """

    longest: int = 4
    p_min: float = 0.7


class DraftReader(Protocol):
    """One generation's draft: reads a chain and guesses the token after it."""

    draft_forwards: int  # so far

    def begin(self, nodes: TokenTree) -> None:
        """A chain is about to grow from `nodes`, of which nothing has been read."""
        ...

    def read(self, nodes: TokenTree) -> Scores:
        """Read, in one forward, what has not been read yet; row 0 scores the token after the last node."""
        ...


@dataclass(frozen=True, slots=True)
class Speculation:
    """What one generation runs on: the draft, and the target as the loop is to call it."""

    reader: DraftReader
    target: TargetModel
    shape: ChainShape


class DraftModel(Protocol):
    """A way to draft for one target: `SelfDraft` or `SmallerDraft`."""

    @property
    def target(self) -> TargetModel: ...

    def speculate(self, cache: KVCache) -> Speculation:
        """A new generation, whose target reads into `cache`."""
        ...


@dataclass(frozen=True, slots=True)
class ChainDrafter:
    """Grows drafts that are chains; to the loop what `draft.Drafter` is."""

    reader: DraftReader
    shape: ChainShape

    def open(self, nodes: TokenTree, constraint: Constraint, *, deepest: int, room: int) -> None:
        """Hang guesses from the prompt's last token: the draft reads the prompt first."""
        most_nodes = min(deepest + 1, len(nodes.tokens) + min(room, MOST_DRAFTED_NODES))
        self.reader.begin(nodes)
        if accepted := _Chain(self.reader, self.shape, nodes, constraint, most_nodes).grow():
            constraint.rollback(accepted)

    def grow(self, nodes: TokenTree, hidden: Tensor, constraint: Constraint, *, deepest: int, room: int) -> None:
        """Hang guesses from the root of `nodes`, where the constraint stands (it returns there).

        `deepest` bounds the depth of nodes, `room` their number; the target's last state `hidden` is not asked.
        """
        del hidden
        self.open(nodes, constraint, deepest=deepest, room=room)


@dataclass(frozen=True, slots=True)
class _Chain:
    reader: DraftReader
    shape: ChainShape
    nodes: TokenTree
    constraint: Constraint
    most_nodes: int  # the run included

    def grow(self) -> int:
        """Add guesses with what they force; returns how many tokens the constraint was moved along."""
        accepted, guesses, probability = 0, 0, 1.0
        while self._room > 0 and guesses < self.shape.longest and probability >= self.shape.p_min:
            legal = self.constraint.legal()
            if not legal.size:  # a dead end: the verdict says so
                break
            self.nodes.legal[len(self.nodes.tokens) - 1] = legal
            token, forced = int(legal[0]), legal.size == 1
            if not forced:
                guess, share = _best(self.reader.read(self.nodes).of(0, legal))
                token, probability, guesses = int(legal[guess]), probability * share, guesses + 1
            self.constraint.accept([token])
            run = [token, *accept_forced(self.constraint, self._room, look=False)]
            accepted += len(run)
            # Where the grammar ends, the node before decides the guess and nothing would read what follows.
            if self.constraint.finished():
                break
            for position, each in enumerate(run[: self._room]):
                self.nodes.add(len(self.nodes.tokens) - 1, each, forced=forced or position > 0)
        return accepted

    @property
    def _room(self) -> int:
        return self.most_nodes - len(self.nodes.tokens)


def _best(scores: NDArray[np.float32]) -> tuple[int, float]:
    """The index of the highest score, and its share in their softmax."""
    best = int(scores.argmax())
    return best, float(1 / np.exp(scores - scores[best]).sum())
