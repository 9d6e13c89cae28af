"""A model that decodes in this process: text in, text out, for the engines that run one themselves.

It knows tokenizers, grammars and the decoding loop; the planner interprets the text.
"""

import math
import time
from abc import ABC, abstractmethod
from collections.abc import Callable
from dataclasses import dataclass
from functools import partial

from tokenizers import Tokenizer
from torch import Tensor

from service.decoding.constraint import Constraint, GrammarCompiler, GrammarError
from service.decoding.generation import RunningGeneration, step
from service.decoding.interruption import NEVER, Interruption
from service.decoding.kind_head import KindHead
from service.decoding.medusa import HeadsOfTarget, MedusaProposer
from service.decoding.prefill_draft import NO_PREFILL_DRAFT, PrefillDraft, PrefillProposer
from service.decoding.prefill_head import PrefillHead
from service.decoding.prompt_copy import PromptCopyProposer
from service.decoding.prompt_tags import PromptTagger, PromptTagsProposer
from service.decoding.proposer import Proposer
from service.decoding.target import Target
from service.decoding.tree import MedusaTree
from service.engines.meaning import QuestionMeaning
from service.engines.protocol import GenerationRequest, GenerationResult, PromptTooLongError, RequestRefusedError
from service.engines.results import generation_result, request_constraint, trace_texts
from service.engines.side_thread import SideThread


@dataclass(frozen=True)
class Drafting:
    """What is drafted: the tree of the Medusa heads, and beginnings of answers while the prompt is read.

    `embed` maps tokens [N] to the model's input embeddings [N, H], which the `prefill_head` guesses from. The
    `prompt_tagger` drafts the rest of the answer from the states of the prompt. `copies` adds rows copied from the
    prompt, which pay only where a forward computes more rows than the tree has anyway.
    """

    tree: MedusaTree
    embed: Callable[[Tensor], Tensor]
    prefill_head: PrefillHead | None = None
    prefill_draft: PrefillDraft = NO_PREFILL_DRAFT
    prompt_tagger: PromptTagger | None = None
    copies: bool = False


class TextModel(ABC):
    """A loaded model with its tokenizer. Each of its slots holds one generation."""

    def __init__(
        self,
        model_id: str,
        tokenizer: Tokenizer,
        special: tuple[int, int],
        limits: tuple[int, int],
        drafting: Drafting,
        kind_head: KindHead | None = None,
    ) -> None:
        """Take the ids of the first and the end token, and the limits on prompt and answer, in tokens."""
        self.id = model_id
        self._tokenizer = tokenizer
        self._bos_token_id, eos_token_id = special
        self._max_prompt_tokens, self._max_tokens = limits
        self._drafting = drafting
        self._kind_head = kind_head
        self._compiler = GrammarCompiler(tokenizer.to_str(), eos_token_id)
        self._side = SideThread()
        self._socket = NEVER.socket

    def watch(self, socket: int) -> None:
        """See `WorkerModel.watch`."""
        self._socket = socket

    def generate(self, request: GenerationRequest, cancelled: Callable[[], bool] = lambda: False) -> GenerationResult:
        """Continue the prompt under the grammar until it is finished, the deadline passes or `cancelled` returns true.

        The latter two may be noticed between the layers of a forward. Raises RequestRefusedError for a prompt that is
        too long, a grammar that does not compile, or a strategy that this model has not the parts for.
        """
        started = time.monotonic()
        running = self.begin(request, cancelled)
        self._stop_when(Interruption(cancelled, request.deadline, self._socket))
        try:
            while running.goes_on():
                step([running])
        finally:
            self._stop_when(NEVER)
        return self.result(running, time.monotonic() - started)

    def begin(
        self, request: GenerationRequest, cancelled: Callable[[], bool] = lambda: False, slot: int = 0
    ) -> RunningGeneration:
        """Begin a generation in a free slot, without a forward. Raises as `generate` does."""
        prompt = [self._bos_token_id, *self._tokenizer.encode(request.prompt, add_special_tokens=False).ids]
        if len(prompt) > self._max_prompt_tokens:
            raise PromptTooLongError.at(len(prompt), self._max_prompt_tokens)

        constraint = self._side.submit(partial(self._begin_grammar, request.grammar))
        target, proposer = self._parts(request, prompt, slot)
        return RunningGeneration(
            target,
            proposer,
            prompt,
            constraint,
            min(request.max_tokens or self._max_tokens, self._max_tokens),
            fast_forward=request.fast_forward or request.strategy != "autoregressive",
            trace=trace_texts(request, self._tokenizer),
            cancelled=Interruption(cancelled, request.deadline),
        )

    def result(self, running: RunningGeneration, seconds: float) -> GenerationResult:
        """Return the result of a generation that has ended. Raises what ended it otherwise.

        Where the parser gives up, for its work is bounded, the question is why: no other replica would do better.
        """
        try:
            generation = running.result()
        except GrammarError:
            raise RequestRefusedError("its grammar takes the parser past its limits") from None
        result = generation_result(generation, self._tokenizer, seconds)
        result.meaning = self._meaning(running.target, result.prompt_tokens)
        return result

    def _meaning(self, target: Target, prompt_tokens: int) -> str:
        """Return what the kind head makes of the prompt, packed; "" where either is not known."""
        states = target.prompt_states() if self._kind_head else None
        if self._kind_head is None or states is None or len(states) < prompt_tokens:
            return ""
        direction, odds = self._kind_head.of(states[:prompt_tokens])
        if not (math.isfinite(odds) and direction.isfinite().all()):
            return ""  # the plan may still be one
        return QuestionMeaning(self._kind_head.space, tuple(direction.tolist()), odds).packed()

    def rest(self) -> None:
        """Leave no other thread in the process until the next generation, so that it may be forked."""
        self._side.rest()

    def _stop_when(self, interruption: Interruption) -> None:
        """Have forwards stop between two layers where `interruption` says so. A model may know no way to."""
        del interruption

    @property
    @abstractmethod
    def slots(self) -> int:
        """Number of generations that it can hold at once."""

    @abstractmethod
    def _parts(self, request: GenerationRequest, prompt: list[int], slot: int) -> tuple[Target, Proposer]:
        """Return target and proposer. Raises RequestRefusedError for a strategy that this model lacks the parts for."""

    def _medusa(self, target: HeadsOfTarget, prompt: list[int]) -> Proposer:
        drafting = self._drafting
        draft = drafting.prefill_draft
        if drafting.prefill_head is not None:
            draft = drafting.prefill_head.guess(prompt, drafting.embed, self._compiler.continues_word)
        later: Proposer = MedusaProposer(target, drafting.tree)
        if drafting.prompt_tagger is not None:
            states, leaves = target.prompt_states, drafting.copies
            later = PromptTagsProposer(prompt, drafting.prompt_tagger, states, later, leaves=leaves)
        return PrefillProposer(draft, PromptCopyProposer(prompt, later) if drafting.copies else later)

    def _begin_grammar(self, grammar: str) -> Constraint:
        constraint = request_constraint(self._compiler, grammar)
        constraint.legal()  # the first mask, the largest of all, is cached
        return constraint
