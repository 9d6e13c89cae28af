"""Who plans a question: cases of the three ways to route, with a scorer that knows what a test wants it to."""

from collections import Counter
from collections.abc import Sequence
from pathlib import Path
from random import Random

import pytest

from service.api.app import replica_pool
from service.gateway.request_queue import CapacityError
from service.planner.caching import CachingPlanner
from service.planner.fallback.making import plans
from service.planner.fallback.reading.conversation import Conversation
from service.planner.fallback.rules.draft import draft_by_rule
from service.planner.plan_cache import PlanCache
from service.planner.plan_text import PlanDraft
from service.planner.planner import RULES_ID, Planner
from service.planner.prompt import PlanTask
from service.planner.question import Question
from service.planner.vocabulary import Vocabulary, shipped_vocabulary
from service.planner.worth import features
from service.planner.worth.routing import Router
from service.planner.worth.scorer import Scorer
from service.settings import Settings
from service.settings.choices import Routing
from service.settings.experiments import ExperimentSettings
from service.settings.groups import OutcomeSettings
from tests.fake_models import fake_source
from tests.planner.test_caching import Engine
from tests.planner.worth.scorers import BOUND, by_length

pytestmark = pytest.mark.anyio
SHORT, LONG = "red shoes", "which red shoes go with a blue suit"


def task(text: str, history: Sequence[str] = ()) -> PlanTask:
    return PlanTask(Question.parse(text, history), shipped_vocabulary())


class Gate:
    """A pool's refusal and idleness, as a test sets them."""

    def __init__(self) -> None:
        self.is_idle = True
        self.asked: list[float] = []
        self.least = 0.0

    def refusal(self, _: float | None, __: int, worth: float, ___: str) -> CapacityError | None:
        self.asked.append(worth)
        return CapacityError("too much is asked", "capacity") if worth < self.least else None


def planner(routing: Routing, engine: Engine, gate: Gate, scorer: Scorer | None) -> CachingPlanner:
    router = Router(routing, scorer, lambda: gate.is_idle)
    memory = PlanCache(100, 60.0)
    return CachingPlanner(
        Planner(engine, shipped_vocabulary()), lambda: engine.version, memory, refusal=gate.refusal, router=router
    )


async def test_always_plans_by_rule_at_once_what_the_bound_allows_and_that_is_not_degraded() -> None:
    engine, gate = Engine(), Gate()
    caching = planner("always", engine, gate, by_length())
    planned = caching.plan_at_once(task(SHORT))
    assert planned is not None
    assert (planned.source, planned.degraded, planned.reason) == ("rules", False, None)
    assert (planned.model_id, planned.strategy, planned.result) == (RULES_ID, "rules", None)
    assert planned.plan.facets == {"color": ["red"], "type": ["shoes"]}
    assert (engine.calls, gate.asked, caching.counts) == (0, [], {"misses": 1})
    assert caching.plan_at_once(task(LONG)) is None
    assert (await caching.plan(task(LONG))).source == "model"


@pytest.mark.parametrize(("routing", "is_idle"), [("always", True), ("overload", False)])
async def test_a_question_that_was_weighed_is_drafted_by_rule_once(
    routing: Routing, monkeypatch: pytest.MonkeyPatch, *, is_idle: bool
) -> None:
    drafted: list[str] = []

    def counted(conversation: Conversation, vocabulary: Vocabulary) -> PlanDraft:
        drafted.append(conversation.question.text)
        return draft_by_rule(conversation, vocabulary)

    for module in (features, plans):
        monkeypatch.setattr(module, "draft_by_rule", counted)
    gate = Gate()
    gate.is_idle, gate.least = is_idle, 1.0
    planned = planner(routing, Engine(), gate, by_length()).plan_at_once(task(SHORT))
    assert planned is not None
    assert (planned.plan.facets, drafted) == ({"color": ["red"], "type": ["shoes"]}, [SHORT])


@pytest.mark.parametrize("routing", ["off", "overload"])
async def test_with_capacity_for_all_the_model_plans_all(routing: Routing) -> None:
    engine, gate = Engine(), Gate()
    caching = planner(routing, engine, gate, by_length())
    for text in (SHORT, LONG):
        asked = task(text)
        assert caching.plan_at_once(asked) is None
        assert (await caching.plan(asked)).source == "model"
        assert asked.worth is None  # nobody had to know
    assert gate.asked == [0.0, 0.0]


async def test_short_of_capacity_the_gateway_learns_what_each_is_worth_and_refusals_are_degraded() -> None:
    engine, gate = Engine(), Gate()
    gate.is_idle, gate.least = False, BOUND
    caching = planner("overload", engine, gate, by_length())
    refused, admitted = caching.plan_at_once(task(SHORT)), task(LONG)
    assert refused is not None
    assert (refused.source, refused.degraded, refused.reason) == ("fallback", True, "capacity")
    assert caching.plan_at_once(admitted) is None
    assert admitted.request("medusa").worth == gate.asked[1] > BOUND > gate.asked[0] > 0


async def test_off_asks_nobody_what_a_question_is_worth() -> None:
    gate = Gate()
    gate.is_idle = False
    asked = task(LONG)
    planner("off", Engine(), gate, by_length()).plan_at_once(asked)
    assert (gate.asked, asked.worth) == ([0.0], None)


async def test_a_model_without_a_scorer_plans_everything() -> None:
    engine, gate = Engine(), Gate()
    caching = planner("always", engine, gate, None)
    assert caching.plan_at_once(task(SHORT)) is None
    assert (await caching.plan(task(SHORT))).source == "model"


async def test_what_is_cached_is_the_models_and_says_so_also_to_a_question_for_rules() -> None:
    engine, gate = Engine(), Gate()
    gate.is_idle = False
    memory = PlanCache(100, 60.0)
    for routing, source in (("off", "model"), ("always", "cache")):
        router = Router(routing, by_length(), lambda: gate.is_idle)  # type: ignore[arg-type]
        caching = CachingPlanner(
            Planner(engine, shipped_vocabulary()), lambda: engine.version, memory, refusal=gate.refusal, router=router
        )
        planned = caching.plan_at_once(task(SHORT)) or await caching.plan(task(SHORT))
        assert (planned.source, planned.model_id, planned.strategy) == (source, "scripted", "medusa")
    by_choice = planner("always", engine, gate, by_length())
    for _ in range(2):  # a plan by rule is not kept: it would be told from a model's by nothing
        again = by_choice.plan_at_once(task(SHORT))
        assert again is not None
        assert again.source == "rules"


async def test_beside_an_arm_by_worth_an_arm_without_gets_as_many_plans_by_the_model_whatever_they_are_worth() -> None:
    """Half of the questions are worth a replica; a worth of nothing would lose to all of them."""
    gate, engine, admitted = Gate(), Engine(), Counter[tuple[str, str]]()
    gate.is_idle, gate.least = False, BOUND
    router = Router("overload", by_length(), lambda: gate.is_idle, Random(1).random)
    caching = CachingPlanner(
        Planner(engine, shipped_vocabulary()), lambda: engine.version, PlanCache(100, 60.0), None, gate.refusal, router
    )
    for number in range(800):
        asked = task(text := (SHORT, LONG)[number % 2])
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
