"""Helpers: the decoding loop over random models, one call per strategy, and the properties of every result."""

from collections.abc import Sequence
from concurrent.futures import Future
from dataclasses import replace
from typing import Any

import numpy as np
from numpy.typing import NDArray

from service.decoding.constraint import Constraint
from service.decoding.generation import generate
from service.decoding.heads import MedusaHeads
from service.decoding.kv_cache import KVCache
from service.decoding.medusa import MedusaProposer
from service.decoding.prefill_draft import NO_PREFILL_DRAFT, PrefillDraft, PrefillProposer
from service.decoding.proposer import MOST_DRAFTED_NODES, NO_PROPOSER
from service.decoding.statistics import Generation
from service.decoding.target import CausalLM, LlamaTarget
from service.decoding.tree import MedusaTree
from tests.decoding.tiny import CONFIG

FREE = "start: /[a-g ]{30}/"
DEEP = replace(CONFIG, num_layers=4)
NARROW = replace(CONFIG, hidden_size=128, intermediate_size=192, num_heads=4, num_kv_heads=2, head_dim=32, num_layers=3)


def decode_greedy(
    model: CausalLM,
    prompt: Sequence[int],
    grammar: Constraint | Future[Constraint],
    *,
    max_tokens: int,
    cache: KVCache | None = None,
    **options: Any,
) -> Generation:
    """Decode autoregressively, in a cache that is just large enough."""
    target = LlamaTarget(model, cache or model.new_cache(len(prompt) + max_tokens))
    return generate(target, NO_PROPOSER, prompt, grammar, max_tokens=max_tokens, **options)


def decode_medusa(
    model: CausalLM,
    heads: MedusaHeads,
    tree: MedusaTree,
    prompt: Sequence[int],
    grammar: Constraint | Future[Constraint],
    *,
    max_tokens: int,
    prefill_draft: PrefillDraft = NO_PREFILL_DRAFT,
    cache: KVCache | None = None,
    **options: Any,
) -> Generation:
    """Decode with Medusa heads, and an optional prefill draft."""
    target = LlamaTarget(model, cache or _roomy_cache(model, prompt, max_tokens), heads)
    proposer = PrefillProposer(prefill_draft, MedusaProposer(target, tree))
    return generate(target, proposer, prompt, grammar, max_tokens=max_tokens, **options)


def _roomy_cache(model: CausalLM, prompt: Sequence[int], max_tokens: int) -> KVCache:
    return model.new_cache(len(prompt) + max_tokens + MOST_DRAFTED_NODES)


def numbers(tokens: Sequence[int]) -> str:
    """Return token ids as a trace's text."""
    return " ".join(map(str, tokens))


def traced_tokens(generation: Generation) -> list[int]:
    """Return the tokens emitted by the steps of a generation traced with `numbers`."""
    return [int(text) for step in generation.steps for text in step.emitted]


def check_statistics(generation: Generation) -> None:
    statistics = generation.statistics
    assert statistics.plan_tokens == len(generation.tokens)
    assert statistics.decisions + statistics.forced_tokens == statistics.plan_tokens
    assert len(generation.probabilities) == len(generation.tokens)
    assert all(0 < probability <= 1 for probability in generation.probabilities)
    assert len(statistics.accepted_per_step) == statistics.forwards
    assert sum(statistics.accepted_per_step) == (statistics.plan_tokens if statistics.forwards else 0)


class DeadEnd:
    """A grammar that allows nothing and is not finished."""

    def legal(self) -> NDArray[np.int64]:
        return np.empty(0, dtype=np.int64)

    def forced(self, *, look: bool = True) -> list[int]:
        del look
        return []

    def accept(self, tokens: Sequence[int]) -> None:
        raise AssertionError(tokens)

    def rollback(self, count: int) -> None:
        raise AssertionError(count)

    def finished(self) -> bool:
        return False

    def allows(self, token: int) -> bool:
        raise AssertionError(token)
