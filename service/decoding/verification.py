"""Verification of a draft: follow the model's own greedy choices down the tree as long as they were drafted."""

from dataclasses import dataclass
from typing import Final

import numpy as np
from numpy.typing import NDArray

from service.decoding.constraint import Constraint, GrammarError
from service.decoding.lm_head import Scores
from service.decoding.tree import TokenTree


@dataclass(frozen=True, slots=True)
class Verdict:
    """Which nodes of a draft the model accepts, and its own next choice.

    `path`: the accepted nodes after the run, in order. `sampled`: the model's choice after the last of them, which no
    node carries; None where a forced run was cut and no choice is due. `decisions`: choices among several tokens.
    `probabilities`: the model's, among the legal tokens, of the path's nodes and of `sampled`; 1 where none was left.
    """

    path: list[int]
    sampled: int | None
    decisions: int
    probabilities: list[float]


CERTAIN: Final = 1.0
NOTHING_JUDGED = Verdict([], None, 0, [])


def verify(tree: TokenTree, scores: Scores, constraint: Constraint, *, fast_forward: bool) -> Verdict:
    """Walk down from the root of `tree`, moving the constraint along, and return the verdict.

    `scores` has a row for the root and one for each node after it. Ties always go to the lowest token id.
    """
    node, path, decisions, probabilities = tree.root, list[int](), 0, list[float]()
    while True:
        if tree.unchecked and constraint.finished():  # the proposer could not know that the text ends here
            return Verdict(path, None, decisions, probabilities)
        forced, legal = tree.forced_child(node), tree.legal.get(node)
        if forced is None and legal is None and fast_forward and (run := constraint.forced(look=False)):
            forced = tree.child(node, run[0])
            if forced is None:
                return Verdict(path, None, decisions, probabilities)
        if forced is not None:
            constraint.accept([tree.tokens[forced]])
            path.append(forced)
            probabilities.append(CERTAIN)
            node = forced
            continue
        legal = constraint.legal() if legal is None else legal
        if not legal.size:
            raise GrammarError("the grammar has come to a dead end: it allows no token and may not end")
        decisions += legal.size > 1
        chosen, probability = choose(scores.of(node - tree.root, legal)) if legal.size > 1 else (0, CERTAIN)
        token = int(legal[chosen])
        constraint.accept([token])
        probabilities.append(probability)
        child = tree.child(node, token)
        if child is None:
            return Verdict(path, token, decisions, probabilities)
        path.append(child)
        node = child


def choose(logits: NDArray[np.float32]) -> tuple[int, float]:
    """Return the index of the highest of several logits [N], the first of equal ones, and its softmax probability."""
    best = int(np.argmax(logits))
    return best, float(1 / np.exp(logits - logits[best]).sum())
