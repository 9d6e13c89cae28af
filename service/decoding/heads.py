"""Medusa heads: guesses at the tokens after the next one, from one hidden state (Cai et al., arXiv 2401.10774).

Head i reads the hidden state of position t and predicts token t + 2 + i; token t + 1 is the LM head's own.
"""

from collections.abc import Callable, Mapping
from copy import copy
from pathlib import Path

import numpy as np
import torch
import torch.nn.functional as F
from numpy.typing import NDArray
from safetensors.torch import load_file
from torch import Tensor

from service.decoding.linear import Linear, linear
from service.decoding.lm_head import HiddenScores, LmHead, Scores


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
        """Return the logits of `token_ids` by head `row`."""
        if self._scores is None:
            states = self._heads.hidden(self._hidden)
            if self._own is None:
                self._scores = [HiddenScores(self._lm_head, states)] * self._heads.num_heads
            else:
                self._scores = [HiddenScores(own, states) for own in self._own]
        return self._scores[row].of(row, token_ids)
