"""An `Engine` over an OpenAI-compatible server: the server decodes as configured, and we enforce the grammar.

A prompt is posted at temperature 0 and the answer is parsed by the grammar as it streams in. Greedy decoding under a
grammar takes the best *legal* token: while a server without the grammar writes legal text, its best token was legal
and therefore the same one. Text that leaves the grammar is abandoned there and requested once more, under the grammar
if the server supports one; then the request is refused, and the reader plans it.
"""

import asyncio
import logging
import time
from dataclasses import dataclass
from typing import Any

from service.decoding.constraint import GrammarCompiler, GrammarConstraint, GrammarError
from service.engines.openai.client import (
    Capabilities,
    CompletionsClient,
    ServedModel,
    ServerError,
    ServerGoneError,
    find_capabilities,
)
from service.engines.protocol import (
    EngineUnavailableError,
    GenerationRequest,
    GenerationResult,
    PromptTooLongError,
    RequestRefusedError,
    StopReason,
)
from service.settings.engines import EngineConfig
from service.weights.base_weights import BaseWeightsError
from service.weights.model_card import ModelFolderError

logger = logging.getLogger(__name__)

START_SECONDS = 120.0  # for the probes; the pool retries a server that is still compiling
LONGEST_SECONDS = 30.0  # for a request without a deadline
_TRIES = 2


class TextFollower:
    """The progress of a text through a grammar."""

    def __init__(self, compiler: GrammarCompiler, constraint: GrammarConstraint, eos_token: int) -> None:
        self._compiler = compiler
        self._constraint = constraint
        self._eos_token = eos_token
        self._accepted = bytearray()

    @property
    def text(self) -> str:
        return self._accepted.decode("utf-8", "replace")

    def follow(self, piece: str) -> bool:
        """Advance past a piece; return True once the grammar is finished, ignoring what the piece holds beyond.

        Raises GrammarError where the text leaves the grammar.
        """
        if not self._accepted and piece:
            piece = self._with_lost_space(piece)
        for token, spelling in self._compiler.spell(piece):
            if self._constraint.finished():
                break
            self._constraint.accept([token])
            self._accepted += spelling
        return self._constraint.finished()

    def may_end(self) -> bool:
        """Tell whether the text may end here: the grammar is finished, or allows an end of sequence."""
        return self._constraint.finished() or self._eos_token in self._constraint.legal()

    def _with_lost_space(self, piece: str) -> str:
        """Restore the leading space that a SentencePiece tokenizer drops from text decoded without its prompt."""
        if piece.startswith(" "):
            return piece
        first = self._compiler.spell(piece)[0][0]
        return piece if first in self._constraint.legal() else f" {piece}"


@dataclass(slots=True)
class _Answer:
    """The result of one attempt: the text within the grammar, and why it ended; None where it left the grammar."""

    text: str = ""
    stop_reason: StopReason | None = None
    pieces: int = 0


class OpenAiEngine:
    """An engine that sends one request at a time; the server batches the requests of several engines."""

    kernel = ""

    def __init__(self, config: EngineConfig, number: int, *, start_seconds: float = START_SECONDS) -> None:
        """Choose the server by the replica's `number`; each server runs the export of `config.model_dir`.

        `config.strategy` is how the server decodes, which no server reports: the operator has to configure both alike.
        """
        self._config = config
        self._url = config.openai.urls[number % len(config.openai.urls)]
        self._start_seconds = start_seconds
        self._client: CompletionsClient | None = None
        self._served: ServedModel | None = None
        self._capabilities: Capabilities | None = None  # known between a start that succeeded and the next loss
        self._lost = asyncio.Event()

    @property
    def model_id(self) -> str:
        return self._served.card.id if self._served else ""

    @property
    def available(self) -> bool:
        return self._capabilities is not None

    @property
    def capabilities(self) -> Capabilities | None:
        """Capabilities found by probing; None while the server is not up."""
        return self._capabilities

    async def start(self) -> None:
        """Load the tokenizer and probe the server's capabilities with real inferences.

        Raises EngineUnavailableError with what to do.
        """
        await self.close()
        try:
            await self._find_out()
        except TimeoutError:  # before OSError, its base class
            problem = f"had not answered after {self._start_seconds:g} s"
        except ServerError as error:
            problem = f"cannot be used: {error}"
        except (ModelFolderError, BaseWeightsError, OSError) as error:
            raise EngineUnavailableError(str(error)) from error
        else:
            self._lost.clear()
            return
        await self.close()
        raise EngineUnavailableError(f"the server at {self._url} {problem}")

    async def _find_out(self) -> None:
        self._client = client = CompletionsClient(self._url, self._config.openai.key.get_secret_value())
        async with asyncio.timeout(self._start_seconds):
            served = self._served = await asyncio.to_thread(ServedModel, self._config.model_dir, self._config.cache_dir)
            self._capabilities = able = await find_capabilities(
                client,
                served,
                self._config.openai.model,
                may_ask_for_grammars=self._config.openai.grammar == "auto",
            )
        known = {"prompt_as": able.prompt, "grammar_as": able.grammar or "none"}
        logger.info("completions server ready", extra=known)

    async def generate(self, request: GenerationRequest) -> GenerationResult:
        """See `Engine.generate`. When cancelled, the connection is closed, which ends the request at the server."""
        started = time.monotonic()
        served, able, constraint = self._checked(request)
        limit = min(request.max_tokens or served.card.max_tokens, served.card.max_tokens)
        try:
            async with asyncio.timeout(_seconds_until(request.deadline)):
                answer = await self._tries(request, served, able, limit, constraint)
        except TimeoutError:
            answer = _Answer(stop_reason="cancelled")
        tokens = served.tokens(answer.text)
        return GenerationResult(
            text=answer.text,
            tokens=tokens,
            stop_reason=answer.stop_reason or "cancelled",
            prompt_tokens=len(served.prompt(request.prompt)),
            plan_tokens=len(tokens),
            forwards=answer.pieces,  # an upper bound: a server that speculates takes fewer and does not report it
            decisions=len(tokens),
            forced_tokens=0,
            seconds=time.monotonic() - started,
        )

    async def failed(self) -> None:
        await self._lost.wait()

    async def close(self) -> None:
        self._capabilities = None
        if self._client is not None:
            await self._client.close()
            self._client = None

    def _checked(self, request: GenerationRequest) -> tuple[ServedModel, Capabilities, GrammarConstraint]:
        """Prepare a request. Raises EngineUnavailableError, or RequestRefusedError."""
        if self._capabilities is None or self._served is None:
            raise EngineUnavailableError("the completions server is not up")
        if request.trace:
            raise RequestRefusedError("a server of completions does not show its steps")
        if request.strategy != self._config.strategy:
            raise RequestRefusedError(f"the server decodes {self._config.strategy}, and no other way")
        length, longest = len(self._served.prompt(request.prompt)), self._config.max_prompt_tokens
        if length > longest:
            raise PromptTooLongError.at(length, longest)
        try:
            return self._served, self._capabilities, self._served.compiler.compile(request.grammar)
        except GrammarError:  # without quoting it, as it holds the shopper's words
            raise RequestRefusedError("its grammar does not compile") from None

    async def _tries(
        self,
        request: GenerationRequest,
        served: ServedModel,
        able: Capabilities,
        limit: int,
        constraint: GrammarConstraint,
    ) -> _Answer:
        """Return the first valid answer. Raises EngineUnavailableError, or RequestRefusedError where none is legal."""
        grammar: str | None = None
        for attempt in range(1, _TRIES + 1):
            try:
                follower = TextFollower(served.compiler, constraint, served.card.eos_token_id)
                answer = await self._follow(able.payload(served, request.prompt, limit, grammar), follower)
            except ServerError as error:
                if attempt == _TRIES or isinstance(error, ServerGoneError):
                    raise self._lost_to(error) from error
                logger.warning("the completions server lost a request", extra={"reason": str(error)})
            else:
                if answer.stop_reason is not None:
                    return answer
                if able.grammar is None:  # greedy decoding would repeat the answer
                    break
                grammar = request.grammar
            constraint = served.compiler.compile(request.grammar)
        raise RequestRefusedError("the server's text leaves the grammar")

    async def _follow(self, payload: dict[str, Any], follower: TextFollower) -> _Answer:
        """Make one attempt. Raises ServerError."""
        assert self._client is not None
        answer = _Answer()
        async with self._client.stream(payload) as pieces:
            async for piece in pieces:
                answer.pieces += bool(piece.text)
                try:
                    is_whole = follower.follow(piece.text)
                except GrammarError:
                    return answer
                answer.text = follower.text
                if is_whole or (piece.finish == "stop" and follower.may_end()):
                    answer.stop_reason = "finished"
                    break
                if piece.finish == "length":
                    answer.stop_reason = "length"
        return answer

    def _lost_to(self, error: ServerError) -> EngineUnavailableError:
        """Return what to raise; the server has to be started anew only when nothing listens there."""
        if isinstance(error, ServerGoneError):
            self._capabilities = None
            self._lost.set()
        return EngineUnavailableError(str(error))


def _seconds_until(deadline: float | None) -> float:
    return LONGEST_SECONDS if deadline is None else max(0.0, deadline - time.monotonic())
