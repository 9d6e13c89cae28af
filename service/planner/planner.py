"""From a question to its plan: prompt and grammar to an engine, plan text back, a plan made of both.

`plan_with_model` asks the engine and raises what it raises: benchmarks, evaluation and traces want nothing else. `plan`
never fails for want of a model: rules answer instead, and say so.
"""

import logging
from collections.abc import Callable
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
from service.planner.grammar import plan_grammar
from service.planner.plan import Plan
from service.planner.plan_text import PlanDraft, PlanTextError, parse
from service.planner.prompt import render_prompt
from service.planner.queries import complete_plan
from service.planner.question import Question
from service.telemetry.logs import error_location

logger = logging.getLogger(__name__)

RULES_ID = "peakplan-rules"


class Generator(Protocol):
    """What a planner needs of an engine or a pool of them."""

    @property
    def model_id(self) -> str: ...

    async def generate(self, request: GenerationRequest) -> GenerationResult: ...


@runtime_checkable
class CheckingGenerator(Generator, Protocol):
    """A generator that makes requests only once there is room, and asks elsewhere when an answer is not sound."""

    async def generate_checked(
        self,
        make_request: Callable[[], GenerationRequest],
        deadline: float | None,
        length: int,
        is_sound: Callable[[GenerationResult], bool],
    ) -> GenerationResult:
        """`length` of the prompt in characters."""
        ...


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
        self._checking = engine if isinstance(engine, CheckingGenerator) else None
        self._strategy = strategy

    async def plan(self, question: Question, deadline: float | None = None) -> Planned:
        """The model's plan if it comes before `deadline` (on the `time.monotonic` clock, seconds), else the rules'."""
        try:
            return await self.plan_with_model(question, deadline=deadline)
        except (EngineError, PlanTextError) as error:
            return self.plan_by_rule(question, error)

    def plan_by_rule(self, question: Question, error: EngineError | PlanTextError) -> Planned:
        """What rules make of the question, since `error` kept the model from it."""
        if isinstance(error, PlanTextError):  # the grammar let through what the parser does not know: a bug of ours
            logger.error("plan text did not parse", extra={"exception": error_location(error)})
        else:
            log = logger.warning if isinstance(error, IncompletePlanError) else logger.debug
            log("fell back to rules", extra={"reason": error.reason, "detail": str(error)})
        return Planned(
            plan=fallback_plan(question),
            source="fallback",
            model_id=RULES_ID,
            strategy="rules",
            reason=error.reason if isinstance(error, EngineError) else "engine",
        )

    async def plan_with_model(
        self,
        question: Question,
        *,
        strategy: Strategy | None = None,
        fast_forward: bool = True,
        deadline: float | None = None,
        trace: bool = False,
    ) -> Planned:
        """The model's plan. Raises EngineError (IncompletePlanError when cut short), PlanTextError on a bug of ours."""
        chosen = strategy or self._strategy

        def make_request() -> GenerationRequest:
            return GenerationRequest(
                prompt=render_prompt(question),
                grammar=plan_grammar(question),
                strategy=chosen,
                fast_forward=fast_forward,
                trace=trace,
                deadline=deadline,
            )

        drafts: dict[str, PlanDraft] = {}  # by the text that was read: twice would be once too often

        def is_sound(result: GenerationResult) -> bool:
            try:
                drafts[result.text] = parse(result.text, question)
            except PlanTextError:
                return False
            return True

        result = await self._generate(make_request, deadline, question, is_sound)
        if result.stop_reason != "finished":
            raise IncompletePlanError(result.stop_reason, result.plan_tokens)
        plan = complete_plan(drafts.get(result.text) or parse(result.text, question), question)
        model_id = result.model_id or self._engine.model_id
        return Planned(plan=plan, source="model", model_id=model_id, strategy=chosen, result=result)

    async def _generate(
        self,
        make_request: Callable[[], GenerationRequest],
        deadline: float | None,
        question: Question,
        is_sound: Callable[[GenerationResult], bool],
    ) -> GenerationResult:
        if self._checking is None:
            return await self._engine.generate(make_request())
        length = len(render_prompt(question))
        return await self._checking.generate_checked(make_request, deadline, length, is_sound)


def plan_from_text(text: str, question: Question) -> Plan:
    """The plan that the model's text means for this question. Raises PlanTextError when it means none."""
    return complete_plan(parse(text, question), question)
