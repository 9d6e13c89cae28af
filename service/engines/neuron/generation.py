"""Greedy decoding under a grammar over a compiled Medusa model; tree, verdict and grammar are the torch loop's own.

What differs from `service/decoding/generation.py` is the device: it gives the best candidates of a row instead of its
logits, it moves only so many accepted tokens into place, and every step costs the same however few rows it fills. What
cannot be kept is read again with the next step, so the tokens never depend on what a step had room for. Lengths are
counted and ends are the grammar's: no token id, 0 included, means anything here.
"""

import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field

import numpy as np
from numpy.typing import NDArray

from service.decoding.constraint import Constraint
from service.decoding.draft import TokenTree, accept_forced, grow_tree
from service.decoding.generation import stop_reason_at
from service.decoding.statistics import Generation, Statistics
from service.decoding.trace import StepTrace, trace_nodes
from service.decoding.tree import MedusaTree
from service.decoding.verification import Verdict, verify
from service.engines.neuron.candidates import CandidateScores, LegalCandidateScores
from service.engines.neuron.forward import CompiledForward

AUTOREGRESSIVE = MedusaTree.from_choices([], num_heads=0)


def generate(
    forward: CompiledForward,
    tree: MedusaTree,
    prompt: Sequence[int],
    constraint: Constraint,
    *,
    max_tokens: int,
    fast_forward: bool = True,
    trace: bool = False,
    cancelled: Callable[[], bool] | None = None,
) -> Generation:
    """The tokens of greedy decoding, whatever `tree` drafts; `AUTOREGRESSIVE` drafts nothing.

    Without `fast_forward` forced tokens cost a forward each. Raises ValueError for a prompt that is empty or does not
    fit the compiled lengths, OutsideCandidatesError where the device's candidates hold no legal token.
    """
    _check_lengths(forward, len(prompt), max_tokens)
    forward.reset()
    decoding = _Decoding(forward, tree, list(prompt), constraint, max_tokens, fast_forward, trace)
    return decoding.run(cancelled)


def _check_lengths(forward: CompiledForward, prompt: int, max_tokens: int) -> None:
    shape = forward.shape
    if not prompt:
        raise ValueError("the prompt is empty")
    if prompt > shape.max_context_length:
        raise ValueError(f"{prompt} prompt tokens are more than the {shape.max_context_length} compiled for")
    if shape.needed(prompt, max_tokens) > shape.seq_len:
        raise ValueError(
            f"{prompt} prompt tokens and {max_tokens} more may touch {shape.needed(prompt, max_tokens)} cache "
            f"positions, and {shape.seq_len} were compiled"
        )


@dataclass(slots=True)
class _Decoding:
    """One generation under way. `unread` are tokens, the prompt first, that the model has not read yet."""

    forward: CompiledForward
    tree: MedusaTree
    unread: list[int]
    constraint: Constraint
    max_tokens: int
    fast_forward: bool
    trace: bool
    tokens: list[int] = field(default_factory=list)
    guesses: NDArray[np.int64] | None = None  # [K, C], by the heads at the last position kept
    starts_sampled: bool = False
    statistics: Statistics = field(default_factory=Statistics)
    steps: list[StepTrace] = field(default_factory=list)

    def run(self, cancelled: Callable[[], bool] | None) -> Generation:
        self.statistics.prompt_tokens = len(self.unread)
        credited = self._emit_forced()
        self.unread += credited
        while (stop_reason := stop_reason_at(self.constraint, self.tokens, self.max_tokens, cancelled)) is None:
            self._step(credited)
            credited = []
        self.statistics.plan_tokens = len(self.tokens)
        self.statistics.forced_tokens = len(self.tokens) - self.statistics.decisions
        return Generation(self.tokens, self.statistics, self.steps, stop_reason)

    def _step(self, credited: list[int]) -> None:
        """One forward, credited with what it emits and with the tokens it `credited` along from the prompt's end."""
        started = time.perf_counter()
        self.statistics.forwards += 1
        most = self.forward.most_nodes
        if len(self.unread) > most:  # a long forced run, or a tight graph: nothing can be judged before its end
            self._read_only(self.unread[:most])
            self.statistics.accepted_per_step.append(len(credited))
            return
        nodes = self._draft()
        drafted = time.perf_counter()
        candidates = self.forward.read(nodes)  # [K+1, N - root, C]
        read = time.perf_counter()
        verdict = verify(nodes, LegalCandidateScores(candidates[0]), self.constraint, fast_forward=self.fast_forward)
        prompt = 0 if self.forward.length else self.statistics.prompt_tokens
        starts_sampled = self.starts_sampled
        emitted = credited + self._accept(nodes, candidates, verdict)
        self.statistics.decisions += verdict.decisions
        self.statistics.accepted_per_step.append(len(emitted))
        if self.trace:
            traced = trace_nodes(nodes, verdict, unseen=prompt, starts_sampled=starts_sampled)
            spent = [1e3 * seconds for seconds in (time.perf_counter() - started, drafted - started, read - drafted)]
            self.steps.append(StepTrace(traced, emitted, *spent))

    def _read_only(self, tokens: list[int]) -> None:
        nodes = TokenTree(tokens)
        self.guesses = self.forward.read(nodes)[1:, -1]
        self.forward.keep(range(len(tokens)))
        self.unread = self.unread[len(tokens) :]

    def _draft(self) -> TokenTree:
        nodes = TokenTree(self.unread)
        if self.guesses is not None:
            grow_tree(
                nodes,
                self.tree,
                CandidateScores(self.guesses),
                len(self.guesses),
                self.constraint,
                # The token that is sampled after a node must still fit.
                deepest=nodes.depths[-1] + self.max_tokens - len(self.tokens) - 1,
                room=self.forward.most_nodes - nodes.run,
            )
        return nodes

    def _accept(self, nodes: TokenTree, candidates: NDArray[np.int64], verdict: Verdict) -> list[int]:
        """Keep what was accepted, as far as it can be, and return the new tokens with those forced next."""
        kept = self.forward.keep([*range(nodes.run), *verdict.path]) - nodes.run
        last = verdict.path[kept - 1] if kept else nodes.root
        self.guesses = candidates[1:, last - nodes.root]
        accepted = [nodes.tokens[node] for node in verdict.path]
        sampled = [] if verdict.sampled is None else [verdict.sampled]
        self.tokens += accepted + sampled
        forced = self._emit_forced()
        self.unread = accepted[kept:] + sampled + forced
        self.starts_sampled = bool(sampled) and kept == len(accepted)
        return accepted + sampled + forced

    def _emit_forced(self) -> list[int]:
        if not self.fast_forward:
            return []
        forced = accept_forced(self.constraint, self.max_tokens - len(self.tokens))
        self.tokens += forced
        return forced
