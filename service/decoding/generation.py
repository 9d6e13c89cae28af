"""The decoding loops: greedy under a grammar, one token a decision, or several with Medusa heads or a draft model.

All run the same steps. A step forwards the tokens that the model has not read yet, and maybe a draft of what may
follow; the model's greedy choices decide what of the draft stays. Whatever is drafted, the tokens are the same.
"""

import time
from collections.abc import Callable, Sequence

import torch
from torch import Tensor

from service.decoding.constraint import Constraint, PendingConstraint
from service.decoding.draft import MOST_DRAFTED_NODES, Drafter, TokenTree, accept_forced
from service.decoding.heads import MedusaHeads
from service.decoding.kv_cache import KVCache
from service.decoding.lm_head import HiddenScores
from service.decoding.model import TargetModel
from service.decoding.prefill_draft import NO_PREFILL_DRAFT, PrefillDraft
from service.decoding.speculation import ChainDrafter, DraftModel
from service.decoding.statistics import Generation, Statistics, StopReason
from service.decoding.trace import StepTrace, trace_nodes
from service.decoding.tree import MedusaTree
from service.decoding.verification import Verdict, verify


def generate_autoregressive(
    model: TargetModel,
    prompt: Sequence[int],
    constraint: Constraint | PendingConstraint,
    *,
    max_tokens: int,
    fast_forward: bool = True,
    trace: bool = False,
    cancelled: Callable[[], bool] | None = None,
    cache: KVCache | None = None,
) -> Generation:
    """Greedy decoding. Without `fast_forward` forced tokens cost a forward each, as in engines that only mask logits.

    A constraint that is pending is awaited only when the prompt has been read: what makes it may run meanwhile.

    Raises ValueError for an empty prompt or one that does not fit the model or `cache` together with `max_tokens`.
    """
    decoding = _Decoding(model, prompt, constraint, max_tokens, cache, fast_forward=fast_forward, trace=trace)
    return decoding.run(cancelled)


def generate_medusa(
    model: TargetModel,
    heads: MedusaHeads,
    tree: MedusaTree,
    prompt: Sequence[int],
    constraint: Constraint | PendingConstraint,
    *,
    max_tokens: int,
    trace: bool = False,
    cancelled: Callable[[], bool] | None = None,
    cache: KVCache | None = None,
    prefill_draft: PrefillDraft = NO_PREFILL_DRAFT,
) -> Generation:
    """The tokens of greedy decoding with fast-forward, in fewer forwards. Raises as `generate_autoregressive` does.

    `prefill_draft` holds the beginnings to try in the forward that reads the prompt.

    A `cache` to reuse should have room for a tree beyond prompt and `max_tokens`: what does not fit is not drafted.
    """
    drafter = Drafter(heads, tree, model.lm_head, prefill_draft)
    decoding = _Decoding(model, prompt, constraint, max_tokens, cache, drafter=drafter, trace=trace)
    return decoding.run(cancelled)


def generate_draft(
    draft: DraftModel,
    prompt: Sequence[int],
    constraint: Constraint | PendingConstraint,
    *,
    max_tokens: int,
    trace: bool = False,
    cancelled: Callable[[], bool] | None = None,
    cache: KVCache | None = None,
) -> Generation:
    """The tokens of greedy decoding with fast-forward by the draft's target, in fewer forwards of it.

    Raises as `generate_autoregressive` does. A `cache` to reuse should have room for what is drafted.
    """
    cache = cache or draft.target.new_cache(len(prompt) + max_tokens + MOST_DRAFTED_NODES)
    cache.reset()
    speculation = draft.speculate(cache)
    drafter = ChainDrafter(speculation.reader, speculation.shape)
    decoding = _Decoding(speculation.target, prompt, constraint, max_tokens, cache, drafter=drafter, trace=trace)
    generation = decoding.run(cancelled)
    generation.statistics.draft_forwards = speculation.reader.draft_forwards
    return generation


def stop_reason_at(
    constraint: Constraint, tokens: Sequence[int], max_tokens: int, cancelled: Callable[[], bool] | None
) -> StopReason | None:
    """Why a generation that has come to these tokens goes on no further; None where it does."""
    if constraint.finished():
        return "finished"
    if len(tokens) >= max_tokens:
        return "length"
    return "cancelled" if cancelled is not None and cancelled() else None


class _Decoding:
    """One generation under way."""

    def __init__(
        self,
        model: TargetModel,
        prompt: Sequence[int],
        constraint: Constraint | PendingConstraint,
        max_tokens: int,
        cache: KVCache | None,
        *,
        drafter: Drafter | ChainDrafter | None = None,
        fast_forward: bool = True,
        trace: bool,
    ) -> None:
        longest = len(prompt) + max_tokens
        if not prompt:
            raise ValueError("the prompt is empty: there is nothing to decode from")
        if longest > min(model.config.max_position_embeddings, cache.capacity if cache else longest):
            raise ValueError(f"{len(prompt)} prompt tokens and {max_tokens} more do not fit the model or the cache")
        self._model = model
        self._pending = constraint if isinstance(constraint, PendingConstraint) else None
        self._known = None if isinstance(constraint, PendingConstraint) else constraint
        self._max_tokens = max_tokens
        self._cache = cache or model.new_cache(longest + (MOST_DRAFTED_NODES if drafter else 0))
        self._cache.reset()
        self._drafter = drafter
        self._fast_forward = fast_forward
        self._trace = trace
        self._unread = list(prompt)  # tokens of the result, or the prompt, that the model has not read
        self._starts_sampled = False  # whether the first of them is the model's own choice
        self._hidden: Tensor | None = None  # [H], of the last position that the model has read
        self._tokens: list[int] = []
        self._steps: list[StepTrace] = []
        self._statistics = Statistics(prompt_tokens=len(prompt))

    @torch.inference_mode()
    def run(self, cancelled: Callable[[], bool] | None) -> Generation:
        credited = [] if self._reads_first else self._emit_forced()  # what the next forward is credited with
        self._unread += credited
        while (stop_reason := self._stop_reason(cancelled)) is None:
            self._step(credited)
            credited = []
        self._statistics.plan_tokens = len(self._tokens)
        self._statistics.forced_tokens = len(self._tokens) - self._statistics.decisions
        return Generation(self._tokens, self._statistics, self._steps, stop_reason)

    @property
    def _constraint(self) -> Constraint:
        if self._known is None:
            assert self._pending is not None
            self._known = self._pending.result()
        return self._known

    @property
    def _reads_first(self) -> bool:
        """Whether the grammar is not there yet, and the prompt is read meanwhile (there is room for a token after)."""
        return self._known is None and self._max_tokens > 0

    def _stop_reason(self, cancelled: Callable[[], bool] | None) -> StopReason | None:
        if self._reads_first:
            return "cancelled" if cancelled is not None and cancelled() else None
        return stop_reason_at(self._constraint, self._tokens, self._max_tokens, cancelled)

    def _step(self, credited: list[int]) -> None:
        """One forward, credited with what it emits and with the tokens it `credited` along from the prompt's end."""
        started = time.perf_counter()
        nodes = self._draft()
        drafted = time.perf_counter()
        tokens, positions, mask = nodes.tensors(self._cache.length, self._model.device)
        hidden = self._model.forward(tokens, positions, self._cache, mask)  # [N, H]
        read = time.perf_counter()
        scores = HiddenScores(self._model.lm_head, hidden[nodes.root :])
        verdict = verify(nodes, scores, self._constraint, fast_forward=self._fast_forward)
        prompt = 0 if self._cache.length else self._statistics.prompt_tokens
        starts_sampled = self._starts_sampled
        emitted = credited + self._accept(nodes, hidden, verdict)
        self._statistics.forwards += 1
        self._statistics.decisions += verdict.decisions
        self._statistics.accepted_per_step.append(len(emitted))
        if self._trace:
            spent = [1e3 * seconds for seconds in (time.perf_counter() - started, drafted - started, read - drafted)]
            traced = trace_nodes(nodes, verdict, unseen=prompt, starts_sampled=starts_sampled)
            self._steps.append(StepTrace(traced, emitted, *spent))

    def _draft(self) -> TokenTree:
        nodes = TokenTree(self._unread)
        if self._drafter is not None:
            # The token that is sampled after a node must still fit.
            deepest = nodes.depths[-1] + self._max_tokens - len(self._tokens) - 1
            room = self._cache.capacity - self._cache.length - nodes.run
            if self._reads_first and isinstance(self._drafter, Drafter):
                self._drafter.open_unchecked(nodes, deepest=deepest, room=room)
            elif self._hidden is None:
                self._drafter.open(nodes, self._constraint, deepest=deepest, room=room)
            else:
                self._drafter.grow(nodes, self._hidden, self._constraint, deepest=deepest, room=room)
        return nodes

    def _accept(self, nodes: TokenTree, hidden: Tensor, verdict: Verdict) -> list[int]:
        """Keep what was accepted and return the new tokens, those that the grammar forces next included."""
        self._cache.keep([*range(nodes.run), *verdict.path])
        self._hidden = hidden[verdict.path[-1] if verdict.path else nodes.root]
        accepted = [nodes.tokens[node] for node in verdict.path]
        sampled = [] if verdict.sampled is None else [verdict.sampled]
        self._tokens += accepted + sampled
        self._unread = sampled + self._emit_forced()
        self._starts_sampled = bool(sampled)
        return accepted + self._unread

    def _emit_forced(self) -> list[int]:
        if not self._fast_forward:
            return []
        forced = accept_forced(self._constraint, self._max_tokens - len(self._tokens))
        self._tokens += forced
        return forced
