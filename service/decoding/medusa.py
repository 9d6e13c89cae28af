"""Medusa heads, and the tree of their guesses, pruned by the grammar (Cai et al., arXiv 2401.10774).

Head i reads the hidden state of position t and predicts token t + 2 + i; token t + 1 is the LM head's own.
"""

import math
from collections.abc import Callable, Mapping
from concurrent.futures import Future
from copy import copy
from dataclasses import dataclass
from pathlib import Path
from typing import Protocol

import numpy as np
import torch
import torch.nn.functional as F
from numpy.typing import NDArray
from safetensors.torch import load_file
from torch import Tensor

from service.decoding.constraint import Constraint, known
from service.decoding.linear import HiddenScores, Linear, LmHead, Scores, linear
from service.decoding.proposer import Budget, Guess
from service.decoding.tree import ROOT, MedusaTree, TokenTree


class MedusaHeads:
    """One residual block for each head, `x + SiLU(W x + b)`, followed by the model's LM head or the head's own."""

    def __init__(self, weight: Tensor, bias: Tensor, lm_heads: list[LmHead] | None = None) -> None:
        """Take `weight` [num_heads, H, H], `bias` [num_heads, H], and `lm_heads` unless they share the model's.

        The heads compute in the dtype of `weight`: in bfloat16 they take half the time, most of which is reading them.
        """
        self.num_heads = weight.shape[0]
        self._weight = weight
        self._product = linear(weight.reshape(-1, weight.shape[-1]))  # all heads in one product
        self._bias = bias.reshape(-1).float()
        self._lm_heads = lm_heads

    @classmethod
    def load(cls, path: Path) -> "MedusaHeads":
        """Read a .safetensors file, or FasterDecoding's medusa_lm_head.pt."""
        state = load_file(path) if path.suffix == ".safetensors" else torch.load(path, weights_only=True)
        return cls.from_state_dict(state)

    @classmethod
    def from_state_dict(cls, state: Mapping[str, Tensor]) -> "MedusaHeads":
        """Read tensors named `{i}.0.linear.weight`, `{i}.0.linear.bias` and, for an LM head of its own, `{i}.1.weight`.

        Raises ValueError for names of another layout: gaps, deeper residual stacks, LM heads on some heads only.
        """
        heads = sorted({int(name.split(".", 1)[0]) for name in state if name.split(".", 1)[0].isdigit()})
        expected = {f"{head}.0.linear.{part}" for head in range(len(heads)) for part in ("weight", "bias")}
        own = {f"{head}.1.weight" for head in range(len(heads))}
        if not heads or set(state) not in (expected, expected | own):
            surprising = sorted(set(state) ^ expected) or ["no head at all"]
            raise ValueError(f"not Medusa heads of one residual block each: {', '.join(surprising[:4])}")
        return cls(
            torch.stack([state[f"{head}.0.linear.weight"] for head in heads]),
            torch.stack([state[f"{head}.0.linear.bias"] for head in heads]),
            [LmHead(state[f"{head}.1.weight"]) for head in heads] if own <= set(state) else None,
        )

    def with_products(self, make: Callable[[Tensor], Linear]) -> "MedusaHeads":
        """Return the same heads with their product [num_heads x H, H] made by `make`, such as `CausalLM.linear`."""
        made = copy(self)
        made._product = make(self._weight.reshape(-1, self._weight.shape[-1]))
        return made

    @torch.inference_mode()
    def hidden(self, hidden: Tensor) -> Tensor:
        """Return each head's state [num_heads, H], float32, for one position's hidden state [H]."""
        block = F.silu(self._product(hidden.to(self._product.dtype)[None]).float().add(self._bias))
        return block.view(self.num_heads, -1).add_(hidden.float())

    def scores(self, lm_head: LmHead, hidden: Tensor) -> Scores:
        """Return the scores of every head for the position with hidden state [H]; `lm_head` is the model's."""
        return HeadScores(self, lm_head, hidden, self._lm_heads)


class HeadScores:
    """`Scores` with a row for each head; the heads run when the first row is read."""

    def __init__(self, heads: MedusaHeads, lm_head: LmHead, hidden: Tensor, own: list[LmHead] | None) -> None:
        self._heads = heads
        self._lm_head = lm_head
        self._hidden = hidden
        self._own = own
        self._scores: list[HiddenScores] | None = None

    def of(self, row: int, token_ids: NDArray[np.int64]) -> NDArray[np.float32]:
        if self._scores is None:
            states = self._heads.hidden(self._hidden)
            if self._own is None:
                self._scores = [HiddenScores(self._lm_head, states)] * self._heads.num_heads
            else:
                self._scores = [HiddenScores(own, states) for own in self._own]
        return self._scores[row].of(row, token_ids)


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
