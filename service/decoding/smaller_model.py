"""Another, smaller model as the draft: its own weights, and a cache of its own for what it has read."""

from dataclasses import dataclass

import torch

from service.decoding.draft import TokenTree
from service.decoding.kv_cache import KVCache
from service.decoding.lm_head import HiddenScores, Scores
from service.decoding.model import TargetModel
from service.decoding.speculation import ChainShape, Speculation


@dataclass(frozen=True, slots=True)
class SmallerDraft:
    """A model that knows the same tokens as the target. `cache` is its own, as large as the target's."""

    target: TargetModel
    model: TargetModel
    cache: KVCache
    shape: ChainShape

    def speculate(self, cache: KVCache) -> Speculation:
        """A new generation, whose target reads into `cache`."""
        return Speculation(_Reader(self.model, self.cache, cache), self.target, self.shape)


class _Reader:
    """What the smaller model has read of one generation."""

    def __init__(self, model: TargetModel, cache: KVCache, target_cache: KVCache) -> None:
        """`target_cache` tells how much of what was drafted has been accepted."""
        self.draft_forwards = 0
        self._model = model
        self._cache = cache
        self._cache.reset()
        self._target_cache = target_cache
        self._tokens: list[int] = []  # before the present chain
        self._chain: list[int] = []

    def begin(self, nodes: TokenTree) -> None:
        accepted = self._target_cache.length  # what was kept of the last chain is a prefix of it
        self._tokens = (self._tokens + self._chain)[:accepted]
        self._chain = nodes.tokens  # which grows with the chain
        self._cache.length = min(self._cache.length, accepted)

    @torch.inference_mode()
    def read(self, nodes: TokenTree) -> Scores:
        start = self._cache.length
        unread = (self._tokens + nodes.tokens)[start:]
        device = self._model.device
        positions = torch.arange(start, start + len(unread), device=device)
        hidden = self._model.forward(torch.tensor(unread, device=device), positions, self._cache)  # [N, H]
        self._cache.keep(range(len(unread)))
        self.draft_forwards += 1
        return HiddenScores(self._model.lm_head, hidden[-1:])
