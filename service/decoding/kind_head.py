"""A head that says what a question is about, from the states that the model has of it anyway.

It reads the last layer's states of a prompt, which the first forward computes, and points into the space in which a
shop's categories are (`planner/shop/meanings.py`): it costs no token and no forward. The mean over the question tells
of what it speaks, and the state of its last token what will be written of it.
"""

from dataclasses import dataclass, fields
from pathlib import Path

import torch
import torch.nn.functional as F
from safetensors.torch import load_file
from torch import Tensor

_WIDEST = 5.0  # standard deviations: what is farther off is cut
_PARTS = ("centre", "scale", "inner", "inner_bias", "outer", "outer_bias", "need", "need_bias")


@dataclass(frozen=True)
class KindHeadWeights:
    """Weights of a kind head with R features for states of width H and a space of S numbers, all float32.

    Mean and last state, one after the other and normalised by `centre` and `scale` [2H], go through a GELU of `inner`
    [R, 2H] and `inner_bias` [R] to `outer` [S, R] and `outer_bias` [S]; `need` [1, 2H] and `need_bias` [1] say whether
    the question tells a need.
    """

    centre: Tensor
    scale: Tensor
    inner: Tensor
    inner_bias: Tensor
    outer: Tensor
    outer_bias: Tensor
    need: Tensor
    need_bias: Tensor

    def read(self, features: Tensor) -> Tensor:
        """Return features [N, 2H], as `features_of` has them, normalised."""
        return ((features - self.centre) / self.scale).clamp(-_WIDEST, _WIDEST)

    def direction(self, read: Tensor) -> Tensor:
        """Return where normalised features [N, 2H] point, [N, S], to be added to a direction of length 1."""
        return F.linear(F.gelu(F.linear(read, self.inner, self.inner_bias)), self.outer, self.outer_bias)

    def odds(self, read: Tensor) -> Tensor:
        """Return the logarithm of the odds [N] that normalised features [N, 2H] are of a need."""
        return F.linear(read, self.need, self.need_bias)[:, 0]


@dataclass(frozen=True)
class KindHead:
    """The weights of a kind head, and the name of the `space` in which it points."""

    weights: KindHeadWeights
    space: str

    @property
    def hidden_size(self) -> int:
        return self.weights.centre.shape[0] // 2

    @torch.inference_mode()
    def of(self, states: Tensor) -> tuple[Tensor, float]:
        """Return where a prompt's states [N, H] point, [S], and the logarithm of the odds that it tells a need."""
        read = self.weights.read(features_of(states)[None])
        return self.weights.direction(read)[0], float(self.weights.odds(read)[0])


def features_of(states: Tensor) -> Tensor:
    """Return what the head reads, [2H], of a prompt's states [N, H], its beginning-of-sequence token's included.

    The mean is that of the question's own tokens, without the first one and the end of the line.
    """
    own = states[1:-1] if len(states) > 2 else states[-1:]
    return torch.cat([own.float().mean(0), states[-1].float()])


def load_kind_head_weights(path: Path) -> KindHeadWeights:
    """Read a .safetensors file. Raises ValueError where a tensor is missing, unknown, or of no fitting shape."""
    state = load_file(path)
    if set(state) != set(_PARTS):
        raise ValueError(f"{path.name} is no kind head: {', '.join(sorted(set(state) ^ set(_PARTS)))}")
    weights = KindHeadWeights(**{name: tensor.float() for name, tensor in state.items()})
    wide, features, space = len(weights.centre), len(weights.inner_bias), len(weights.outer_bias)
    fitting = ((wide,), (wide,), (features, wide), (features,), (space, features), (space,), (1, wide), (1,))
    for field, shape in zip(fields(weights), fitting, strict=True):
        found = tuple(getattr(weights, field.name).shape)
        if found != shape:
            raise ValueError(f"{path.name} is no kind head: {field.name} has the shape {found}, not {shape}")
    return weights
