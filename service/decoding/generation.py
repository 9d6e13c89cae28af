"""The decoding loop: greedy under a grammar, with any proposer (`proposer.py`) and any target (`target.py`).

A step forwards the tokens that the model has not read yet, and possibly a draft of what may follow. `verify()` goes
down the draft along the model's own greedy choices as long as they were drafted. Generations may share the forward of a
step, and join and leave between steps. The output tokens depend neither on the draft nor on the company. The loop
only counts lengths and the grammar decides where the text ends: no token id has a special meaning here.
"""

import time
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import Future
from contextlib import contextmanager
from dataclasses import KW_ONLY, dataclass, field
from typing import Final

import numpy as np
import torch
from numpy.typing import NDArray

from service.decoding.constraint import Constraint, GrammarError, accept_forced, known
from service.decoding.linear import Scores
from service.decoding.llama import ForwardStoppedError
from service.decoding.proposer import Budget, Proposer
from service.decoding.statistics import Generation, NodeStatus, Statistics, StopReason, TraceNode, TraceStep
from service.decoding.target import Target
from service.decoding.tree import NO_NODE, TokenTree

CERTAIN: Final = 1.0
Texts = Callable[[Sequence[int]], str]


@dataclass(frozen=True, slots=True)
class Verdict:
    """Which nodes of a draft the model accepts, and its own next choice.

    `path`: the accepted nodes after the run, in order. `sampled`: the model's choice after the last of them, which no
    node carries; None where a forced run was cut and no choice is due. `decisions`: choices among several tokens.
    `probabilities`: the model's, among the legal tokens, of the path's nodes and of `sampled`; 1 where none was left.
    """

    path: list[int]
    sampled: int | None
    decisions: int
    probabilities: list[float]


NOTHING_JUDGED = Verdict([], None, 0, [])


def verify(tree: TokenTree, scores: Scores, constraint: Constraint, *, fast_forward: bool) -> Verdict:
    """Walk down from the root of `tree`, moving the constraint along, and return the verdict.

    `scores` has a row for the root and one for each node after it. Ties always go to the lowest token id.
    """
    node, path, decisions, probabilities = tree.root, list[int](), 0, list[float]()
    while True:
        if tree.unchecked and constraint.finished():  # the proposer could not know that the text ends here
            return Verdict(path, None, decisions, probabilities)
        forced, legal = tree.forced_child(node), tree.legal.get(node)
        if forced is None and legal is None and fast_forward and (run := constraint.forced(look=False)):
            forced = tree.child(node, run[0])
            if forced is None:
                return Verdict(path, None, decisions, probabilities)
        if forced is not None:
            constraint.accept([tree.tokens[forced]])
            path.append(forced)
            probabilities.append(CERTAIN)
            node = forced
            continue
        legal = constraint.legal() if legal is None else legal
        if not legal.size:
            raise GrammarError("the grammar has come to a dead end: it allows no token and may not end")
        decisions += legal.size > 1
        chosen, probability = choose(scores.of(node - tree.root, legal)) if legal.size > 1 else (0, CERTAIN)
        token = int(legal[chosen])
        constraint.accept([token])
        probabilities.append(probability)
        child = tree.child(node, token)
        if child is None:
            return Verdict(path, token, decisions, probabilities)
        path.append(child)
        node = child


def choose(logits: NDArray[np.float32]) -> tuple[int, float]:
    """Return the index of the highest of several logits [N], the first of equal ones, and its softmax probability."""
    best = int(np.argmax(logits))
    return best, float(1 / np.exp(logits - logits[best]).sum())


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
    """Decode greedily under the grammar and return the tokens with statistics; arguments as in `RunningGeneration`.

    Raises ValueError for an empty prompt or one that does not fit the target together with `max_tokens`, and
    GrammarError where the grammar does not compile or comes to a dead end.
    """
    running = RunningGeneration(
        target, proposer, list(prompt), grammar, max_tokens, fast_forward=fast_forward, trace=trace, cancelled=cancelled
    )
    while running.goes_on():
        step([running])
    return running.result()


@torch.inference_mode()
def step(batch: Sequence["RunningGeneration"]) -> None:
    """Take generations that go on through one forward, which they share; their targets are of one model.

    An error of one generation's own ends that one; its `result` raises it. A forward that is stopped between two layers
    (`CausalLM.stop_when`) cancels all that share it.
    """
    started = time.perf_counter()
    drafted = [(each, tree) for each in batch if (tree := each.draft()) is not None]
    if not drafted:
        return
    moments = [started, time.perf_counter()]
    first = drafted[0][0].target
    try:
        scores = first.forward([each.target for each, _ in drafted], [tree for _, tree in drafted])
    except ForwardStoppedError:
        for each, _ in drafted:
            each.stop_reason = "cancelled"
        return
    moments.append(time.perf_counter())
    for (each, tree), of_tree in zip(drafted, scores, strict=True):
        each.judge(tree, of_tree, moments)


@dataclass(slots=True)
class RunningGeneration:
    """One running generation.

    Without `fast_forward` forced tokens cost a forward each, as in engines that only mask logits. A grammar that is
    still being compiled is awaited only when the prompt has been read, unless the proposer asks it. `trace` converts
    tokens to text, for a trace of the steps. `cancelled` is called before each forward;
    a target may also stop between two layers of one (`CausalLM.stop_when`).

    `pending` are the tokens, the prompt first, that the target has not read yet; `starts_sampled` tells whether the
    first of them is the model's own choice. The grammar stands after the last of them.
    """

    target: Target
    proposer: Proposer
    pending: list[int]
    grammar: Constraint | Future[Constraint]
    max_tokens: int
    _: KW_ONLY
    fast_forward: bool = True
    trace: Texts | None = None
    cancelled: Callable[[], bool] = lambda: False
    tokens: list[int] = field(default_factory=list)
    probabilities: list[float] = field(default_factory=list)  # of the tokens
    credited: list[int] = field(default_factory=list)  # forced after the prompt; counted for the first forward
    starts_sampled: bool = False
    statistics: Statistics = field(default_factory=Statistics)
    steps: list[TraceStep] = field(default_factory=list)
    stop_reason: StopReason | None = None
    error: Exception | None = None

    def __post_init__(self) -> None:
        """Begin, with the tokens that the grammar forces after the prompt, where it is already compiled.

        Raises ValueError for an empty prompt or one that does not fit the target together with `max_tokens`.
        """
        if not self.pending:
            raise ValueError("the prompt is empty: there is nothing to decode from")
        cached = self.target.begin(self.pending, self.max_tokens)
        self.statistics.prompt_tokens, self.statistics.cached_tokens = len(self.pending), cached
        self.pending = self.pending[cached:]
        if not self.is_compiling:
            self.credited = self._emit_forced()
            self.pending += self.credited

    @property
    def is_compiling(self) -> bool:
        """Whether the grammar is still being compiled while the prompt is read (there is room for a token after it)."""
        return isinstance(self.grammar, Future) and self.max_tokens > 0

    @property
    def constraint(self) -> Constraint:
        self.grammar = constraint = known(self.grammar)
        return constraint

    def goes_on(self) -> bool:
        """Tell whether another step is due; where it is not, `result` is."""
        if self.stop_reason is None and self.error is None:
            with self._own_errors():
                self.stop_reason = self._why_stop()
        return self.stop_reason is None and self.error is None

    def draft(self) -> TokenTree | None:
        """Return the tree for the next forward; None where that fails.

        It holds what has to be read anyway, as many pending tokens as fit, and below them the proposer's guesses.
        """
        tree = TokenTree(
            self.pending[: self.target.most_run],
            self.target.length,
            first=not self.statistics.forwards,
            starts_sampled=self.starts_sampled,
            unchecked=self.is_compiling,
            text=self.tokens,
        )
        if tree.run < len(self.pending):  # nothing can be verified yet
            return tree
        with self._own_errors():
            # The token that is sampled after a node must still fit.
            deepest = tree.depths[-1] + self.max_tokens - len(self.tokens) - 1
            self.proposer.propose(tree, self.grammar, Budget(deepest, tree.run + self.target.room(tree.run)))
        return tree if self.error is None else None

    def judge(self, tree: TokenTree, scores: Scores, moments: Sequence[float]) -> None:
        """Verify the tree by the forward's scores, and keep what was accepted.

        `moments` are when the step started, had drafted and had forwarded.
        """
        with self._own_errors():
            is_due = tree.run == len(self.pending)
            verdict = (
                verify(tree, scores, self.constraint, fast_forward=self.fast_forward) if is_due else NOTHING_JUDGED
            )
            emitted = self._advance(tree, verdict, self.target.commit(verdict.path))
            if self.trace is not None:
                unseen = self.statistics.prompt_tokens - self.statistics.cached_tokens if tree.first else 0
                self.steps.append(
                    _trace_step(tree, verdict, emitted, (*moments, time.perf_counter()), self.trace, unseen)
                )

    def result(self) -> Generation:
        """Return the finished generation. Raises the error that ended it, if any."""
        if self.error is not None:
            raise self.error
        assert self.stop_reason is not None, "it goes on"
        self.statistics.plan_tokens = len(self.tokens)
        self.statistics.forced_tokens = len(self.tokens) - self.statistics.decisions
        return Generation(self.tokens, self.statistics, self.steps, self.stop_reason, self.probabilities)

    def _why_stop(self) -> StopReason | None:
        if not self.is_compiling:
            if self.constraint.finished():
                return "finished"
            if len(self.tokens) >= self.max_tokens:
                return "length"
        return "cancelled" if self.cancelled() else None

    def _advance(self, tree: TokenTree, verdict: Verdict, kept: int) -> list[int]:
        """Update the state after a forward. The target has kept the first `kept` nodes of the verdict's path.

        Returns the tokens credited to this forward, including those that the grammar forces next.
        """
        accepted = [tree.tokens[node] for node in verdict.path]
        sampled = [] if verdict.sampled is None else [verdict.sampled]
        self.tokens += accepted + sampled
        self.probabilities += verdict.probabilities
        forced = self._emit_forced()
        unread = self.pending[tree.run :] + accepted[kept:]
        self.pending = unread + sampled + forced
        self.starts_sampled = bool(sampled) and not unread
        emitted = self.credited + accepted + sampled + forced
        self.credited = []
        self.statistics.forwards += 1
        if guesses := len(tree.tokens) - tree.run - len(tree.forced):
            self.statistics.count_draft(guesses, sum(node not in tree.forced for node in verdict.path))
        self.statistics.decisions += verdict.decisions
        self.statistics.accepted_per_step.append(len(emitted))
        return emitted

    def _emit_forced(self) -> list[int]:
        if not self.fast_forward:
            return []
        forced = accept_forced(self.constraint, self.max_tokens - len(self.tokens))
        self.tokens += forced
        self.probabilities += [CERTAIN] * len(forced)
        return forced

    @contextmanager
    def _own_errors(self) -> Iterator[None]:
        """Keep an error inside the block from the generations that share a step."""
        try:
            yield
        except Exception as error:
            self.error = error


def _trace_step(
    tree: TokenTree,
    verdict: Verdict,
    emitted: Sequence[int],
    moments: Sequence[float],
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
