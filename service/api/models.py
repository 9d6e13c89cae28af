"""The request and response models of `POST /plan` and `POST /trace`."""

from dataclasses import dataclass
from typing import Annotated, Literal, Self

from pydantic import BaseModel, ConfigDict, Field, TypeAdapter, field_validator

from service.engines.protocol import DegradedReason, GenerationResult, TraceStep
from service.planner.plan import Plan
from service.planner.planner import Planned
from service.planner.question import MAX_HISTORY_WORDS, Question, clean
from service.settings.choices import DEADLINE_MS

MAX_TEXT_CHARACTERS = 512
MAX_HISTORY = 8


# One visible character, for readers of the schema; what `clean` leaves decides.
_VISIBLE = (
    r"[^\s\u0000-\u001f\u007f-\u009f\u00ad\u200b-\u200f\u202a-\u202e\u2060-\u206f\ue000-\uf8ff\ufeff"
    f"{chr(0x10000)}-{chr(0x10FFFF)}]"
)


class PlanRequest(BaseModel):
    """A shopper's words."""

    model_config = ConfigDict(
        extra="forbid",
        strict=True,
        json_schema_extra={
            "examples": [
                {"query": "waterproof hiking boots under $120", "deadline_ms": 300},
                {"query": "not from nike, cheapest first", "history": ["running shoes size 10", "in blue"]},
            ]
        },
    )

    query: str = Field(
        min_length=1,
        max_length=MAX_TEXT_CHARACTERS,
        description="The newest thing the shopper wrote.",
        json_schema_extra={"pattern": _VISIBLE},
    )
    history: list[Annotated[str, Field(min_length=0)]] = Field(  # a constraint has lone surrogates refused
        default_factory=list,
        description=(
            f"What they wrote before, newest last. A conversation may go on: the newest {MAX_HISTORY} messages count, "
            f"of each its last {MAX_TEXT_CHARACTERS} characters, and of all the newest {MAX_HISTORY_WORDS} words. The "
            "plan is that of the whole conversation."
        ),
    )
    deadline_ms: int = Field(default=DEADLINE_MS, ge=10, le=2000, description="The plan is answered within this time.")
    locale: str | None = Field(
        default=None, max_length=35, description="A BCP 47 language tag: whose words and money these are."
    )

    @field_validator("query")
    @classmethod
    def _says_something(cls, query: str) -> str:
        if not clean(query):
            raise ValueError("must hold at least one visible character")
        return query

    @field_validator("history", mode="after")
    @classmethod
    def _newest(cls, history: list[str]) -> list[str]:
        """Keep what counts: a chat does not end with its ninth message."""
        return [message[-MAX_TEXT_CHARACTERS:] for message in history[-MAX_HISTORY:]]

    @field_validator("deadline_ms", mode="before")
    @classmethod
    def _whole_as_json_means_it(cls, value: object) -> object:
        """Accept 300.0 as a whole number: JSON has one kind of number, and JSON Schema says so too."""
        return int(value) if isinstance(value, float) and value.is_integer() else value

    @property
    def question(self) -> Question:
        return Question.parse(self.query, self.history, self.locale)


@dataclass(slots=True)
class ModelInfo:
    """Who made the plan."""

    id: str
    strategy: str


@dataclass(slots=True)
class Usage:
    """Tokens read and written, and forward passes of the model (the prompt's included)."""

    prompt_tokens: int
    plan_tokens: int
    steps: int

    @classmethod
    def of(cls, result: GenerationResult | None) -> Self:
        if result is None:
            return cls(0, 0, 0)
        return cls(result.prompt_tokens, result.plan_tokens, result.forwards)


@dataclass(slots=True)
class Timing:
    """Milliseconds: from the request's first byte to its answer, waiting for a replica, and in the model."""

    total: float
    queue: float
    model: float


_REASON = (
    "Why the reader's plan stands in; null where it does not. deadline: the model needs longer than a request allows; "
    "capacity: more is asked than all replicas can do; too_long: the model cannot read or write so much; engine: no "
    "replica is up, or none gave a sound answer; fault: the planner itself failed at this question."
)


_SOURCE = (
    "Who made the plan. model: just now; cache: the model, earlier (`model` says which); fallback: the small reader, "
    "because the model could not (`reason` says why); rules: the reader by choice, as it is sure of this one."
)


# What goes out with every plan is no pydantic model: mypy knows its types, and validating our own answer takes time.
@dataclass(slots=True)
class PlanAnswer:
    """A plan and how it came about."""

    __pydantic_config__ = ConfigDict(json_schema_serialization_defaults_required=True)

    request_id: str
    plan: Plan
    source: Annotated[Literal["model", "cache", "fallback", "rules"], Field(description=_SOURCE)]
    degraded: bool
    model: ModelInfo
    usage: Usage
    timing_ms: Timing
    reason: Annotated[DegradedReason | None, Field(description=_REASON)] = None

    @classmethod
    def of(cls, planned: Planned, request_id: str, total_seconds: float) -> Self:
        result = planned.result
        queue, model = (result.queue_seconds, result.seconds) if result else (0, 0)
        return cls(
            request_id,
            planned.plan,
            planned.source,
            planned.degraded,
            ModelInfo(planned.model_id, planned.strategy),
            Usage.of(result),
            Timing(milliseconds(total_seconds), milliseconds(queue), milliseconds(model)),
            planned.reason,
        )

    def json(self) -> bytes:
        return _ANSWERS.dump_json(self)


_ANSWERS = TypeAdapter(PlanAnswer)


class Decoding(BaseModel):
    """One strategy's way to the plan, forward pass by forward pass."""

    plan: Plan
    plan_text: str
    steps: list[TraceStep]
    milliseconds: float
    usage: Usage
    tokens_per_step: float

    @classmethod
    def of(cls, plan: Plan, result: GenerationResult) -> Self:
        return cls(
            plan=plan,
            plan_text=result.text,
            steps=result.steps,
            milliseconds=milliseconds(result.seconds),
            usage=Usage.of(result),
            tokens_per_step=round(result.plan_tokens / max(result.forwards, 1), 3),
        )


_TRACE_REASON = "fault: the planner itself failed at this question; the steps are the model's, the plans by the reader."


class TraceAnswer(BaseModel):
    """The same question decoded twice on one replica: with Medusa heads, and greedily."""

    request_id: str
    question: str
    medusa: Decoding
    greedy: Decoding
    reason: Annotated[DegradedReason | None, Field(description=_TRACE_REASON)] = None


class Problem(BaseModel):
    """RFC 9457 problem details."""

    type: str = "about:blank"
    title: str
    status: int
    detail: str
    request_id: str
    errors: list["FieldProblem"] | None = None


class FieldProblem(BaseModel):
    """One field of the request and what is wrong with it."""

    field: str
    detail: str


def milliseconds(seconds: float) -> float:
    return round(seconds * 1000, 3)
