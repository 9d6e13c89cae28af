"""From a question to its plan: send prompt and grammar to an engine, and build the plan from its text.

`plan_with_model` calls the engine and passes its errors on, as benchmarks, evaluation and traces need. Where no model
is free, the reader's plan stands in (`planner/reader`), and is marked as such.
"""

import hashlib
import logging
import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Literal, Protocol, runtime_checkable

from service.engines.protocol import (
    DegradedReason,
    EngineError,
    GenerationRequest,
    GenerationResult,
    QuestionMeaning,
    StopReason,
)
from service.planner.completion import plan_from_draft
from service.planner.plan import Plan
from service.planner.plan_text import PlanDraft, PlanTextError, filters_of, parse, render, without_doubts
from service.planner.prompt import PlanTask
from service.planner.question import Question
from service.planner.reader.reading import Reader
from service.planner.spelling import words
from service.planner.vocabulary import DEFAULT_INTENT, Vocabulary
from service.settings.choices import Strategy
from service.telemetry.logs import error_location

logger = logging.getLogger(__name__)

READER_ID = "peakplan-reader"
# How many times as sure of its text as the model of its own the reader must be for its plan to be answered. Chosen on
# two writers' conversations: English is planned as well, the languages of which the model learnt little much better.
SURER = 5.0
_DIGEST_BYTES = 8


class Generator(Protocol):
    @property
    def model_id(self) -> str: ...

    async def generate(self, request: GenerationRequest) -> GenerationResult: ...


@runtime_checkable
class Pool(Generator, Protocol):
    """The interface of a pool of engines behind one queue, which can give a second opinion."""

    async def generate(
        self, request: GenerationRequest, *, second_opinion_on: GenerationResult | None = None
    ) -> GenerationResult:
        """Generate on an engine other than the one that gave `second_opinion_on`, if there is one."""
        ...

    def distrust(self, result: GenerationResult) -> None:
        """Quarantine the engine that gave this result, which is corrupt."""


class IncompletePlanError(EngineError):
    """Raised when the model's text ends before the plan is complete."""

    def __init__(self, stop_reason: StopReason, tokens: int) -> None:
        super().__init__(f"{stop_reason} after {tokens} tokens")
        self.reason = "too_long" if stop_reason == "length" else "deadline"


@dataclass(frozen=True, slots=True, kw_only=True)
class Planned:
    """A plan and its origin: `result` is the model's, if one took part; `reason` says why the reader's plan stands in.

    Where it does by choice (`source` "rules", as version 2 of plans calls it), there is no such reason.
    """

    plan: Plan
    source: Literal["model", "cache", "fallback", "rules"]
    model_id: str
    strategy: str
    result: GenerationResult | None = None
    reason: DegradedReason | None = None

    @property
    def degraded(self) -> bool:
        return self.source == "fallback"


@dataclass(slots=True)
class Agreement:
    """Questions that both model and reader read: how many, how many texts differ, and how many were expected to."""

    checked: int = 0
    differing: int = 0
    expected: float = 0.0

    def add(self, text: str, task: PlanTask) -> None:
        """Count a model's text beside the reader's, where there is a reader."""
        if task.reader is None or task.reading is None:
            return
        self.checked += 1
        self.differing += text.split() != [word for word, _ in task.reading.words]
        self.expected += task.reader.differs(task.reading.worth)


@dataclass(frozen=True, slots=True)
class Drafted:
    """What a model wrote about a question, and what it means: all of a plan but what completing adds."""

    result: GenerationResult
    draft: PlanDraft
    strategy: Strategy


class Planner:
    """Plans questions on one engine, with one decoding strategy by default."""

    def __init__(
        self,
        engine: Generator,
        vocabulary: Vocabulary,
        strategy: Strategy = "medusa",
        reader: Reader | None = None,
    ) -> None:
        """Take the vocabulary that the engine's model learnt, and the reader of its folder; a reload replaces both.

        Without a reader a question's own words are searched for where no model is free.
        """
        words()  # are read before the first question, which would wait for them
        self._engine = engine
        self.vocabulary = vocabulary
        self.reader = reader
        self.agreement = Agreement()
        self._pool = engine if isinstance(engine, Pool) else None
        self._strategy = strategy

    @property
    def model_id(self) -> str:
        return self._engine.model_id

    def task(self, question: Question, deadline: float | None = None) -> PlanTask:
        """Return a question to plan, until `deadline` on the `time.monotonic` clock."""
        return PlanTask(question, self.vocabulary, deadline, reader=self.reader)

    def stand_in(self, task: PlanTask, error: EngineError | PlanTextError) -> Planned:
        """Return the reader's plan, because `error` kept the model from making one."""
        if isinstance(error, PlanTextError):  # the grammar admitted a text that the parser rejects: a bug of ours
            logger.error("plan text did not parse", extra={"exception": error_location(error)})
        else:
            log = logger.warning if isinstance(error, IncompletePlanError) else logger.debug
            log("the reader stands in", extra={"reason": error.reason, "detail": str(error)})
        reason = error.reason if isinstance(error, EngineError) else "engine"
        return _stands_in(read_plan(task), reason)

    def plan_by_choice(self, task: PlanTask) -> Planned:
        """Return the reader's plan where the model would hardly plan better."""
        return Planned(plan=read_plan(task), source="rules", model_id=READER_ID, strategy="rules")

    def plan_despite(self, task: PlanTask, fault: Exception) -> Planned:
        """Plan a question at which our own code failed: the reader's plan, or where that fails too its words alone.

        Never fails.
        """
        tell_fault(task.prompt, fault)
        try:
            plan = read_plan(task)
        except Exception:  # most often the fault that the log has by now
            plan = _least_plan(task)
        return _stands_in(plan, "fault")

    async def plan_with_model(
        self, task: PlanTask, *, strategy: Strategy | None = None, fast_forward: bool = True, trace: bool = False
    ) -> Planned:
        """Return the model's plan. Raises what `draft` raises, and whatever a bug in completing it does."""
        drafted = await self.draft(task, strategy=strategy, fast_forward=fast_forward, trace=trace)
        return self.complete(drafted, task)

    async def draft(
        self, task: PlanTask, *, strategy: Strategy | None = None, fast_forward: bool = True, trace: bool = False
    ) -> Drafted:
        """Ask the model. Raises EngineError (IncompletePlanError when cut short), PlanTextError on a bug.

        Where a complete text is no plan, another engine of the pool is asked. If its text is one, the first engine is
        corrupt; if not, the question is the cause, and so no single question can take out one engine after another.
        """
        chosen = strategy or self._strategy
        request = task.request(chosen, fast_forward=fast_forward, trace=trace)
        result = await self._engine.generate(request)
        if chosen == "medusa" and result.stop_reason == "finished":
            self.agreement.add(result.text, task)
        try:
            draft = _draft(result, task)
        except PlanTextError:
            if self._pool is None:
                raise
            doubted, result = result, await self._pool.generate(request, second_opinion_on=result)
            draft = _draft(result, task)
            self._pool.distrust(doubted)
        return Drafted(result, draft, chosen)

    def complete(self, drafted: Drafted, task: PlanTask) -> Planned:
        plan = plan_from_draft(drafted.draft, task.question, task.vocabulary, _meaning_of(drafted.result))
        model_id = drafted.result.model_id or self._engine.model_id
        return Planned(plan=plan, source="model", model_id=model_id, strategy=drafted.strategy, result=drafted.result)


def settled_text(text: str, unsure_words: Sequence[tuple[int, float]], task: PlanTask) -> str:
    """Return the text that a plan is made of: the model's without what it doubts, or the reader's where that is surer.

    `unsure_words` are those of `GenerationResult`. Raises PlanTextError where the model's text is no plan.
    """
    parse(text, task.question, task.vocabulary)
    reading = task.reading
    if reading is None:
        return without_doubts(text, unsure_words, task.vocabulary)
    if reading.probability > SURER * math.prod(probability for _, probability in unsure_words):
        return render(reading.draft, task.question, task.vocabulary)
    return without_doubts(text, unsure_words, task.vocabulary, filters_of(reading.text, task.vocabulary))


def read_plan(task: PlanTask) -> Plan:
    """Return the reader's plan of a question; without a reader a search for its words."""
    reading = task.reading
    return _least_plan(task) if reading is None else plan_from_draft(reading.draft, task.question, task.vocabulary)


def tell_fault(question: str, fault: Exception) -> None:
    """Log that our own code failed at a question, by a digest of its words; the words stay out.

    The digest tells whether faults have one cause, and lets a person who has the question find it.
    """
    digest = hashlib.blake2b(question.encode("utf-8", "replace"), digest_size=_DIGEST_BYTES).hexdigest()
    logger.error("a question could not be planned", extra={"exception": error_location(fault), "question": digest})


def _stands_in(plan: Plan, reason: DegradedReason) -> Planned:
    return Planned(plan=plan, source="fallback", model_id=READER_ID, strategy="rules", reason=reason)


def _least_plan(task: PlanTask) -> Plan:
    """Return the plan that needs nothing but the question: search for its words."""
    sources = list(task.vocabulary.sources)[:1]
    return Plan(mode="keyword", intent=DEFAULT_INTENT, queries=[task.question.text], sources=sources)


def _meaning_of(result: GenerationResult) -> QuestionMeaning | None:
    """Return what the kind head made of the question; None where there is no head, or its answer is no number."""
    try:
        return QuestionMeaning.unpacked(result.meaning)
    except ValueError:
        return None


def _draft(result: GenerationResult, task: PlanTask) -> PlanDraft:
    """Parse the result as it is settled, and keep that text. Raises IncompletePlanError, PlanTextError."""
    if result.stop_reason != "finished":
        raise IncompletePlanError(result.stop_reason, result.plan_tokens)
    result.text = settled_text(result.text, result.unsure_words, task)
    return parse(result.text, task.question, task.vocabulary)
