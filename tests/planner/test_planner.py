import logging
from dataclasses import replace

import pytest

from service.engines.protocol import (
    EngineUnavailableError,
    GenerationRequest,
    GenerationResult,
    PromptTooLongError,
    RequestRefusedError,
)
from service.gateway.request_queue import CapacityError
from service.planner.caching import CachingPlanner
from service.planner.plan_cache import PlanCache
from service.planner.plan_text import PlanTextError
from service.planner.planner import RULES_ID, IncompletePlanError, Planner
from service.planner.prompt import PlanTask
from service.planner.question import Question
from service.planner.single_flight import FlightLateError
from service.planner.vocabulary import shipped_vocabulary
from tests.fake_models import result

pytestmark = pytest.mark.anyio

SHOES = Question.parse("red shoes under $40")


class Scripted:
    """An engine that gives one result, or raises one error."""

    model_id = "scripted"

    def __init__(self, outcome: GenerationResult | Exception) -> None:
        self.outcome = outcome
        self.requests: list[GenerationRequest] = []

    async def generate(self, request: GenerationRequest) -> GenerationResult:
        self.requests.append(request)
        if isinstance(self.outcome, Exception):
            raise self.outcome
        return self.outcome


async def test_the_models_text_becomes_the_plan() -> None:
    engine = Scripted(result(" find Color red Type shoes Max under $40 Fashion"))
    planned = await Planner(engine, shipped_vocabulary()).plan_with_model(PlanTask(SHOES, shipped_vocabulary(), 12.5))
    assert (planned.source, planned.degraded, planned.model_id, planned.strategy) == (
        "model",
        False,
        "scripted",
        "medusa",
    )
    assert planned.plan.facets == {"color": ["red"], "type": ["shoes"]}
    assert planned.plan.price.max == 40
    assert planned.result is engine.outcome


async def test_the_request_carries_prompt_grammar_and_how_to_decode() -> None:
    engine = Scripted(result())
    await Planner(engine, shipped_vocabulary(), "autoregressive").plan_with_model(
        PlanTask(SHOES, shipped_vocabulary(), 12.5), fast_forward=False, trace=True
    )
    (request,) = engine.requests
    assert request.prompt == " red shoes under $40 |"
    assert request.grammar.startswith("start: ")
    assert '" shoes"' in request.grammar
    assert (request.strategy, request.fast_forward, request.trace) == ("autoregressive", False, True)
    assert (request.deadline, request.max_tokens) == (12.5, None)


@pytest.mark.parametrize(
    ("outcome", "reason"),
    [
        (EngineUnavailableError("gone"), "engine"),
        (RequestRefusedError("its grammar does not compile"), "engine"),
        (PromptTooLongError.at(400, 384), "too_long"),
        (CapacityError("every replica is busy", "capacity"), "capacity"),
        (CapacityError("too late", "deadline"), "deadline"),
        (FlightLateError("another's"), "deadline"),
        (result(" find Color", cancelled=True), "deadline"),
        (replace(result(" find Color"), stop_reason="length"), "too_long"),
        (result(" find Color purple Any"), "engine"),
    ],
)
async def test_whatever_goes_wrong_rules_answer_and_say_why(
    outcome: GenerationResult | Exception, reason: str, caplog: pytest.LogCaptureFixture
) -> None:
    with caplog.at_level(logging.DEBUG):
        planned = await CachingPlanner(
            Planner(Scripted(outcome), shipped_vocabulary()), lambda: "", PlanCache(0, 1.0)
        ).plan(PlanTask(SHOES, shipped_vocabulary()))
    assert (planned.source, planned.degraded, planned.model_id, planned.strategy) == (
        "fallback",
        True,
        RULES_ID,
        "rules",
    )
    assert planned.reason == reason
    assert planned.plan.facets == {"color": ["red"], "type": ["shoes"]}
    assert planned.result is None
    assert "purple" not in caplog.text


async def test_without_a_net_errors_come_through() -> None:
    with pytest.raises(IncompletePlanError, match="cancelled after 2 tokens"):
        await Planner(Scripted(result(" find", cancelled=True)), shipped_vocabulary()).plan_with_model(
            PlanTask(SHOES, shipped_vocabulary())
        )
    with pytest.raises(PlanTextError):
        await Planner(Scripted(result(" find Color purple Any")), shipped_vocabulary()).plan_with_model(
            PlanTask(SHOES, shipped_vocabulary())
        )
    with pytest.raises(EngineUnavailableError):
        await Planner(Scripted(EngineUnavailableError("gone")), shipped_vocabulary()).plan_with_model(
            PlanTask(SHOES, shipped_vocabulary())
        )
