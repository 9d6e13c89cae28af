"""The tree of tokens that one forward reads (`TokenTree`), and the shape in which Medusa heads draft (`MedusaTree`).

A shape's choices use NxDI's list format: `[0, 2]` is the third best guess of the second head after the best of the
first. A shape knows no tokens; a proposer fills it in, and the grammar's forced and forbidden tokens change it on the
way.
"""

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

ROOT = 0
NO_NODE = -1


class TokenTree:
    """The nodes of one forward, parents before children; `start` is the position of the first.

    The first `run` nodes are a chain of tokens already emitted, or the prompt's, that the model has not read; drafted
    nodes descend from the last of them. `first`: it is a generation's first tree, whose run is the prompt, or what a
    prefix cache lacked of it (by default where `start` is 0). `starts_sampled`: the first of the nodes is the model's
    own choice. `unchecked`: the grammar was not compiled yet, so drafted nodes may be illegal or lie beyond its end.
    `text` is what was emitted, up to the root, without the prompt. `legal` holds the legal tokens after a node where a
    proposer has looked them up.
    """

    def __init__(
        self,
        run: Sequence[int],
        start: int = 0,
        *,
        first: bool | None = None,
        starts_sampled: bool = False,
        unchecked: bool = False,
        text: Sequence[int] = (),
    ) -> None:
        self.run = len(run)
        self.start = start
        self.first = not start if first is None else first
        self.starts_sampled = starts_sampled
        self.unchecked = unchecked
        self.text = text
        self.tokens = list(run)
        self.parents = list(range(NO_NODE, len(run) - 1))
        self.depths = list(range(len(run)))
        self.forced: set[int] = set()
        self.legal: dict[int, NDArray[np.int64]] = {}
        self._children: dict[int, dict[int, int]] = {}

    @property
    def root(self) -> int:
        return self.run - 1

    def add(self, parent: int, token: int, *, forced: bool = False) -> int:
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
        """Return the only child of a node after which the grammar leaves no choice; None where there is none."""
        child = next(iter(self._children.get(node, {}).values()), None)
        return child if child in self.forced else None

    def keep_chain(self, most_nodes: int) -> None:
        """Drop all drafted nodes but each one's first child, from the root on, and those beyond `most_nodes`."""
        chain, node = [self.root], self.root
        while (child := next(iter(self._children.get(node, {}).values()), None)) is not None:
            node = child
            chain.append(node)
        chain = chain[: most_nodes - self.run + 1]
        drafted = [(self.tokens[node], node in self.forced) for node in chain[1:]]
        legal = {self.root + depth: self.legal[node] for depth, node in enumerate(chain) if node in self.legal}
        for nodes in (self.tokens, self.parents, self.depths):
            del nodes[self.run :]
        self.forced, self.legal, self._children = set(), legal, {}
        for token, forced in drafted:
            self.add(len(self.tokens) - 1, token, forced=forced)

    def tensors(self, device: torch.device) -> tuple[Tensor, Tensor, Tensor | None]:
        """Return tokens [N], positions [N], and the mask [N, N], which is None for a chain."""
        is_chain = self.depths[-1] == len(self.depths) - 1
        return (
            torch.tensor(self.tokens, device=device),
            torch.tensor(self.depths, device=device) + self.start,
            None if is_chain else ancestor_mask(self.parents).to(device),
        )


@dataclass(frozen=True)
class MedusaTree:
    """Shape of a draft: `ranks[node]` is a node's rank among candidates, `branches[node]` its (rank, child) pairs.

    Where the device takes forwards of any size, a node is drafted only if the heads hold its path, the product of their
    probabilities along it, to be at least `p_min`: an unlikely row costs more than it saves (the idea is
    EAGLE-2's, Li et al., arXiv 2406.16858). 0 drafts the whole tree.
    """

    parents: tuple[int, ...]
    ranks: tuple[int, ...]
    branches: tuple[tuple[tuple[int, int], ...], ...]
    p_min: float = 0.0

    @classmethod
    def from_choices(cls, choices: Sequence[Sequence[int]], num_heads: int, p_min: float = 0.0) -> "MedusaTree":
        """Build the tree of a list of choices, without the root; an empty list is plain greedy decoding.

        Raises ValueError for an empty or repeated choice, a negative rank, a choice whose parent is missing, one deeper
        than there are heads, or a `p_min` outside [0, 1).
        """
        if not 0 <= p_min < 1:
            raise ValueError(f"p_min {p_min} is not in [0, 1)")
        nodes = sorted((tuple(choice) for choice in choices), key=lambda choice: (len(choice), choice))
        index = {(): ROOT, **{node: position + 1 for position, node in enumerate(nodes)}}
        for node in nodes:
            _check(node, index, num_heads)
        if len(index) != len(nodes) + 1:
            repeated = next(node for node in nodes if nodes.count(node) > 1)
            raise ValueError(f"choice {list(repeated)} is listed twice")
        branches: list[list[tuple[int, int]]] = [[] for _ in index]
        for node in nodes:  # siblings come in ascending rank
            branches[index[node[:-1]]].append((node[-1], index[node]))
        return cls(
            parents=(NO_NODE, *(index[node[:-1]] for node in nodes)),
            ranks=(0, *(node[-1] for node in nodes)),
            branches=tuple(tuple(pairs) for pairs in branches),
            p_min=p_min,
        )


def _check(node: tuple[int, ...], index: dict[tuple[int, ...], int], num_heads: int) -> None:
    if not node:
        raise ValueError("the root is in every tree: an empty choice names nothing")
    if min(node) < 0:
        raise ValueError(f"choice {list(node)} has a negative rank")
    if len(node) > num_heads:
        raise ValueError(f"choice {list(node)} needs {len(node)} heads, and there are {num_heads}")
    if node[:-1] not in index:
        raise ValueError(f"choice {list(node)} hangs from {list(node[:-1])}, which is not a choice")


def path_to(node: int, parents: Sequence[int]) -> list[int]:
    """Return the nodes from the root to `node`, both included."""
    path = []
    while node != NO_NODE:
        path.append(node)
        node = parents[node]
    return path[::-1]


def ancestor_mask(parents: Sequence[int]) -> Tensor:
    """Return [nodes, nodes] bool: each node sees itself and its ancestors. Parents come before their children."""
    mask = torch.eye(len(parents), dtype=torch.bool)
    rows = mask.numpy()  # the same memory; numpy copies a short row ten times faster
    for node, parent in enumerate(parents):
        if parent != NO_NODE:
            rows[node, :node] = rows[parent, :node]
    return mask
