"""What a generation runs on: the model that decides, and what it keeps of the tokens it has read."""

from collections.abc import Sequence
from typing import Protocol

import torch
from torch import Tensor

from service.decoding.heads import MedusaHeads
from service.decoding.kv_cache import KVCache
from service.decoding.linear import Linear
from service.decoding.llama import LlamaConfig
from service.decoding.lm_head import HiddenScores, LmHead, Scores
from service.decoding.proposer import MOST_DRAFTED_NODES
from service.decoding.tree import TokenTree


class Target(Protocol):
    """The model of one generation at a time: `LlamaTarget`, `EarlyExitTarget` or `CompiledTarget` (engines/neuron)."""

    @property
    def length(self) -> int:
        """Positions that are kept."""
        ...

    @property
    def most_nodes(self) -> int:
        """Nodes that the next forward can read."""
        ...

    @property
    def most_drafted_nodes(self) -> int:
        """How many of those may hang from tokens already emitted."""
        ...

    def begin(self, prompt_tokens: int, max_tokens: int) -> None:
        """Forget everything: a new generation. Raises ValueError where it does not fit."""
        ...

    def forward(self, tree: TokenTree) -> Scores:
        """Read a tree; the scores have a row for its root and one for each node after it."""
        ...

    def commit(self, path: Sequence[int]) -> int:
        """Keep, of the tree just read, its run and these nodes of a path from its root; returns how many of these.

        It may be fewer: what is not kept has to be read again.
        """
        ...


class CausalLM(Protocol):
    """A causal language model that can read a tree of new positions, whole or between layers: Llama or NativeLlama."""

    @property
    def config(self) -> LlamaConfig: ...

    @property
    def precision(self) -> str:
        """The number format of its products: "int8", "bfloat16", ..."""

    @property
    def kernel(self) -> str:
        """What multiplies: "avx2", "neon", ... are ours (native/targets.py), "torch" is not."""

    @property
    def device(self) -> torch.device: ...

    @property
    def lm_head(self) -> LmHead: ...

    def new_cache(self, max_positions: int) -> KVCache: ...

    def embed(self, tokens: Tensor) -> Tensor:
        """What the first layer reads, [N, H]."""
        ...

    def forward(self, tokens: Tensor, positions: Tensor, cache: KVCache, mask: Tensor | None = None) -> Tensor: ...

    def run_layers(self, hidden: Tensor, positions: Tensor, cache: KVCache, layers: range) -> Tensor:
        """`hidden` [N, H] of a chain, which may be overwritten, after some more layers. Else as `forward`."""
        ...

    def final_norm(self, hidden: Tensor) -> Tensor:
        """The final norm of [N, H]."""
        ...

    def linear(self, weight: Tensor) -> Linear: ...

    def logits(self, hidden: Tensor, token_ids: Tensor | None = None) -> Tensor: ...


class LlamaTarget:
    """A model on PyTorch with the K/V cache of one generation, and its Medusa heads where they draft."""

    most_drafted_nodes = MOST_DRAFTED_NODES

    _run: int  # of the tree just read
    _hidden: Tensor  # [N, H], of its nodes
    _last: Tensor  # [H], of the last position that is kept

    def __init__(self, model: CausalLM, cache: KVCache, heads: MedusaHeads | None = None) -> None:
        """`cache` should have room for a tree beyond prompt and plan: what does not fit is not drafted."""
        self.model = model
        self.cache = cache
        self._heads = heads

    @property
    def length(self) -> int:
        return self.cache.length

    @property
    def most_nodes(self) -> int:
        return self.cache.capacity - self.cache.length

    @property
    def num_heads(self) -> int:
        return self._heads.num_heads if self._heads else 0

    def begin(self, prompt_tokens: int, max_tokens: int) -> None:
        """Raises ValueError where prompt and plan fit neither the model nor the cache."""
        if prompt_tokens + max_tokens > min(self.model.config.max_position_embeddings, self.cache.capacity):
            raise ValueError(f"{prompt_tokens} prompt tokens and {max_tokens} more do not fit the model or the cache")
        self.cache.reset()

    def forward(self, tree: TokenTree) -> Scores:
        self._run = tree.run
        self._hidden = self._read(tree)
        return HiddenScores(self.model.lm_head, self._hidden[tree.root :])

    def commit(self, path: Sequence[int]) -> int:
        """Keeps the whole path."""
        self.cache.keep([*range(self._run), *path])
        self._last = self._hidden[path[-1] if path else self._run - 1]
        return len(path)

    def head_scores(self) -> Scores:
        """What the heads guess after the last position. Raises ValueError where there are none."""
        if self._heads is None:
            raise ValueError("this target has no Medusa heads")
        return self._heads.scores(self.model.lm_head, self._last)

    def _read(self, tree: TokenTree) -> Tensor:
        """Hidden states [N, H] of the nodes."""
        tokens, positions, mask = tree.tensors(self.model.device)
        return self.model.forward(tokens, positions, self.cache, mask)
