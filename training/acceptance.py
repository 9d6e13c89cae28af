"""Acceptance rates: which ranks at which depth are worth verifying, on this model's own plans.

For every position of the model's greedy plans we note at which rank, among the tokens that the grammar allows there,
each head saw the token that came. A node is accepted where its ranks are a prefix of those, so counting prefixes gives
every node's acceptance; the most accepted nodes form the best tree of each size (a parent is never rarer than its
child; Sequoia, Chen et al., 2024, with measured instead of assumed acceptance). `tree.py` measures which size is best.
"""

from collections import Counter
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from service.decoding.heads import MedusaHeads
from service.decoding.lm_head import LmHead
from training.tuned import GreedyPlan

_MAX_RANK = 10  # NxDI's on-device sampling keeps ten candidates a node


@dataclass(frozen=True, slots=True)
class Acceptance:
    """How often each path of ranks was right, over `starts` positions where a step could have begun."""

    paths: Counter[tuple[int, ...]]
    starts: int

    def add(self, other: "Acceptance") -> "Acceptance":
        return Acceptance(self.paths + other.paths, self.starts + other.starts)

    def best_tree(self, nodes: int) -> list[list[int]]:
        """Return the `nodes` most accepted paths, in NxDI's list format: shorter first, then by rank."""
        chosen = sorted(self.paths, key=lambda path: (-self.paths[path], len(path), path))[:nodes]
        return [list(path) for path in sorted(chosen, key=lambda path: (len(path), path))]


def plan_acceptance(heads: MedusaHeads, lm_head: LmHead, plan: GreedyPlan) -> Acceptance:
    """Count one plan's rank paths: head i on the state that wrote token p predicts token p + 1 + i."""
    tokens, legal = plan.tokens, plan.legal
    paths: Counter[tuple[int, ...]] = Counter()
    starts = 0
    for position in range(len(tokens) - 1):
        if legal[position] is None:
            continue  # a step begins only where a decision was made
        starts += 1
        scores = heads.scores(lm_head, plan.hidden[position])
        path: tuple[int, ...] = ()
        for head, target in enumerate(range(position + 1, min(position + 1 + heads.num_heads, len(tokens)))):
            choices = legal[target]
            if choices is None:
                continue
            rank = _rank(scores.of(head, choices), choices, tokens[target])
            if rank >= _MAX_RANK:
                break
            path = (*path, rank)
            paths[path] += 1
    return Acceptance(paths, starts)


def _rank(scores: NDArray[np.float32], legal: NDArray[np.int64], token: int) -> int:
    """Return how many legal tokens score higher than the actual one."""
    return int((scores > scores[np.searchsorted(legal, token)]).sum())
