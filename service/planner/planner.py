"""From a question to its plan: send prompt and grammar to an engine, and build the plan from its text.

`plan_with_model` calls the engine and passes its errors on, as benchmarks, evaluation and traces need. Where there is
no model, `plan_by_rule` answers instead, and marks the plan as such.
"""

import hashlib
import logging
from dataclasses import dataclass
from typing import Literal, Protocol, runtime_checkable

from service.engines.meaning import QuestionMeaning
from service.engines.protocol import DegradedReason, EngineError, GenerationRequest, GenerationResult, StopReason
from service.planner.completion import plan_from_draft
from service.planner.doubt import without_doubts
from service.planner.fallback.making.plans import plan_by_rule
from service.planner.fallback.reading import readers
from service.planner.plan import Plan
from service.planner.plan_text import PlanDraft, PlanTextError, parse
from service.planner.prompt import PlanTask
from service.planner.question import Question
from service.planner.spelling import words
from service.planner.vocabulary import DEFAULT_INTENT, Vocabulary
from service.settings.choices import Strategy
from service.telemetry.logs import error_location

logger = logging.getLogger(__name__)

RULES_ID = "peakplan-rules"
_DIGEST_BYTES = 8


class Generator(Protocol):
    """The interface of an engine as a planner uses it."""

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
    """A plan and its origin: `result` is the model's, if one took part; `reason` says why rules had to make it.

    Where rules made it by choice (`source` "rules"), there is no such reason.
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


@dataclass(frozen=True, slots=True)
class Drafted:
    """What a model wrote about a question, and what it means: all of a plan but what completing adds."""

    result: GenerationResult
    draft: PlanDraft
    strategy: Strategy


class Planner:
    """Plans questions on one engine, with one decoding strategy by default."""

    def __init__(self, engine: Generator, vocabulary: Vocabulary, strategy: Strategy = "medusa") -> None:
        """Take the vocabulary that the engine's model learnt; a reload replaces it."""
        words()  # are read before the first question, which would wait for them
        readers.prepare()
        self._engine = engine
        self.vocabulary = vocabulary
        self._pool = engine if isinstance(engine, Pool) else None
        self._strategy = strategy

    @property
    def model_id(self) -> str:
        return self._engine.model_id

    def task(self, question: Question, deadline: float | None = None) -> PlanTask:
        """Return a question to plan, until `deadline` on the `time.monotonic` clock."""
        return PlanTask(question, self.vocabulary, deadline)

    def plan_by_rule(self, task: PlanTask, error: EngineError | PlanTextError) -> Planned:
        """Plan by rule, because `error` kept the model from it."""
        if isinstance(error, PlanTextError):  # the grammar admitted a text that the parser rejects: a bug of ours
            logger.error("plan text did not parse", extra={"exception": error_location(error)})
        else:
            log = logger.warning if isinstance(error, IncompletePlanError) else logger.debug
            log("fell back to rules", extra={"reason": error.reason, "detail": str(error)})
        reason = error.reason if isinstance(error, EngineError) else "engine"
        return _by_rule(plan_by_rule(task.conversation, task.vocabulary, task.draft_by_rule), reason)

    def plan_by_choice(self, task: PlanTask) -> Planned:
        """Plan by rule what the model would hardly plan better."""
        plan = plan_by_rule(task.conversation, task.vocabulary, task.draft_by_rule)
        return Planned(plan=plan, source="rules", model_id=RULES_ID, strategy="rules")

    def plan_despite(self, task: PlanTask, fault: Exception) -> Planned:
        """Plan a question at which our own code failed: by rule, or where rules fail too with its words alone.

        Never fails.
        """
        tell_fault(task.prompt, fault)
        try:
            plan = plan_by_rule(task.conversation, task.vocabulary, task.draft_by_rule)
        except Exception:  # most often the fault that the log has by now
            plan = _least_plan(task)
        return _by_rule(plan, "fault")

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
        """Return the plan of what the model wrote."""
        meaning = _meaning_of(drafted.result)
        plan = plan_of(drafted.draft, task, meaning)
        model_id = drafted.result.model_id or self._engine.model_id
        return Planned(plan=plan, source="model", model_id=model_id, strategy=drafted.strategy, result=drafted.result)


def plan_of(draft: PlanDraft, task: PlanTask, meaning: QuestionMeaning | None = None) -> Plan:
    """Return the plan of what a model marked, or by rule where rules read the language of a single question better."""
    if task.is_read_by_rule:
        return plan_by_rule(task.conversation, task.vocabulary)
    return plan_from_draft(draft, task.question, task.vocabulary, meaning)


def tell_fault(question: str, fault: Exception) -> None:
    """Log that our own code failed at a question, by a digest of its words; the words stay out.

    The digest tells whether faults have one cause, and lets whoever has the question find it.
    """
    digest = hashlib.blake2b(question.encode("utf-8", "replace"), digest_size=_DIGEST_BYTES).hexdigest()
    logger.error("a question could not be planned", extra={"exception": error_location(fault), "question": digest})


def _by_rule(plan: Plan, reason: DegradedReason) -> Planned:
    return Planned(plan=plan, source="fallback", model_id=RULES_ID, strategy="rules", reason=reason)


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
    """Parse the result without what its model doubts, and keep that text. Raises IncompletePlanError, PlanTextError."""
    if result.stop_reason != "finished":
        raise IncompletePlanError(result.stop_reason, result.plan_tokens)
    result.text = without_doubts(result.text, result.unsure_words, task.vocabulary)
    return parse(result.text, task.question, task.vocabulary)
