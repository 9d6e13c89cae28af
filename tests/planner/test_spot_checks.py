"""Spot checks: a few of the questions that rules planned by choice, planned by the model too, and counted."""

import itertools

import pytest

from service.gateway.request_queue import CapacityError
from service.planner.planner import Planner
from service.planner.prompt import PlanTask
from service.planner.question import Question
from service.planner.spot_checks import SpotCheckCounts, SpotChecks
from service.planner.vocabulary import shipped_vocabulary
from tests.fake_engines import settle
from tests.planner.test_caching import Engine

pytestmark = pytest.mark.anyio


def task(text: str = "red shoes") -> PlanTask:
    return PlanTask(Question.parse(text), shipped_vocabulary())


def checks(engine: Engine, share: float = 1.0, *, is_welcome: bool = True) -> SpotChecks:
    rising = itertools.count()
    return SpotChecks(Planner(engine, shipped_vocabulary()), share, lambda: is_welcome, lambda: next(rising) % 10 / 10)


async def offer(spot_checks: SpotChecks, expected: float = 0.1, **changed: object) -> None:
    planner = Planner(Engine(), shipped_vocabulary())
    by_rule = planner.plan_by_choice(task()).plan
    spot_checks.offer(task(), by_rule.model_copy(update=changed), expected)
    await settle()


async def test_what_differs_is_counted_beside_what_was_expected_to() -> None:
    spot_checks = checks(Engine())
    await offer(spot_checks, 0.1)
    assert spot_checks.counts == SpotCheckCounts(checked=1, differing=0, expected=0.1)
    await offer(spot_checks, 0.3, sort="price_asc")
    assert spot_checks.counts == SpotCheckCounts(checked=2, differing=1, expected=0.4)


async def test_only_the_share_of_the_setting_is_checked() -> None:
    engine = Engine()
    spot_checks = checks(engine, 0.2)
    for _ in range(50):
        await offer(spot_checks)
    assert engine.calls == spot_checks.counts.checked == 10


async def test_one_at_a_time_and_none_while_the_service_drains() -> None:
    engine = Engine()
    engine.gate.clear()
    spot_checks = checks(engine)
    for _ in range(5):
        await offer(spot_checks)
    assert engine.calls == 1
    engine.gate.set()
    await settle()
    await offer(spot_checks)
    assert spot_checks.counts.checked == engine.calls == 2
    leaving = checks(engine, is_welcome=False)
    await offer(leaving)
    assert (engine.calls, leaving.counts.checked) == (2, 0)


async def test_a_check_that_gave_way_says_nothing_and_the_next_one_runs() -> None:
    engine = Engine()
    engine.error = CapacityError("somebody needed the replica", "capacity")
    spot_checks = checks(engine)
    await offer(spot_checks)
    assert spot_checks.counts == SpotCheckCounts()
    engine.error = None
    await offer(spot_checks)
    assert spot_checks.counts.checked == 1
