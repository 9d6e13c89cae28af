"""What prime-day promises of loads that nobody announced, kept by its own scaling law."""

from collections.abc import Callable
from datetime import UTC, datetime

import pytest

from infra.fleet import sizing
from infra.fleet.parts import Group
from infra.fleet.scaling import ScalingLaw
from infra.fleet.settings import FLEETS, FleetSettings
from rehearsal.surge import rehearse

PRIME_DAY = FleetSettings.from_yaml(FLEETS / "prime-day.yaml")
# What stands in is given no load that anybody promised: tests/rehearsal/twin/test_simulation.py has it.
GROUPS = [pytest.param(group, id=group.chip) for group in PRIME_DAY.groups if not group.stands_in]
BEFORE = 60  # seconds of the ordinary peak
NIGHT = datetime(2027, 3, 3, 8, 0, tzinfo=UTC)  # 3 a.m. in New York


def rising(group: Group, times: float) -> Callable[[int], float]:
    """The ordinary peak, then `times` as much within the promised time."""
    rate = sizing.group_rate(PRIME_DAY, group)
    grows = (times - 1) / PRIME_DAY.surge.within
    return lambda second: rate * min(times, 1 + max(0, second - BEFORE) * grows)


@pytest.mark.parametrize("group", GROUPS)
@pytest.mark.parametrize("seed", [1, 2, 3])
def test_after_ten_times_the_load_in_a_minute_the_model_plans_for_99_percent_within_180_s(
    group: Group, seed: int
) -> None:
    windows = rehearse(PRIME_DAY, group, rising(group, PRIME_DAY.surge.times), BEFORE + 300, seed=seed)
    after = [window for window in windows if window.ends > BEFORE + PRIME_DAY.surge.recover]
    assert len(after) >= 10
    assert max(window.by_rule_share for window in after) <= 0.01
    assert max(window.longest_ms for window in windows) <= PRIME_DAY.slo.p99_ms, "nobody waits past the deadline"
    assert max(window.by_rule_share for window in windows) > 0.5, "meanwhile rules answer: it is a surge"


@pytest.mark.parametrize("group", GROUPS)
@pytest.mark.parametrize("seed", [1, 2, 3])
def test_after_three_times_the_load_nobody_gets_rules_from_the_first_minute_on(group: Group, seed: int) -> None:
    windows = rehearse(PRIME_DAY, group, rising(group, 3), BEFORE + 420, seed=seed)
    shares = [window.by_rule_share for window in windows if window.ends > BEFORE + 60]
    assert max(shares) <= 0.0005, "a request in two thousand, by the noise of a load that is 93% of what hosts can do"
    assert sum(shares) / len(shares) <= 0.0001
    ideal = sizing.instances_for(PRIME_DAY, group, sizing.group_rate(PRIME_DAY, group, 3))
    assert windows[-1].desired <= 1.15 * ideal, "and the fleet does not overshoot"


@pytest.mark.parametrize("noise", [0.0, 0.08, 0.16])
def test_noise_alone_adds_no_host(noise: float) -> None:
    """An hour at nine tenths of the target, where the floor does not hold the size."""
    group = PRIME_DAY.groups[0]
    start, target = 40, ScalingLaw.for_group(PRIME_DAY, group).tracking.target
    rate = 0.9 * target * start * sizing.full_rate(PRIME_DAY, group)
    windows = rehearse(PRIME_DAY, group, lambda _: rate, 3600, start=start, noise=noise, at=NIGHT)
    assert {window.desired for window in windows} == {start}


@pytest.mark.parametrize("share", [0.05, 0.9])
def test_a_silent_hour_of_telemetry_removes_none(share: float) -> None:
    """Busy or calm: what is not known is not calm."""
    group = PRIME_DAY.groups[0]
    start, target = 40, ScalingLaw.for_group(PRIME_DAY, group).tracking.target
    rate = share * target * start * sizing.full_rate(PRIME_DAY, group)
    windows = rehearse(PRIME_DAY, group, lambda _: rate, 3600, start=start, is_heard=lambda _: False, at=NIGHT)
    assert {window.desired for window in windows} == {start}


def test_a_calm_hour_that_is_heard_removes_some() -> None:
    group = PRIME_DAY.groups[0]
    windows = rehearse(PRIME_DAY, group, lambda _: 20.0, 3600, start=40, at=NIGHT)
    assert windows[-1].desired < 40


def test_an_empty_warm_pool_breaks_the_promise() -> None:
    """The simulator can say no: with cold boots alone ten times the load is not carried within 180 s."""
    cold = PRIME_DAY.model_copy(update={"warm_start_seconds": PRIME_DAY.boot_seconds})
    group = cold.groups[0]
    windows = rehearse(cold, group, rising(group, 10), BEFORE + 300)
    assert windows[-1].by_rule_share > 0.5


def test_the_same_seed_gives_the_same_course() -> None:
    group = PRIME_DAY.groups[1]
    assert rehearse(PRIME_DAY, group, rising(group, 3), 200) == rehearse(PRIME_DAY, group, rising(group, 3), 200)
