"""Medusa heads as stored in files, whatever the layout: each tensor with the dtype and bits it was published in."""

from collections.abc import Mapping
from dataclasses import dataclass

import torch
from torch import Tensor


class LayoutError(ValueError):
    """Raised for a file that does not match its layout. The message names the file, the problem and what to do."""


@dataclass(frozen=True, eq=False)
class HeadWeights:
    """One residual block for each head, `x + SiLU(W x + b)`, and its LM head.

    `weights` [H, H] and `biases` [H], one of each for a head; `lm_heads` [V, H] for each head, None where all share the
    base's.
    """

    weights: tuple[Tensor, ...]
    biases: tuple[Tensor, ...]
    lm_heads: tuple[Tensor, ...] | None = None

    @property
    def count(self) -> int:
        """Number of heads."""
        return len(self.weights)

    @property
    def hidden_size(self) -> int:
        """Size H of the hidden state."""
        return int(self.weights[0].shape[0])

    def sharing(self, lm_head: Tensor) -> "HeadWeights":
        """Return the same heads, without their own LM heads where each equals the base's `lm_head` to the last bit."""
        if self.lm_heads is not None and all(same_bits(own, lm_head) for own in self.lm_heads):
            return HeadWeights(self.weights, self.biases)
        return self

    def refuse_other_shapes(self, hidden_size: int, vocab_size: int) -> None:
        """Raise LayoutError unless every tensor fits a base of `hidden_size` and `vocab_size`."""
        wanted = {"weight": (hidden_size, hidden_size), "bias": (hidden_size,), "LM head": (vocab_size, hidden_size)}
        for kind, tensors in zip(wanted, (self.weights, self.biases, self.lm_heads or ()), strict=True):
            for head, tensor in enumerate(tensors):
                if tuple(tensor.shape) != wanted[kind]:
                    raise LayoutError(
                        f"the {kind} of head {head} is {list(tensor.shape)}, and this base needs {list(wanted[kind])}: "
                        "these heads were trained on another base"
                    )


def same_bits(one: Tensor, other: Tensor) -> bool:
    """Tell whether two tensors have the same shape, dtype and bits (-0.0 differs from 0.0, and NaN equals NaN)."""
    if one.shape != other.shape or one.dtype != other.dtype:
        return False
    return one is other or torch.equal(_bits(one), _bits(other))


def _bits(tensor: Tensor) -> Tensor:
    return tensor.contiguous().reshape(-1).view(torch.uint8)


def refuse_other_names(found: Mapping[str, Tensor], expected: set[str], where: str) -> None:
    """Raise LayoutError naming the tensors that are missing or unexpected."""
    missing, unexpected = sorted(expected - set(found)), sorted(set(found) - expected)
    parts = [f"{what}: {_some(names)}" for what, names in (("missing", missing), ("unexpected", unexpected)) if names]
    if parts:
        raise LayoutError(f"{where} does not hold the tensors of its layout; {'; '.join(parts)}")


def _some(names: list[str], most: int = 6) -> str:
    return ", ".join(names[:most]) + (f" and {len(names) - most} more" if len(names) > most else "")
