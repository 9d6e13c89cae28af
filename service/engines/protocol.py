"""The interface of every engine: one request in, one result out. Plain picklable data; imports no model library."""

import base64
import math
import struct
from dataclasses import dataclass, field
from typing import Final, Protocol

from service.decoding.statistics import Statistics, StopReason, TraceNode, TraceStep
from service.settings.choices import Strategy
from service.telemetry.names import DegradedReason

_HEAD: Final = struct.Struct("<ee")  # the odds, and the largest number: float16
_LARGEST: Final = 65504.0  # that float16 holds
_STEPS: Final = 127  # of the others from 0 to the largest: int8
_PARTING: Final = ":"

__all__ = [
    "DegradedReason", "Engine", "EngineError", "EngineUnavailableError", "GenerationRequest", "GenerationResult",
    "RequestRefusedError", "StopReason", "Strategy", "TraceNode", "TraceStep",
]  # fmt: skip
_TOO_LONG = "its prompt has "
GRACE_SECONDS = 1.0  # for a cancelled replica to become free, before it is killed
SURE = 0.98  # choices at least this probable are not reported


@dataclass(frozen=True, slots=True)
class QuestionMeaning:
    """Where a question points in the `space` of this name, and the logarithm of the odds that it tells a need."""

    space: str
    direction: tuple[float, ...]
    odds: float

    def packed(self) -> str:
        """Return it as text, its numbers in int8: a shared cache keeps it beside every plan."""
        top = min(max(map(abs, self.direction), default=0.0), _LARGEST)
        head = _HEAD.pack(max(-_LARGEST, min(_LARGEST, self.odds)), top)
        steps = [round(_STEPS * max(-1.0, min(1.0, number / top))) if top else 0 for number in self.direction]
        packed = head + struct.pack(f"{len(steps)}b", *steps)
        return f"{self.space}{_PARTING}{base64.b64encode(packed).decode()}"

    @classmethod
    def unpacked(cls, text: str) -> "QuestionMeaning | None":
        """Return what was packed; None for "". Raises ValueError for what `packed` never returns."""
        if not text:
            return None
        space, parting, rest = text.rpartition(_PARTING)
        try:
            packed = base64.b64decode(rest, validate=True)
            odds, top = _HEAD.unpack_from(packed)
            steps = struct.unpack_from(f"{len(packed) - _HEAD.size}b", packed, _HEAD.size)
        except (ValueError, struct.error) as error:  # binascii's are ValueErrors
            raise ValueError("not a question's meaning") from error
        if not parting or not steps or not (math.isfinite(odds) and math.isfinite(top)):
            raise ValueError("not a question's meaning")
        return cls(space, tuple(top * step / _STEPS for step in steps), odds)


class EngineError(Exception):
    """Raised when an engine gave no result. The message is fit for a log line: it never quotes the prompt."""

    reason: DegradedReason = "engine"


class EngineUnavailableError(EngineError):
    """Raised when the engine is not started or has failed; the same request may succeed elsewhere or later."""


class RequestRefusedError(EngineError):
    """Raised when no engine will answer this request: its prompt is too long, or its grammar does not compile."""

    @staticmethod
    def of(words: str) -> "RequestRefusedError":
        """Rebuild the error from its message, which is all that an engine in another process sends."""
        return PromptTooLongError(words) if words.startswith(_TOO_LONG) else RequestRefusedError(words)


class PromptTooLongError(RequestRefusedError):
    """Raised when the prompt has more tokens than the engine takes."""

    reason = "too_long"

    @staticmethod
    def at(tokens: int, most: int) -> "PromptTooLongError":
        return PromptTooLongError(f"{_TOO_LONG}{tokens} tokens, and {most} are the most")


@dataclass(frozen=True, slots=True, kw_only=True)
class GenerationRequest:
    """A request to continue one prompt under one grammar (llguidance's Lark dialect).

    `max_tokens` None means the model's own limit. `deadline` is on this host's `time.monotonic` clock, in seconds: the
    engine gives up within one forward pass of it. `fast_forward` False makes even forced tokens cost a pass each.
    `worth` and `client` are for a queue before the engine: who of those that wait gains most by an answer, and whose
    requests share the replicas with others'.

    What a replica knows of a prompt it uses only for others with the same `cache_salt` (vLLM's name). The first
    `earlier` characters of the prompt are that of the turn before; 0 where there was none. `prediction` (OpenAI's name)
    has the words that the answer is likely to be, each with its probability: a draft, which changes no token.
    """

    prompt: str
    grammar: str
    max_tokens: int | None = None
    strategy: Strategy = "medusa"
    fast_forward: bool = True
    trace: bool = False
    deadline: float | None = None
    worth: float = 0.0
    client: str = ""
    cache_salt: str = ""
    earlier: int = 0
    prediction: tuple[tuple[str, float], ...] = ()


@dataclass(slots=True, kw_only=True)
class GenerationResult(Statistics):
    """The result and cost of a generation.

    Only the gateway modifies it: it adds how long the request waited, which replica answered, and with which model.
    During a rollout, two models answer side by side. `meaning` is what a kind head makes of the prompt, packed
    (`QuestionMeaning`); "" where the model has none, or its engine does not know the prompt's states. `unsure_words`
    has (index, probability) of the text's words that it chose with less than SURE; none where an engine does not tell.
    """

    text: str
    tokens: list[int]
    stop_reason: StopReason
    seconds: float
    steps: list[TraceStep] = field(default_factory=list)
    queue_seconds: float = 0.0
    model_id: str = ""
    model_version: str = ""
    replica: int = 0
    meaning: str = ""
    unsure_words: list[tuple[int, float]] = field(default_factory=list)


class Engine(Protocol):
    """One place where a model runs. It answers one request at a time."""

    @property
    def model_id(self) -> str:
        """The model's name, known once started."""

    @property
    def kernel(self) -> str:
        """The kernel that computes the model, known once started; "" where only another server knows."""

    @property
    def available(self) -> bool:
        """Whether the engine is started and, as far as is known, able to answer."""

    async def start(self) -> None:
        """Load the model; also after a failure. Raises EngineError with what to do."""

    async def generate(self, request: GenerationRequest) -> GenerationResult:
        """Answer one request. Return or raise only when the engine is free again, also when cancelled.

        Raises RequestRefusedError or EngineUnavailableError.
        """

    async def failed(self) -> str | None:
        """Return why, where that is known, once the engine cannot answer until it is started again."""

    async def close(self) -> None:
        """Free everything; never raise. No other call may follow."""
