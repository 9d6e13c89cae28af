"""Medusa heads as files hold them, whatever the layout: each tensor with the dtype and bits it was published in."""

from collections.abc import Mapping
from dataclasses import dataclass

import torch
from torch import Tensor


class LayoutError(ValueError):
    """A file that is not what its layout wants. The message names the file, what is wrong and what to do."""


@dataclass(frozen=True, eq=False)
class HeadWeights:
    """One residual block a head, `x + SiLU(W x + b)`, and what turns its state into logits.

    `weights` [H, H] and `biases` [H], one each a head; `lm_heads` [V, H] a head, None where all share the base's.
    """

    weights: tuple[Tensor, ...]
    biases: tuple[Tensor, ...]
    lm_heads: tuple[Tensor, ...] | None = None

    @property
    def count(self) -> int:
        """Heads."""
        return len(self.weights)

    @property
    def hidden_size(self) -> int:
        """H."""
        return int(self.weights[0].shape[0])

    def sharing(self, lm_head: Tensor) -> "HeadWeights":
        """The same heads, without LM heads of their own where every one is the base's `lm_head` to the last bit."""
        if self.lm_heads is not None and all(same_bits(own, lm_head) for own in self.lm_heads):
            return HeadWeights(self.weights, self.biases)
        return self

    def refuse_other_shapes(self, hidden_size: int, vocab_size: int) -> None:
        """Raises LayoutError unless every tensor fits a base of `hidden_size` and `vocab_size`."""
        wanted = {"weight": (hidden_size, hidden_size), "bias": (hidden_size,), "LM head": (vocab_size, hidden_size)}
        for kind, tensors in zip(wanted, (self.weights, self.biases, self.lm_heads or ()), strict=True):
            for head, tensor in enumerate(tensors):
                if tuple(tensor.shape) != wanted[kind]:
                    raise LayoutError(
                        f"the {kind} of head {head} is {list(tensor.shape)}, and this base needs {list(wanted[kind])}: "
                        "these heads were trained on another base"
                    )


def same_bits(one: Tensor, other: Tensor) -> bool:
    """Whether two tensors have one shape, one dtype and the same bits (so that -0.0 is not 0.0, and NaN is NaN)."""
    if one.shape != other.shape or one.dtype != other.dtype:
        return False
    return one is other or torch.equal(_bits(one), _bits(other))


def _bits(tensor: Tensor) -> Tensor:
    return tensor.contiguous().reshape(-1).view(torch.uint8)


def refuse_other_names(found: Mapping[str, Tensor], expected: set[str], where: str) -> None:
    """Raises LayoutError naming what is missing and what nobody expects."""
    missing, unexpected = sorted(expected - set(found)), sorted(set(found) - expected)
    parts = [f"{what}: {_some(names)}" for what, names in (("missing", missing), ("unexpected", unexpected)) if names]
    if parts:
        raise LayoutError(f"{where} does not hold the tensors of its layout; {'; '.join(parts)}")


def _some(names: list[str], most: int = 6) -> str:
    return ", ".join(names[:most]) + (f" and {len(names) - most} more" if len(names) > most else "")
