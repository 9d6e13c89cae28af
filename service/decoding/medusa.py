"""Drafting with Medusa heads: a tree of their guesses, pruned by the grammar (Cai et al., arXiv 2401.10774)."""

import math
from concurrent.futures import Future
from dataclasses import dataclass
from typing import Protocol

import numpy as np
from numpy.typing import NDArray
from torch import Tensor

from service.decoding.constraint import Constraint, known
from service.decoding.lm_head import Scores
from service.decoding.proposer import Budget, Guess
from service.decoding.tree import ROOT, MedusaTree, TokenTree


class HeadsOfTarget(Protocol):
    """A target with Medusa heads: `LlamaTarget` or `CompiledTarget`."""

    @property
    def num_heads(self) -> int: ...

    @property
    def read_again(self) -> int:
        """How many accepted tokens the next tree begins with, because the target did not keep them."""
        ...

    def head_scores(self) -> Scores:
        """Return scores with a row for each head: their guesses after the last accepted position."""
        ...

    def prompt_states(self) -> Tensor | None:
        """Return the states [N, H] of the prompt's positions, and perhaps more after them; None where unknown."""
        ...


@dataclass(frozen=True, slots=True)
class MedusaProposer:
    """Grows a tree of one shape from the guesses of the target's own heads."""

    target: HeadsOfTarget
    shape: MedusaTree

    def propose(self, tree: TokenTree, grammar: Constraint | Future[Constraint], budget: Budget) -> None:
        if tree.first:
            return  # while the prompt is read there is no hidden state to guess from yet
        target, scores = self.target, self.target.head_scores()
        growth = _Growth(tree, known(grammar), budget, self.shape, target.num_heads, target.read_again, scores)
        growth.expand(tree.root, ROOT, 1.0)


@dataclass(frozen=True, slots=True)
class _Growth:
    """One tree being built. Every node is added where the constraint stands."""

    tree: TokenTree
    constraint: Constraint
    budget: Budget
    shape: MedusaTree
    num_heads: int
    read_again: int
    scores: Scores

    def expand(self, node: int, choice: int, probability: float) -> None:
        """Add the shape's children of `choice` to `node`, after which nothing is forced.

        `probability` is the heads' probability of the path to `node`.
        """
        children = self.shape.branches[choice]
        head = self.tree.depths[node] - self.read_again  # the one that guesses the token after a node of this depth
        if not children or head >= self.num_heads:
            return
        legal = self.constraint.legal()
        self.tree.legal[node] = legal  # kept for verification
        if legal.size == 1:
            self._try(node, int(legal[0]), choice, probability, forced=True)
            return
        scores = self.scores.of(head, legal)
        ranked = best(scores, children[-1][0] + 1)
        shares = probability * _softmax(scores, ranked)
        for rank, child in children:
            if rank < ranked.size and shares[rank] >= self.shape.p_min:
                self._try(node, int(legal[ranked[rank]]), child, float(shares[rank]))

    def _try(self, parent: int, token: int, choice: int, probability: float, *, forced: bool = False) -> None:
        if (drafted := self.tree.child(parent, token)) is not None:
            self._descend(drafted, choice, probability)
            return
        least = self.shape.p_min
        # An accepted guess saves one forward, however many rows the forced tokens after it add.
        most_nodes = probability / least if least else math.inf
        with Guess(
            self.tree, self.constraint, self.budget, parent, token, forced=forced, most_nodes=most_nodes
        ) as node:
            if node is not None:
                self.expand(node, choice, probability)

    def _descend(self, node: int, choice: int, probability: float) -> None:
        """Go on below a node that another proposer has drafted, and the tokens that the grammar forces after it."""
        run = [self.tree.tokens[node]]
        while (forced := self.tree.forced_child(node)) is not None:
            node = forced
            run.append(self.tree.tokens[node])
        self.constraint.accept(run)
        try:
            if not self.constraint.finished():
                self.expand(node, choice, probability)
        finally:
            self.constraint.rollback(len(run))


def _softmax(scores: NDArray[np.float32], chosen: NDArray[np.intp]) -> NDArray[np.float32]:
    """Return the softmax probabilities of the chosen ones among all scores."""
    raised = np.exp(scores - scores[chosen[0]])
    probabilities: NDArray[np.float32] = raised[chosen] / raised.sum()
    return probabilities


def best(scores: NDArray[np.float32], count: int) -> NDArray[np.intp]:
    """Return the indices of the `count` highest scores (fewer if there are fewer), best first."""
    if count == 1:
        return np.array([scores.argmax()])
    if count >= scores.size:
        return np.argsort(-scores)
    highest = np.argpartition(scores, -count)[-count:]
    return highest[np.argsort(-scores[highest])]
