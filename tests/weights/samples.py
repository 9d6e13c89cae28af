"""Heads and bases of random bits: any bit pattern, NaN included, must survive."""

import torch
from torch import Tensor

from service.weights.head_weights import HeadWeights

DTYPES = (torch.float32, torch.float16, torch.bfloat16)


def random_bits(shape: tuple[int, ...], dtype: torch.dtype, generator: torch.Generator) -> Tensor:
    """Return a tensor of random bytes."""
    width = torch.empty((), dtype=dtype).element_size()
    octets = torch.randint(0, 256, (*shape[:-1], shape[-1] * width), generator=generator, dtype=torch.uint8)
    return octets.view(dtype)


def random_heads(
    count: int, hidden: int, vocabulary: int, dtype: torch.dtype, *, own: bool, seed: int = 0
) -> HeadWeights:
    """Return `count` heads over a base of that shape; with LM heads of their own where `own`."""
    generator = torch.Generator().manual_seed(seed)
    return HeadWeights(
        tuple(random_bits((hidden, hidden), dtype, generator) for _ in range(count)),
        tuple(random_bits((hidden,), dtype, generator) for _ in range(count)),
        tuple(random_bits((vocabulary, hidden), dtype, generator) for _ in range(count)) if own else None,
    )


def random_lm_head(hidden: int, vocabulary: int, dtype: torch.dtype, seed: int = 99) -> Tensor:
    return random_bits((vocabulary, hidden), dtype, torch.Generator().manual_seed(seed))
