import logging
from collections import Counter
from dataclasses import replace
from pathlib import Path
from random import Random

import pytest

from service.api.app import replica_pool
from service.engines.protocol import (
    EngineUnavailableError,
    GenerationRequest,
    GenerationResult,
    PromptTooLongError,
    RequestRefusedError,
)
from service.gateway.request_queue import CapacityError
from service.planner.caching import CachingPlanner, FlightLateError, PlanCache, Router
from service.planner.plan_text import PlanTextError
from service.planner.planner import READER_ID, IncompletePlanError, Planner
from service.planner.prompt import PlanTask
from service.planner.question import Question
from service.planner.reader.reading import Reader
from service.planner.vocabulary import shipped_vocabulary
from service.settings import Settings
from service.settings.choices import Routing
from service.settings.groups import ExperimentSettings, OutcomeSettings
from tests.fake_models import fake_source, result
from tests.planner.test_caching import Engine
from tests.readers import BOUND, CountingReader, by_length

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
async def test_whatever_goes_wrong_the_reader_answers_and_says_why(
    outcome: GenerationResult | Exception, reason: str, caplog: pytest.LogCaptureFixture
) -> None:
    with caplog.at_level(logging.DEBUG):
        planned = await CachingPlanner(
            Planner(Scripted(outcome), shipped_vocabulary()), lambda: "", PlanCache(0, 1.0)
        ).plan(PlanTask(SHOES, shipped_vocabulary(), reader=by_length()))
    assert (planned.source, planned.degraded, planned.model_id, planned.strategy) == (
        "fallback",
        True,
        READER_ID,
        "rules",
    )
    assert planned.reason == reason
    assert planned.plan.facets == {"type": ["$40"]}
    assert planned.result is None
    assert "purple" not in caplog.text


@pytest.mark.parametrize(
    ("outcome", "error", "words"),
    [
        (result(" find", cancelled=True), IncompletePlanError, "cancelled after 2 tokens"),
        (result(" find Color purple Any"), PlanTextError, None),
        (EngineUnavailableError("gone"), EngineUnavailableError, "gone"),
    ],
)
async def test_without_a_net_errors_come_through(
    outcome: GenerationResult | Exception, error: type[Exception], words: str | None
) -> None:
    planner = Planner(Scripted(outcome), shipped_vocabulary())
    with pytest.raises(error, match=words):
        await planner.plan_with_model(planner.task(SHOES))


async def test_a_plan_refuses_nothing_that_its_model_doubts() -> None:
    doubted, question = result(" find Not Color white Any"), Question.parse("white looks better")
    planner = Planner(Scripted(doubted), shipped_vocabulary())
    assert (await planner.plan_with_model(planner.task(question))).plan.exclude == {"color": ["white"]}
    doubted.text, doubted.unsure_words = " find Not Color white Any", [(1, 0.39)]
    plan = (await planner.plan_with_model(planner.task(question))).plan
    assert (plan.exclude, plan.queries) == ({}, ["white looks better"])


async def test_the_readers_words_are_what_is_predicted_and_the_models_text_is_counted_beside_them() -> None:
    task = PlanTask(SHOES, shipped_vocabulary(), reader=by_length())
    predicted = " ".join(word for word, _ in by_length().read(SHOES, shipped_vocabulary()).words)
    engine = Scripted(result(f" {predicted}"))
    planner = Planner(engine, shipped_vocabulary())
    await planner.plan_with_model(task)
    assert " ".join(word for word, _ in engine.requests[0].prediction) == predicted
    engine.outcome = result(" find Type shoes Any")
    await planner.plan_with_model(task)
    counts = (planner.agreement.checked, planner.agreement.differing, planner.agreement.expected)
    assert counts == (2, 1, pytest.approx(0.2))
    await planner.plan_with_model(task, strategy="autoregressive")
    await planner.plan_with_model(PlanTask(SHOES, shipped_vocabulary()))
    assert [request.prediction for request in engine.requests[2:]] == [(), ()]
    assert planner.agreement.checked == 2, "where the reader drafts nothing it is not compared"


SHORT, LONG = "red shoes", "which red shoes go with a blue suit"


def task(text: str, reader: Reader | None) -> PlanTask:
    return PlanTask(Question.parse(text), shipped_vocabulary(), reader=reader)


class Gate:
    """A pool's refusal and idleness, as a test sets them."""

    def __init__(self) -> None:
        self.is_idle = True
        self.asked: list[float] = []
        self.least = 0.0

    def refusal(self, _: float | None, __: int, worth: float, ___: str) -> CapacityError | None:
        self.asked.append(worth)
        return CapacityError("too much is asked", "capacity") if worth < self.least else None


def planner(routing: Routing, engine: Engine, gate: Gate) -> CachingPlanner:
    router = Router(routing, lambda: gate.is_idle)
    memory = PlanCache(100, 60.0)
    return CachingPlanner(
        Planner(engine, shipped_vocabulary()), lambda: engine.version, memory, refusal=gate.refusal, router=router
    )


@pytest.mark.parametrize(("routing", "is_idle"), [("always", True), ("overload", False)])
async def test_a_question_that_was_weighed_is_read_once(routing: Routing, *, is_idle: bool) -> None:
    gate, reader = Gate(), CountingReader.by_length()
    gate.is_idle, gate.least = is_idle, 1.0
    planned = planner(routing, Engine(), gate).plan_at_once(task(SHORT, reader))
    assert planned is not None
    assert (planned.plan.facets, reader.read_texts) == ({"type": ["shoes"]}, [SHORT])


async def test_short_of_capacity_the_gateway_learns_what_each_is_worth_and_refusals_are_degraded() -> None:
    engine, gate = Engine(), Gate()
    gate.is_idle, gate.least = False, BOUND
    caching = planner("overload", engine, gate)
    refused, admitted = caching.plan_at_once(task(SHORT, by_length())), task(LONG, by_length())
    assert refused is not None
    assert (refused.source, refused.degraded, refused.reason) == ("fallback", True, "capacity")
    assert caching.plan_at_once(admitted) is None
    assert admitted.request("medusa").worth == gate.asked[1] > BOUND > gate.asked[0] > 0


async def test_off_asks_nobody_what_a_question_is_worth() -> None:
    gate, reader = Gate(), CountingReader.by_length()
    gate.is_idle = False
    asked = task(LONG, reader)
    planner("off", Engine(), gate).plan_at_once(asked)
    assert (gate.asked, asked.worth, reader.read_texts) == ([0.0], None, [])


@pytest.mark.parametrize("reader", [None, by_length(is_bounded=False)], ids=["no reader", "no bound"])
async def test_without_reader_or_bound_the_model_plans_everything(reader: Reader | None) -> None:
    caching = planner("always", Engine(), Gate())
    assert caching.plan_at_once(task(SHORT, reader)) is None
    assert (await caching.plan(task(SHORT, reader))).source == "model"


async def test_what_is_cached_is_the_models_and_says_so_also_to_a_question_for_the_reader() -> None:
    engine, gate = Engine(), Gate()
    memory = PlanCache(100, 60.0)
    routes: tuple[tuple[Routing, str], ...] = (("off", "model"), ("always", "cache"))
    for routing, source in routes:
        caching = CachingPlanner(
            Planner(engine, shipped_vocabulary()), lambda: engine.version, memory, router=Router(routing)
        )
        planned = caching.plan_at_once(asked := task(SHORT, by_length())) or await caching.plan(asked)
        assert (planned.source, planned.model_id, planned.strategy) == (source, "scripted", "medusa")
    by_choice = planner("always", engine, gate)
    for _ in range(2):  # the reader's plan is not kept: it would be told from a model's by nothing
        again = by_choice.plan_at_once(task(SHORT, by_length()))
        assert again is not None
        assert again.source == "rules"


async def test_arms_without_worth_routing_get_an_equal_share_of_the_model() -> None:
    """Half of the questions are worth a replica; a worth of nothing would lose to all of them."""
    gate, engine, admitted = Gate(), Engine(), Counter[tuple[str, str]]()
    gate.is_idle, gate.least = False, BOUND
    router = Router("overload", lambda: gate.is_idle, Random(1).random)
    caching = CachingPlanner(
        Planner(engine, shipped_vocabulary()), lambda: engine.version, PlanCache(100, 60.0), None, gate.refusal, router
    )
    for number in range(800):
        asked = task(text := (SHORT, LONG)[number % 2], by_length())
        asked.planners = arm = ("overload", "off")[number // 2 % 2]
        if caching.plan_at_once(asked) is None:
            assert router.weigh(asked) == asked.worth == gate.asked[-1], "drawn once"
            admitted[arm, text] += 1
    assert (admitted["overload", SHORT], admitted["overload", LONG]) == (0, 200)
    assert 170 < admitted["off", SHORT] + admitted["off", LONG] < 230, "as many as the other arm"
    assert abs(admitted["off", SHORT] - admitted["off", LONG]) < 40, "without a look at the question"


@pytest.mark.parametrize(
    ("routing", "arms", "by_worth"),
    [
        ("off", "control=1,routing-overload=1", True),
        ("off", "control=1,rules=1", False),
        ("overload", "control=1,routing-off=1", True),
    ],
)
def test_replicas_choose_by_worth_where_an_arm_needs_it(
    routing: Routing, arms: str, tmp_path: Path, *, by_worth: bool
) -> None:
    settings = Settings(
        replicas=1, routing=routing, outcomes=OutcomeSettings(dir=tmp_path),
        experiment=ExperimentSettings(name="autumn", arms=arms),
    )  # fmt: skip
    assert replica_pool(settings, fake_source())._admission._by_worth is by_worth
