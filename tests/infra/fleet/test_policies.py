"""The policies of a law, worked by hand for dev: busy to 0.616, a plan's p99 60 ms, the SLO 300 ms, 5% by rule."""

from dataclasses import replace
from datetime import UTC, datetime

import pytest

from infra.fleet.demand import ServiceTime
from infra.fleet.policies import (
    ACTION_EVERY_SECONDS,
    GROUP_WARM_UP_SECONDS,
    PERIOD_SECONDS,
    READINGS_WARM_UP_SECONDS,
    Metrics,
    Signal,
    TargetTracking,
    percent_change,
)
from infra.fleet.scaling import ScalingLaw
from infra.fleet.settings import FleetSettings
from tests.infra.fleet.fleets import dev_fleet

DEV = dev_fleet()
MONDAY = datetime(2027, 3, 1, tzinfo=UTC)


def law_of(settings: FleetSettings = DEV) -> ScalingLaw:
    """Return the law of the first group with room for a thousand instances."""
    return replace(ScalingLaw.for_group(settings, settings.groups[0]), maximum=1000)


LAW = law_of()


@pytest.mark.parametrize(
    ("reading", "wanted"),
    [
        # work, p99 of the model, p99 in the queue, share by rule; of a hundred instances
        (Metrics(0.616, 60, 0, 0), 100),  # at its target
        (Metrics(0.65, 60, 0, 0), 106),
        (Metrics(0.738, 60, 0, 0), 120),  # 1.2 times the target, of which a surge begins
        (Metrics(0.740, 60, 0, 0), 150),
        (Metrics(1.108, 60, 0, 0), 180),
        (Metrics(1.110, 60, 0, 0), 225),
        (Metrics(1.663, 60, 0, 0), 270),
        (Metrics(1.665, 60, 0, 0), 335),
        (Metrics(2.464, 60, 0, 0), 400),
        (Metrics(2.466, 60, 0, 0), 500),
        (Metrics(3.696, 60, 0, 0), 600),
        (Metrics(3.697, 60, 0, 0), 800),
        (Metrics(0.493, 180, 0, 0), 110),  # slow: four fifths of the target
        (Metrics(0.492, 180, 0, 0), 100),
        (Metrics(0.493, 179.9, 119.9, 0), 100),
        (Metrics(0.493, 60, 120, 0), 110),
        (Metrics(0.592, 180, 0, 0), 150),  # and a surge begins as much earlier
        (Metrics(0, 239.9, 179.9, 0.049), 100),
        (Metrics(0, 240, 0, 0), 110),
        (Metrics(0, 300, 0, 0), 125),
        (Metrics(0, 420, 0, 0), 150),
        (Metrics(0, 60, 180, 0), 110),
        (Metrics(0, 60, 240, 0), 125),
        (Metrics(0, 60, 0, 0.05), 115),
        (Metrics(0, 60, 0, 0.1), 130),
        (Metrics(0, 60, 0, 0.2), 160),
    ],
)
def test_a_reading_wants_what_its_highest_step_adds(reading: Metrics, wanted: int) -> None:
    assert LAW.wanted_capacity(reading, MONDAY, 100) == wanted


def test_where_the_budget_of_rules_is_small_a_twentieth_by_rule_is_the_second_step() -> None:
    law = law_of(DEV.model_copy(update={"slo": DEV.slo.model_copy(update={"model_goal": 0.99})}))
    shares = (0.009, 0.01, 0.049, 0.05)
    assert [law.wanted_capacity(Metrics(0, 60, 0, share), MONDAY, 100) for share in shares] == [100, 115, 115, 130]


def test_alarms_wait_for_some_of_their_last_readings() -> None:
    waits = {policy.name: (policy.breaches, policy.periods) for policy in LAW.steps}
    assert waits == {f"surge-{number}": (2, 3) for number in (1, 2, 3, 4, 5)} | {
        "pressed": (3, 5),
        "latency": (3, 5),
        "queue": (3, 5),
        "by-rule": (1, 2),
    }
    assert (LAW.tracking.breaches, LAW.tracking.periods, LAW.tracking.period_seconds) == (3, 3, 10)


def test_lines_have_a_decimal_as_cloudformation_shows_them() -> None:
    time = ServiceTime(mean_ms=40, p99_ms=60.33, source="stated: a test")
    settings = DEV.model_copy(update={"model": DEV.model.model_copy(update={"service_time": time})})
    above = {policy.name: [step.above for step in policy.steps] for policy in law_of(settings).steps}
    assert above["latency"] == [240.1, 300.0, 419.8]
    assert above["queue"] == [179.8, 239.7]


@pytest.mark.parametrize(
    ("minimum", "reading", "is_calm"),
    [
        (3, Metrics(0.369, 179, 1000, 0.0049), True),  # one of four goes: three fifths of the target
        (3, Metrics(0.370, 60, 0, 0), False),
        (39, Metrics(0.430, 60, 0, 0), True),  # of many, seven tenths
        (39, Metrics(0.431, 60, 0, 0), False),
        (3, Metrics(0.1, 180, 0, 0), False),
        (3, Metrics(0.1, 60, 0, 0.005), False),
    ],
)
def test_calm_is_what_one_instance_less_would_stand(minimum: int, reading: Metrics, is_calm: bool) -> None:
    group = DEV.groups[0].model_copy(update={"minimum": minimum, "maximum": 50})
    law = ScalingLaw.for_group(DEV, group)
    assert law.removal.is_calm(reading) == is_calm


def test_removal_takes_a_twentieth_of_what_is_in_service_and_not_of_what_still_boots() -> None:
    calm = Metrics(0.1, 60, 0, 0)
    removal = LAW.removal
    assert (removal.calm_seconds, removal.cooldown_seconds, removal.wanted(100), removal.wanted(3)) == (900, 600, 95, 2)
    assert LAW.wanted_capacity(calm, MONDAY, 100, may_remove=True) == 95
    assert LAW.wanted_capacity(calm, MONDAY, 100, desired=101, may_remove=True) == 101
    assert LAW.wanted_capacity(calm, MONDAY, 100) == 100
    state = replace(LAW.initial_state(), calm_seconds=890, since_removal=590)
    assert LAW.advance(state, calm, MONDAY, 10, 100, 100)[0] == 95
    for later in (replace(state, calm_seconds=889), replace(state, since_removal=589)):
        assert LAW.advance(later, calm, MONDAY, 10, 100, 100)[0] == 100
    _, after = LAW.advance(state, calm, MONDAY, 10, 100, 100)
    assert (after.since_removal, after.calm_seconds) == (0, 900)


def test_time_goes_on_in_a_silence() -> None:
    state = replace(LAW.initial_state(), since_removal=100, since_action=(5.0,) * len(LAW.additions))
    desired, after = LAW.advance(state, None, MONDAY, 30, 100, 100)
    assert (desired, after.since_removal, after.since_action) == (100, 130, (35.0,) * len(LAW.additions))


def test_an_alarm_acts_as_it_goes_off_and_then_once_a_minute() -> None:
    state, desired, course = LAW.initial_state(), 100, []
    for _ in range(12):
        desired, state = LAW.advance(state, Metrics(0, 60, 0, 0.06), MONDAY, 10, desired, desired)
        course.append(desired)
    assert course == [115] * 6 + [132] * 6
    well = Metrics(0, 60, 0, 0)
    for reading in (well, well, Metrics(0, 60, 0, 0.06)):
        desired, state = LAW.advance(state, reading, MONDAY, 10, 132, 132)
    assert desired == 151, "one that was well again acts at once"


def test_a_long_reading_counts_as_the_periods_that_it_lasts() -> None:
    slow = Metrics(0, 250, 0, 0)
    assert LAW.advance(LAW.initial_state(), slow, MONDAY, 20, 100, 100)[0] == 100
    assert LAW.advance(LAW.initial_state(), slow, MONDAY, 30, 100, 100)[0] == 110
    assert LAW.advance(LAW.initial_state(), slow, MONDAY, 1, 100, 100)[1].over[-3] == (True,), "a short one as one"


def test_tracking_asks_for_just_enough() -> None:
    tracking = TargetTracking(Signal.WORK, 0.5)
    readings = [(0.5, False, 10), (0.55, True, 11), (0.551, True, 12), (0.1, False, 10)]
    for work, is_over, wanted in readings:
        reading = Metrics(work, 0, 0, 0)
        assert (tracking.is_over(reading), tracking.wanted(reading, 10)) == (is_over, wanted)


@pytest.mark.parametrize(
    ("instances", "percent", "change"), [(100, 1, 1), (150, 1, 1), (199, -1, -1), (50, 1, 1), (0, 50, 0)]
)
def test_changes_round_towards_zero_and_are_never_none(instances: int, percent: float, change: int) -> None:
    assert percent_change(instances, percent) == change


def test_new_instances_count_once_their_readings_have_arrived_and_before_the_next_action() -> None:
    telemetry = 15  # seconds from a period's end until policies see it
    assert PERIOD_SECONDS + telemetry <= READINGS_WARM_UP_SECONDS < ACTION_EVERY_SECONDS
    assert GROUP_WARM_UP_SECONDS == 0, "a new instance serves at once"
