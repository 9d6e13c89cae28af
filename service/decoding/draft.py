"""One step's draft: a tree of tokens grown from the heads' guesses, as far as the grammar allows."""

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import partial

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from service.decoding.constraint import Constraint
from service.decoding.heads import MedusaHeads
from service.decoding.lm_head import LmHead, Scores
from service.decoding.prefill_draft import NO_PREFILL_DRAFT, PrefillDraft
from service.decoding.tree import NO_NODE, ROOT, MedusaTree, ancestor_mask

# Forced runs add nodes that the tree's shape did not count. No device gains from more than this in one forward.
MOST_DRAFTED_NODES = 128


class TokenTree:
    """The nodes of one forward, parents before children.

    The first `run` nodes are a chain of tokens already emitted that the model has not read; what is drafted hangs from
    the last of them. `legal` holds the legal tokens after a node where drafting has looked. `unchecked`: no grammar was
    asked about what was drafted.
    """

    def __init__(self, run: Sequence[int]) -> None:
        self.run = len(run)
        self.tokens = list(run)
        self.parents = list(range(NO_NODE, len(run) - 1))
        self.depths = list(range(len(run)))
        self.forced: set[int] = set()
        self.legal: dict[int, NDArray[np.int64]] = {}
        self.unchecked = False
        self._children: dict[int, dict[int, int]] = {}

    @property
    def root(self) -> int:
        """The last node of the run."""
        return self.run - 1

    def add(self, parent: int, token: int, *, forced: bool) -> int:
        node = len(self.tokens)
        self.tokens.append(token)
        self.parents.append(parent)
        self.depths.append(self.depths[parent] + 1)
        self._children.setdefault(parent, {})[token] = node
        if forced:
            self.forced.add(node)
        return node

    def child(self, node: int, token: int) -> int | None:
        return self._children.get(node, {}).get(token)

    def forced_child(self, node: int) -> int | None:
        """The only child of a node after which the grammar leaves no choice."""
        child = next(iter(self._children.get(node, {}).values()), None)
        return child if child in self.forced else None

    def tensors(self, start: int, device: torch.device) -> tuple[Tensor, Tensor, Tensor | None]:
        """Tokens [N], positions [N] counted from `start`, and the mask [N, N], None for a chain."""
        is_chain = self.depths[-1] == len(self.depths) - 1
        return (
            torch.tensor(self.tokens, device=device),
            torch.tensor(self.depths, device=device) + start,
            None if is_chain else ancestor_mask(self.parents).to(device),
        )


@dataclass(frozen=True, slots=True)
class Drafter:
    """Grows drafts of one tree's shape from one set of heads."""

    heads: MedusaHeads
    tree: MedusaTree
    lm_head: LmHead
    prefill_draft: PrefillDraft = NO_PREFILL_DRAFT

    def open(self, nodes: TokenTree, constraint: Constraint, *, deepest: int, room: int) -> None:
        """Hang the usual beginnings from the prompt's last token: there is no hidden state yet to guess from."""
        branches = _Branches(nodes, constraint, deepest, len(nodes.tokens) + min(room, MOST_DRAFTED_NODES))
        _expand_prefill(branches, nodes.root, self.prefill_draft)

    def open_unchecked(self, nodes: TokenTree, *, deepest: int, room: int) -> None:
        """The same without asking a grammar that is not there yet: what it forbids, verification drops."""
        nodes.unchecked = True
        _expand_unchecked(
            nodes, nodes.root, self.prefill_draft, deepest, len(nodes.tokens) + min(room, MOST_DRAFTED_NODES)
        )

    def grow(self, nodes: TokenTree, hidden: Tensor, constraint: Constraint, *, deepest: int, room: int) -> None:
        """Hang guesses from the root of `nodes`, where the constraint stands (it returns there).

        `hidden` [H] belongs to the position before the first node; `deepest` bounds the depth of nodes, `room` their
        number.
        """
        scores = self.heads.scores(self.lm_head, hidden)
        grow_tree(nodes, self.tree, scores, self.heads.num_heads, constraint, deepest=deepest, room=room)


def grow_tree(
    nodes: TokenTree,
    tree: MedusaTree,
    scores: Scores,
    num_heads: int,
    constraint: Constraint,
    *,
    deepest: int,
    room: int,
) -> None:
    """`Drafter.grow` for guesses that are there already: `scores` has a row for each of `num_heads` heads."""
    branches = _Branches(nodes, constraint, deepest, len(nodes.tokens) + min(room, MOST_DRAFTED_NODES))
    _Growth(tree, num_heads, branches, scores).expand(nodes.root, ROOT)


@dataclass(frozen=True, slots=True)
class _Branches:
    """Adds guesses with what the grammar forces after them, within bounds of depth and number."""

    nodes: TokenTree
    constraint: Constraint
    deepest: int
    most_nodes: int

    def legal(self, node: int) -> NDArray[np.int64]:
        """The legal tokens after a node, where the constraint stands; remembered for the verdict."""
        legal = self.constraint.legal()
        self.nodes.legal[node] = legal
        return legal

    def add(
        self, parent: int, token: int, then: Callable[[int], None], *, forced: bool = False, most_rows: float = math.inf
    ) -> None:
        """Add a guess, with what it forces, and let `then` go on from its last node; not if it needs too many rows."""
        room = min(self.most_nodes - len(self.nodes.tokens), self.deepest - self.nodes.depths[parent])
        if room <= 0:
            return
        self.constraint.accept([token])
        # Most guesses are leaves that are never accepted: what follows them is not looked up.
        run = [token, *accept_forced(self.constraint, room, look=False)]
        # Where the grammar ends, the parent decides the guess and nothing would read what follows.
        if len(run) <= most_rows and not self.constraint.finished():
            node = parent
            for position, each in enumerate(run[:room]):
                node = self.nodes.add(node, each, forced=forced or position > 0)
            if len(run) <= room:
                then(node)
        self.constraint.rollback(len(run))


@dataclass(frozen=True, slots=True)
class _Growth:
    tree: MedusaTree
    num_heads: int
    branches: _Branches
    scores: Scores

    def expand(self, node: int, choice: int, probability: float = 1.0) -> None:
        """Add what the tree hangs from `choice` to `node`, after which nothing is forced.

        `probability` is what the heads gave the path to `node`.
        """
        children = self.tree.branches[choice]
        head = self.branches.nodes.depths[node]  # the head that guesses the token after a node of this depth
        if not children or head >= self.num_heads:
            return
        legal = self.branches.legal(node)
        if legal.size == 1:
            then = partial(self.expand, choice=choice, probability=probability)
            self.branches.add(node, int(legal[0]), then, forced=True, most_rows=self._most_rows(probability))
            return
        scores = self.scores.of(head, legal)
        ranked = best(scores, children[-1][0] + 1)
        shares = probability * _softmax(scores, ranked)
        for rank, child in children:
            if rank < ranked.size and shares[rank] >= self.tree.p_min:
                then = partial(self.expand, choice=child, probability=float(shares[rank]))
                most_rows = self._most_rows(float(shares[rank]))
                self.branches.add(node, int(legal[ranked[rank]]), then, most_rows=most_rows)

    def _most_rows(self, probability: float) -> float:
        """What a guess may cost: accepted, it saves one forward however many rows the grammar's forced tokens add."""
        least = self.tree.p_min
        return probability / least if least else math.inf


def _expand_prefill(branches: _Branches, node: int, prefill_draft: PrefillDraft) -> None:
    if not prefill_draft.branches:
        return
    legal = set(branches.legal(node).tolist())
    for token, rest in prefill_draft.branches.items():
        if token in legal:
            branches.add(node, token, partial(_expand_prefill, branches, prefill_draft=rest))


def _expand_unchecked(
    nodes: TokenTree, parent: int, prefill_draft: PrefillDraft, deepest: int, most_nodes: int
) -> None:
    for token, rest in prefill_draft.branches.items():
        if len(nodes.tokens) < most_nodes and nodes.depths[parent] < deepest:
            _expand_unchecked(nodes, nodes.add(parent, token, forced=False), rest, deepest, most_nodes)


def accept_forced(constraint: Constraint, limit: int, *, look: bool = True) -> list[int]:
    """Move the constraint on past all that it forces, `limit` tokens at most, and return them."""
    run: list[int] = []
    while len(run) < limit and (forced := constraint.forced(look=look)[: limit - len(run)]):
        constraint.accept(forced)
        run += forced
    return run


def _softmax(scores: NDArray[np.float32], chosen: NDArray[np.intp]) -> NDArray[np.float32]:
    """The probabilities of the chosen ones among all scores."""
    raised = np.exp(scores - scores[chosen[0]])
    probabilities: NDArray[np.float32] = raised[chosen] / raised.sum()
    return probabilities


def best(scores: NDArray[np.float32], count: int) -> NDArray[np.intp]:
    """Indices of the `count` highest scores (fewer if there are fewer), best first."""
    if count == 1:
        return np.array([scores.argmax()])
    if count >= scores.size:
        return np.argsort(-scores)
    highest = np.argpartition(scores, -count)[-count:]
    return highest[np.argsort(-scores[highest])]
