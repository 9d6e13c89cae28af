"""The decoding loop: greedy under a grammar, with any proposer (`proposer.py`) and any target (`target.py`).

A step forwards the tokens that the model has not read yet, and possibly a draft of what may follow; the model's greedy
choices decide which drafted nodes are accepted. The output tokens do not depend on the draft. The loop only counts
lengths and the grammar decides where the text ends: no token id has a special meaning here.
"""

import time
from collections.abc import Callable, Sequence
from concurrent.futures import Future
from dataclasses import dataclass, field

import torch

from service.decoding.constraint import Constraint, accept_forced, known
from service.decoding.interruption import ForwardStoppedError
from service.decoding.proposer import Budget, Proposer
from service.decoding.statistics import Generation, NodeStatus, Statistics, StopReason, TraceNode, TraceStep
from service.decoding.target import Target
from service.decoding.tree import NO_NODE, TokenTree
from service.decoding.verification import NOTHING_JUDGED, Verdict, verify

Texts = Callable[[Sequence[int]], str]


@torch.inference_mode()
def generate(
    target: Target,
    proposer: Proposer,
    prompt: Sequence[int],
    grammar: Constraint | Future[Constraint],
    *,
    max_tokens: int,
    fast_forward: bool = True,
    trace: Texts | None = None,
    cancelled: Callable[[], bool] = lambda: False,
) -> Generation:
    """Decode greedily under the grammar and return the tokens with statistics.

    Without `fast_forward` forced tokens cost a forward each, as in engines that only mask logits. A grammar that is
    still being compiled is awaited only when the prompt has been read, unless the proposer asks it. `trace` converts
    tokens to text, for a trace of the steps. `cancelled` is called before each forward;
    a target may also stop between two layers of one (`CausalLM.stop_when`).

    Raises ValueError for an empty prompt or one that does not fit the target together with `max_tokens`, and
    GrammarError where the grammar does not compile or comes to a dead end.
    """
    if not prompt:
        raise ValueError("the prompt is empty: there is nothing to decode from")
    target.begin(len(prompt), max_tokens)
    state = GenerationState(grammar, list(prompt), max_tokens, fast_forward)
    state.begin()
    while (stop_reason := state.stop_reason(cancelled)) is None:
        started = time.perf_counter()
        tree = state.next_tree(target)
        reads_all = tree.run == len(state.pending)  # otherwise nothing can be verified yet
        try:
            if reads_all:
                proposer.propose(tree, state.grammar, state.budget(tree, target))
            drafted = time.perf_counter()
            scores = target.forward(tree)
        except ForwardStoppedError:
            stop_reason = "cancelled"
            break
        read = time.perf_counter()
        verdict = verify(tree, scores, state.constraint, fast_forward=fast_forward) if reads_all else NOTHING_JUDGED
        kept = target.commit(verdict.path)
        emitted = state.advance(tree, verdict, kept)
        if trace is not None:
            moments = (started, drafted, read, time.perf_counter())
            unseen = 0 if tree.start else len(prompt)
            state.steps.append(_trace_step(tree, verdict, emitted, moments, trace, unseen))
    return state.result(stop_reason, proposer.draft_forwards)


@dataclass(slots=True)
class GenerationState:
    """The state of one running generation, without target and proposer; a batching driver would keep one for each.

    `pending` are the tokens, the prompt first, that the target has not read yet; `starts_sampled` tells whether the
    first of them is the model's own choice. The grammar stands after the last of them.
    """

    grammar: Constraint | Future[Constraint]
    pending: list[int]
    max_tokens: int
    fast_forward: bool = True
    tokens: list[int] = field(default_factory=list)
    credited: list[int] = field(default_factory=list)  # forced after the prompt; counted for the first forward
    starts_sampled: bool = False
    statistics: Statistics = field(default_factory=Statistics)
    steps: list[TraceStep] = field(default_factory=list)

    def begin(self) -> None:
        """Append the tokens that the grammar forces after the prompt, where it is already compiled."""
        self.statistics.prompt_tokens = len(self.pending)
        if not self.is_compiling:
            self.credited = self._emit_forced()
            self.pending += self.credited

    @property
    def is_compiling(self) -> bool:
        """Whether the grammar is still being compiled while the prompt is read (there is room for a token after it)."""
        return isinstance(self.grammar, Future) and self.max_tokens > 0

    @property
    def constraint(self) -> Constraint:
        """The compiled grammar's constraint, waited for if necessary."""
        self.grammar = constraint = known(self.grammar)
        return constraint

    def stop_reason(self, cancelled: Callable[[], bool]) -> StopReason | None:
        """Return why the generation stops here, or None where it goes on."""
        if not self.is_compiling:
            if self.constraint.finished():
                return "finished"
            if len(self.tokens) >= self.max_tokens:
                return "length"
        return "cancelled" if cancelled() else None

    def next_tree(self, target: Target) -> TokenTree:
        """Return the tree that the next forward has to read anyway: as many pending tokens as it can take."""
        run = self.pending[: target.most_nodes]
        return TokenTree(run, target.length, starts_sampled=self.starts_sampled, unchecked=self.is_compiling)

    def budget(self, tree: TokenTree, target: Target) -> Budget:
        """Return how much may be drafted for the next forward."""
        # The token that is sampled after a node must still fit.
        deepest = tree.depths[-1] + self.max_tokens - len(self.tokens) - 1
        return Budget(deepest, tree.run + min(target.most_nodes - tree.run, target.most_drafted_nodes))

    def advance(self, tree: TokenTree, verdict: Verdict, kept: int) -> list[int]:
        """Update the state after one forward, of whose path the target has kept `kept` nodes.

        Returns the tokens credited to this forward, including those that the grammar forces next.
        """
        accepted = [tree.tokens[node] for node in verdict.path]
        sampled = [] if verdict.sampled is None else [verdict.sampled]
        self.tokens += accepted + sampled
        forced = self._emit_forced()
        unread = self.pending[tree.run :] + accepted[kept:]
        self.pending = unread + sampled + forced
        self.starts_sampled = bool(sampled) and not unread
        emitted = self.credited + accepted + sampled + forced
        self.credited = []
        self.statistics.forwards += 1
        self.statistics.decisions += verdict.decisions
        self.statistics.accepted_per_step.append(len(emitted))
        return emitted

    def result(self, stop_reason: StopReason, draft_forwards: int) -> Generation:
        """Return the finished generation."""
        self.statistics.plan_tokens = len(self.tokens)
        self.statistics.forced_tokens = len(self.tokens) - self.statistics.decisions
        self.statistics.draft_forwards = draft_forwards
        return Generation(self.tokens, self.statistics, self.steps, stop_reason)

    def _emit_forced(self) -> list[int]:
        if not self.fast_forward:
            return []
        forced = accept_forced(self.constraint, self.max_tokens - len(self.tokens))
        self.tokens += forced
        return forced


def _trace_step(
    tree: TokenTree,
    verdict: Verdict,
    emitted: Sequence[int],
    moments: tuple[float, float, float, float],
    texts: Texts,
    unseen: int,
) -> TraceStep:
    """Describe one forward for people to look at, without its first `unseen` nodes (the prompt's own).

    `moments`: when the step started, had drafted, had forwarded and was done.
    """
    started, drafted, read, done = moments
    accepted = set(verdict.path)

    def status(node: int) -> NodeStatus:
        if node < tree.run:
            return "sampled" if node == 0 and tree.starts_sampled else "forced"
        if node not in accepted:
            return "rejected"
        return "forced" if node in tree.forced else "accepted"

    return TraceStep(
        nodes=[
            TraceNode(
                token_text=texts([tree.tokens[node]]),
                parent=max(tree.parents[node] - unseen, NO_NODE),
                depth=tree.depths[node] - unseen,
                status=status(node),
            )
            for node in range(unseen, len(tree.tokens))
        ],
        emitted=[texts([token]) for token in emitted],
        milliseconds=round(1e3 * (done - started), 3),
        draft_milliseconds=round(1e3 * (drafted - started), 3),
        forward_milliseconds=round(1e3 * (read - drafted), 3),
    )
