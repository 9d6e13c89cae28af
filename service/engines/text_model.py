"""A model that decodes in this process: text in, text out, for the engines that run one themselves.

It knows tokenizers, grammars and the decoding loop; the planner interprets the text.
"""

import math
import os
import time
from abc import ABC, abstractmethod
from collections.abc import Callable, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from dataclasses import asdict, dataclass
from functools import partial
from typing import TypeVar

from tokenizers import Tokenizer

from service.decoding.constraint import Constraint, GrammarCompiler, GrammarError
from service.decoding.generation import RunningGeneration, step
from service.decoding.kind_head import KindHead
from service.decoding.llama import NEVER, Interruption
from service.decoding.medusa import HeadsOfTarget, MedusaProposer
from service.decoding.proposer import Predicted, PredictionProposer, PromptCopyProposer, Proposer
from service.decoding.statistics import Generation
from service.decoding.target import Target
from service.decoding.tree import MedusaTree
from service.engines.protocol import (
    SURE,
    GenerationRequest,
    GenerationResult,
    PromptTooLongError,
    QuestionMeaning,
    RequestRefusedError,
)

Result = TypeVar("Result")


def tokens_of_words(words: Sequence[tuple[str, float]], tokenizer: Tokenizer) -> Predicted:
    """Return the tokens of words, each after a space; the first of each word has the word's probability."""
    text, starts = "", list[tuple[int, float]]()
    for word, probability in words:
        starts.append((len(text), probability))
        text += f" {word}"
    encoded = tokenizer.encode(text, add_special_tokens=False)
    predicted = []
    for token, (start, _) in zip(encoded.ids, encoded.offsets, strict=True):
        is_first = starts and starts[0][0] <= start  # some tokenizers count a word from its first letter
        predicted.append((token, starts.pop(0)[1] if is_first else 1.0))
    return predicted


def trace_texts(request: GenerationRequest, tokenizer: Tokenizer) -> Callable[[Sequence[int]], str] | None:
    """Return the function that writes a trace's tokens, where the request asks for a trace."""
    return tokenizer.decode if request.trace else None


def generation_result(generation: Generation, tokenizer: Tokenizer, seconds: float) -> GenerationResult:
    return GenerationResult(
        **asdict(generation.statistics),
        text=tokenizer.decode(generation.tokens),
        tokens=generation.tokens,
        stop_reason=generation.stop_reason,
        seconds=seconds,
        steps=generation.steps,
        unsure_words=unsure_words(generation, tokenizer),
    )


def unsure_words(generation: Generation, tokenizer: Tokenizer) -> list[tuple[int, float]]:
    """Return (index among the text's words, probability) of each token that the model was unsure of, by its word."""
    return [
        (len(tokenizer.decode(generation.tokens[: at + 1]).split()) - 1, round(probability, 3))
        for at, probability in enumerate(generation.probabilities)
        if probability < SURE
    ]


class SideThread:
    """One thread beside the caller's, started with the first work. A forked process starts its own."""

    def __init__(self) -> None:
        self._executor: ThreadPoolExecutor | None = None
        self._process = 0

    def submit(self, work: Callable[[], Result]) -> Future[Result]:
        if self._executor is None or self._process != os.getpid():  # threads do not survive a fork
            self._executor, self._process = ThreadPoolExecutor(1, "side"), os.getpid()
        return self._executor.submit(work)

    def rest(self) -> None:
        """End the thread until there is work again: a process should have no others when it is forked."""
        if self._executor is not None:
            self._executor.shutdown()
            self._executor = None


@dataclass(frozen=True)
class Drafting:
    """What is drafted: the tree of the Medusa heads, and a request's prediction as far as it is `p_min` likely.

    `copies` adds rows copied from the prompt, which pay only where a forward computes more rows than the tree has
    anyway.
    """

    tree: MedusaTree
    p_min: float = 0.0
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

    def _medusa(self, target: HeadsOfTarget, request: GenerationRequest, prompt: list[int]) -> Proposer:
        heads: Proposer = MedusaProposer(target, self._drafting.tree)
        if self._drafting.copies:
            heads = PromptCopyProposer(prompt, heads)
        return PredictionProposer(tokens_of_words(request.prediction, self._tokenizer), heads, self._drafting.p_min)

    def _begin_grammar(self, grammar: str) -> Constraint:
        try:
            constraint = self._compiler.compile(grammar)
        except GrammarError:  # without quoting it, as it holds the shopper's words
            raise RequestRefusedError("its grammar does not compile") from None
        constraint.legal()  # the first mask, the largest of all, is cached
        return constraint
