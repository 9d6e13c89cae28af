"""What the decoding loops need of a model."""

from typing import Protocol

import torch
from torch import Tensor

from service.decoding.kv_cache import KVCache
from service.decoding.linear import Linear
from service.decoding.llama import LlamaConfig
from service.decoding.lm_head import LmHead


class TargetModel(Protocol):
    """A causal language model that can read a tree of new positions: `Llama` or `NativeLlama`."""

    @property
    def config(self) -> LlamaConfig: ...

    @property
    def precision(self) -> str:
        """The number format of its products: "int8", "bfloat16", ..."""

    @property
    def device(self) -> torch.device: ...

    @property
    def lm_head(self) -> LmHead: ...

    def new_cache(self, max_positions: int) -> KVCache: ...

    def embed(self, tokens: Tensor) -> Tensor:
        """What the first layer reads, [N, H]."""
        ...

    def forward(self, tokens: Tensor, positions: Tensor, cache: KVCache, mask: Tensor | None = None) -> Tensor: ...

    def linear(self, weight: Tensor) -> Linear: ...

    def logits(self, hidden: Tensor, token_ids: Tensor | None = None) -> Tensor: ...
