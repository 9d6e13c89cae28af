"""Speculative decoding with a draft model: a chain of guesses under the grammar, one draft forward for each guess.

Leviathan et al. (arXiv 2211.17192) with greedy verification: the target keeps what it would have chosen itself, so the
draft decides how fast tokens come and never which. What the grammar forces after a guess is read together with it and
costs no draft forward. The draft model is a smaller one, with weights and a K/V cache of its own (`SmallerModel`), or
the target's first layers (`early_exit.py`).
"""

from concurrent.futures import Future
from dataclasses import dataclass
from typing import Protocol

import numpy as np
import torch
from numpy.typing import NDArray

from service.decoding.constraint import Constraint, known
from service.decoding.kv_cache import KVCache
from service.decoding.lm_head import HiddenScores, Scores
from service.decoding.proposer import Budget, Guess, Proposer
from service.decoding.target import CausalLM, LlamaTarget, Target
from service.decoding.tree import TokenTree


@dataclass(frozen=True, slots=True)
class ChainShape:
    """How far a draft guesses: at most `longest` times, and no further once a path is too improbable.

    The first guess whose path falls below `p_min` still costs the target only a row; to read it and guess further would
    cost a draft forward (the draft-exiting of Draft & Verify, Zhang et al., arXiv 2309.08168, applied to the
    probability of the whole path).
    """

    longest: int = 4
    p_min: float = 0.7


class DraftModel(Protocol):
    """A model that drafts for one target: `EarlyExitModel` or `SmallerModel`."""

    def begin(self, cache: KVCache) -> tuple[Target, Proposer]:
        """Return the target, which uses `cache`, and the proposer of a new generation."""
        ...


class DraftReader(Protocol):
    """The draft model of one generation: it reads a chain and guesses the token after it."""

    draft_forwards: int  # number of forwards so far

    def begin_chain(self, tree: TokenTree) -> None:
        """Prepare for a chain that will grow from `tree`, of which nothing has been read."""
        ...

    def guess(self, tree: TokenTree) -> Scores:
        """Read, in one forward, the nodes not read yet; row 0 of the result scores the token after the last node."""
        ...


@dataclass(frozen=True, slots=True)
class ChainProposer:
    """Grows chains of a draft model's guesses, also while the prompt is read."""

    reader: DraftReader
    shape: ChainShape

    @property
    def draft_forwards(self) -> int:
        return self.reader.draft_forwards

    def propose(self, tree: TokenTree, grammar: Constraint | Future[Constraint], budget: Budget) -> None:
        self.reader.begin_chain(tree)
        self._grow(tree, known(grammar), budget, tree.root, guesses=0, probability=1.0)

    def _grow(
        self, tree: TokenTree, constraint: Constraint, budget: Budget, last: int, *, guesses: int, probability: float
    ) -> None:
        """Add guesses after `last`, each with the tokens that the grammar forces after it."""
        is_long = guesses >= self.shape.longest or budget.below(tree, last) <= 0
        if is_long or probability < self.shape.p_min:
            return
        legal = constraint.legal()
        if not legal.size:
            return  # a dead end, which verification will report
        tree.legal[last] = legal
        token, forced = int(legal[0]), legal.size == 1
        if not forced:
            guess, share = _best(self.reader.guess(tree).of(0, legal))
            token, probability, guesses = int(legal[guess]), probability * share, guesses + 1
        with Guess(tree, constraint, budget, last, token, forced=forced) as node:
            if node is not None:
                self._grow(tree, constraint, budget, node, guesses=guesses, probability=probability)


def _best(scores: NDArray[np.float32]) -> tuple[int, float]:
    """Return the index of the highest score and its softmax probability."""
    best = int(scores.argmax())
    return best, float(1 / np.exp(scores - scores[best]).sum())


@dataclass(frozen=True, slots=True)
class SmallerModel:
    """A separate draft model with the target's vocabulary. `cache` is its own and as large as the target's."""

    target: CausalLM
    model: CausalLM
    cache: KVCache
    shape: ChainShape

    def begin(self, cache: KVCache) -> tuple[Target, Proposer]:
        return LlamaTarget(self.target, cache), ChainProposer(_SmallerReader(self.model, self.cache), self.shape)


class _SmallerReader:
    """The state of a smaller model in one generation: which tokens it has read."""

    def __init__(self, model: CausalLM, cache: KVCache) -> None:
        self.draft_forwards = 0
        self._model = model
        self._cache = cache
        self._cache.reset()
        self._tokens: list[int] = []  # tokens before the current chain
        self._chain: list[int] = []

    def begin_chain(self, tree: TokenTree) -> None:
        # The accepted part of the last chain is a prefix of it.
        self._tokens = (self._tokens + self._chain)[: tree.start]
        self._chain = tree.tokens  # the same list object, which grows with the chain
        self._cache.length = min(self._cache.length, tree.start)

    def guess(self, tree: TokenTree) -> Scores:
        start = self._cache.length
        unread = (self._tokens + tree.tokens)[start:]
        device = self._model.device
        positions = torch.arange(start, start + len(unread), device=device)
        hidden = self._model.forward(torch.tensor(unread, device=device), positions, self._cache)  # [N, H]
        self._cache.keep(range(len(unread)))
        self.draft_forwards += 1
        return HiddenScores(self._model.lm_head, hidden[-1:])
