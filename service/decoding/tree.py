"""The shape of a Medusa tree: which ranks of which head's guesses are tried after which.

Choices come in NxDI's list format: `[0, 2]` is the third best guess of the second head after the best of the first.
The shape knows no tokens; `draft.py` fills it, and what a grammar forces or forbids bends it on the way.
"""

from collections.abc import Sequence
from dataclasses import dataclass

import torch
from torch import Tensor

ROOT = 0
NO_NODE = -1


@dataclass(frozen=True)
class TreeBuffers:
    """The tensors of a tree as it stands, for engines that compile one fixed shape. Node 0 is the root.

    `attention_mask` [nodes, nodes] bool: row i sees column j; `depths` [nodes] (0 for the root); `parents` [nodes]
    (-1 for the root); `paths` [leaves, depth + 1]: the nodes from the root to each leaf, padded with -1.
    """

    attention_mask: Tensor
    depths: Tensor
    parents: Tensor
    paths: Tensor


@dataclass(frozen=True)
class MedusaTree:
    """`ranks[node]` is a node's rank among its siblings' candidates, `branches[node]` its (rank, child) pairs.

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
        """The tree of a list of choices, the root aside; an empty list is plain greedy decoding.

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

    def buffers(self) -> TreeBuffers:
        """Mask, depths and retrieval paths of the whole tree."""
        paths = [path_to(leaf, self.parents) for leaf, pairs in enumerate(self.branches) if not pairs]
        length = max(map(len, paths))
        return TreeBuffers(
            attention_mask=ancestor_mask(self.parents),
            depths=torch.tensor([len(path_to(node, self.parents)) - 1 for node in range(len(self.parents))]),
            parents=torch.tensor(self.parents),
            paths=torch.tensor([path + [NO_NODE] * (length - len(path)) for path in paths]),
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
    """The nodes from the root to `node`, both included."""
    path = []
    while node != NO_NODE:
        path.append(node)
        node = parents[node]
    return path[::-1]


def ancestor_mask(parents: Sequence[int]) -> Tensor:
    """[nodes, nodes] bool: each node sees itself and its ancestors. Parents come before their children."""
    mask = torch.eye(len(parents), dtype=torch.bool)
    rows = mask.numpy()  # the same memory; numpy copies a short row ten times faster
    for node, parent in enumerate(parents):
        if parent != NO_NODE:
            rows[node, :node] = rows[parent, :node]
    return mask
