"""From a question to its plan: prompt and grammar to an engine, plan text back, a plan made of both.

`plan_with_model` asks the engine and raises what it raises: benchmarks, evaluation and traces want nothing else. Where
there is none, `plan_by_rule` answers instead, and says so.
"""

import logging
from dataclasses import dataclass
from typing import Literal, Protocol, runtime_checkable

from service.engines.protocol import (
    DegradedReason,
    EngineError,
    GenerationRequest,
    GenerationResult,
    StopReason,
    Strategy,
)
from service.planner.fallback import fallback_plan
from service.planner.plan import Plan
from service.planner.plan_text import PlanDraft, PlanTextError, parse
from service.planner.prompt import PlanTask
from service.planner.queries import complete_plan
from service.planner.question import Question
from service.telemetry.logs import error_location

logger = logging.getLogger(__name__)

RULES_ID = "peakplan-rules"


class Generator(Protocol):
    """What a planner needs of an engine."""

    @property
    def model_id(self) -> str: ...

    async def generate(self, request: GenerationRequest) -> GenerationResult: ...


@runtime_checkable
class Pool(Generator, Protocol):
    """What it needs of several engines behind one queue, which can be asked for a second opinion."""

    async def generate(
        self, request: GenerationRequest, *, second_opinion_on: GenerationResult | None = None
    ) -> GenerationResult:
        """From another engine than gave that result, if there is one."""
        ...

    def distrust(self, result: GenerationResult) -> None:
        """Take out the engine that gave this result: it is corrupt."""


class IncompletePlanError(EngineError):
    """The model's text broke off before it was a whole plan."""

    def __init__(self, stop_reason: StopReason, tokens: int) -> None:
        super().__init__(f"{stop_reason} after {tokens} tokens")
        self.reason = "too_long" if stop_reason == "length" else "deadline"


@dataclass(frozen=True, slots=True, kw_only=True)
class Planned:
    """A plan and how it came about: `result` is the model's, if one took part; `reason` says why, if rules made it."""

    plan: Plan
    source: Literal["model", "cache", "fallback"]
    model_id: str
    strategy: str
    result: GenerationResult | None = None
    reason: DegradedReason | None = None

    @property
    def degraded(self) -> bool:
        return self.source == "fallback"


class Planner:
    """Plans questions on one engine, with one decoding strategy by default."""

    def __init__(self, engine: Generator, strategy: Strategy = "medusa") -> None:
        self._engine = engine
        self._pool = engine if isinstance(engine, Pool) else None
        self._strategy = strategy

    def plan_by_rule(self, question: Question, error: EngineError | PlanTextError) -> Planned:
        """What rules make of the question, since `error` kept the model from it."""
        if isinstance(error, PlanTextError):  # the grammar let through what the parser does not know: a bug of ours
            logger.error("plan text did not parse", extra={"exception": error_location(error)})
        else:
            log = logger.warning if isinstance(error, IncompletePlanError) else logger.debug
            log("fell back to rules", extra={"reason": error.reason, "detail": str(error)})
        reason = error.reason if isinstance(error, EngineError) else "engine"
        return Planned(
            plan=fallback_plan(question), source="fallback", model_id=RULES_ID, strategy="rules", reason=reason
        )

    async def plan_with_model(
        self, task: PlanTask, *, strategy: Strategy | None = None, fast_forward: bool = True, trace: bool = False
    ) -> Planned:
        """The model's plan. Raises EngineError (IncompletePlanError when cut short), PlanTextError on a bug of ours.

        Where a whole text is no plan, another engine of a pool is asked. If its text is one, the first engine is
        corrupt; if not, the question is to blame, and one odd question cannot take out one engine after another.
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
        plan = complete_plan(draft, task.question)
        model_id = result.model_id or self._engine.model_id
        return Planned(plan=plan, source="model", model_id=model_id, strategy=chosen, result=result)


def _draft(result: GenerationResult, task: PlanTask) -> PlanDraft:
    """Raises IncompletePlanError, PlanTextError."""
    if result.stop_reason != "finished":
        raise IncompletePlanError(result.stop_reason, result.plan_tokens)
    return parse(result.text, task.question)


def plan_from_text(text: str, question: Question) -> Plan:
    """The plan that the model's text means for this question. Raises PlanTextError when it means none."""
    return complete_plan(parse(text, question), question)
