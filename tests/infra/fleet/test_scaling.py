"""The scaling law: monotone in load, inside its bounds, still under constant load, ready for lost zones."""

import math
from collections.abc import Callable
from datetime import UTC, datetime, timedelta

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from infra.fleet import sizing
from infra.fleet.policies import Metrics, percent_change
from infra.fleet.scaling import ScalingLaw
from infra.fleet.settings import FLEETS, FleetSettings
from tests.infra.fleet.fleets import dev_fleet

PRIME_DAY = FleetSettings.from_yaml(FLEETS / "prime-day.yaml")
ORDINARY = datetime(2027, 3, 1, tzinfo=UTC)
LAWS = [ScalingLaw.for_group(PRIME_DAY, group) for group in PRIME_DAY.groups]
LAWS += [ScalingLaw.for_group(dev_fleet(), group) for group in dev_fleet().groups]

laws = st.sampled_from(LAWS)
times = st.datetimes(datetime(2027, 1, 1), datetime(2028, 1, 1), timezones=st.just(UTC))
milliseconds = st.floats(0, 5000)
readings = st.builds(Metrics, st.floats(0, 50), milliseconds, milliseconds, st.floats(0, 1))
instances = st.integers(1, 300)


def worse(reading: Metrics, by: tuple[float, float, float, float]) -> Metrics:
    return Metrics(
        reading.outstanding_per_replica + by[0],
        reading.p90_ms + by[1],
        reading.p99_ms + by[2],
        min(1.0, reading.degraded_share + by[3]),
    )


@given(laws, readings, st.tuples(*[st.floats(0, 1000)] * 4), times, instances, st.booleans())
def test_more_load_never_wants_less(
    law: ScalingLaw,
    reading: Metrics,
    by: tuple[float, float, float, float],
    time: datetime,
    in_service: int,
    may_remove: bool,
) -> None:
    def wanted(metrics: Metrics) -> int:
        return law.wanted_capacity(metrics, time, in_service, may_remove=may_remove)

    assert wanted(worse(reading, by)) >= wanted(reading)


@given(laws, readings, times, instances, st.integers(0, 100), st.booleans())
def test_wanted_is_always_within_bounds(
    law: ScalingLaw, reading: Metrics, time: datetime, in_service: int, booting: int, may_remove: bool
) -> None:
    desired = in_service + booting
    wanted = law.wanted_capacity(reading, time, in_service, desired=desired, may_remove=may_remove)
    assert law.floor_at(time) <= wanted <= law.maximum


@given(laws, readings, instances)
def test_one_evaluation_at_most_doubles(law: ScalingLaw, reading: Metrics, in_service: int) -> None:
    wanted = law.wanted_capacity(reading, ORDINARY, in_service)
    assert wanted <= max(2 * in_service + 1, law.minimum)


@given(laws, readings, st.integers(50, 100), st.integers(0, 50))
def test_a_breach_that_lasts_adds_nothing_twice_while_instances_boot(
    law: ScalingLaw, reading: Metrics, in_service: int, booting: int
) -> None:
    first = law.wanted_capacity(reading, ORDINARY, in_service)
    asked = max(first, in_service + booting)
    again = law.wanted_capacity(reading, ORDINARY, in_service, desired=asked)
    assert again == min(law.maximum, asked)


# Two queues that bracket a group: one for all replicas, and one of its own for each (M/M/1), which is steepest.
def pooled(utilisation: float) -> Metrics:
    return Metrics(utilisation, 40, 60 + 20 * utilisation**8, 0.0) if utilisation < 1 else Metrics(15, 290, 300, 0.3)


def queue_each(utilisation: float) -> Metrics:
    if utilisation >= 0.95:
        return Metrics(15, 290, 300, 0.3)
    wait_99 = max(0.0, math.log(100 * max(utilisation, 0.01))) * 20 / (1 - utilisation)
    wait_90 = max(0.0, math.log(10 * max(utilisation, 0.1))) * 20 / (1 - utilisation)
    return Metrics(utilisation / (1 - utilisation), 40 + wait_90, 60 + wait_99, 0.0)


def run_law(law: ScalingLaw, load: float, start: int, plant: Callable[[float], Metrics], hours: float) -> list[int]:
    """Capacity every ten seconds under a constant `load` (busy instances); what is asked for serves 90 s later."""
    tick, boot_ticks = 10, 9
    state, desired, booted = law.initial_state(), start, [start] * boot_ticks
    course = []
    for index in range(int(hours * 3600 / tick)):
        in_service = min(booted[-boot_ticks], desired)
        reading = plant(load / in_service)
        desired, state = law.advance(
            state, reading, ORDINARY + timedelta(seconds=index * tick), tick, in_service, desired
        )
        booted.append(desired)
        course.append(desired)
    return course


@pytest.mark.parametrize("plant", [pooled, queue_each])
@settings(deadline=None, max_examples=40)
@given(law=laws, load_share=st.floats(0, 1.3), start_share=st.floats(0, 1))
def test_a_constant_load_does_not_oscillate(
    plant: Callable[[float], Metrics], law: ScalingLaw, load_share: float, start_share: float
) -> None:
    """Once something was removed, nothing is added again."""
    start = round(law.minimum + start_share * (law.maximum - law.minimum))
    course = run_law(law, load_share * law.maximum, start, plant, hours=2)
    changes = [later - earlier for earlier, later in zip([start, *course], course, strict=False) if later != earlier]
    removed = [index for index, change in enumerate(changes) if change < 0]
    assert not removed or all(change < 0 for change in changes[removed[0] :]), changes


CALM = Metrics(0.1, 30, 60, 0.0)
INF2 = ScalingLaw.for_group(PRIME_DAY, PRIME_DAY.groups[0])


def test_what_is_left_of_the_floor_after_a_lost_zone_carries_the_load() -> None:
    zones = len(PRIME_DAY.availability_zones)
    for multiplier in (1.0, 3.0, 4.0):
        for group in PRIME_DAY.groups:
            left = sizing.instances_wanted(PRIME_DAY, group, multiplier) * (zones - 1) // zones
            rate = sizing.group_rate(PRIME_DAY, group, multiplier)
            assert left * sizing.instance_rate(PRIME_DAY, group) >= rate


def test_an_event_s_capacity_stands_ready_ahead_and_goes_at_its_end() -> None:
    event = PRIME_DAY.events[0]
    due = event.start - timedelta(minutes=event.lead_minutes)
    second = timedelta(seconds=1)
    peak = sizing.instances_wanted(PRIME_DAY, PRIME_DAY.groups[0], event.multiplier)
    assert [INF2.floor_at(moment) for moment in (due - second, due, event.end - second, event.end)] == [
        INF2.minimum,
        peak,
        peak,
        INF2.minimum,
    ]
    assert peak > 3 * INF2.minimum


def test_events_back_to_back_hand_over_without_a_dip() -> None:
    first = {"name": "a", "start": "2027-07-13T07:00:00Z", "end": "2027-07-14T07:00:00Z", "multiplier": 2}
    second = {"name": "b", "start": "2027-07-14T07:00:00Z", "end": "2027-07-15T07:00:00Z", "multiplier": 1.3}
    fleet = dev_fleet({"events": [first, second], "groups.1.maximum": 6, "traffic.plans_per_minute": 6000})
    law = ScalingLaw.for_group(fleet, fleet.groups[0])
    assert law.floor_at(fleet.events[1].start) == sizing.instances_wanted(fleet, fleet.groups[0], 1.3) > law.minimum
    assert len({floor.at for floor in law.schedule}) == len(law.schedule), "Auto Scaling refuses two at one time"


@pytest.mark.parametrize(("boot", "warm_start", "size"), [(600, 600, 0), (600, 60, 33), (1200, 60, 35)])
def test_the_warm_pool_follows_boot_time(boot: int, warm_start: int, size: int) -> None:
    fleet = PRIME_DAY.model_copy(update={"boot_seconds": boot, "warm_start_seconds": warm_start})
    assert ScalingLaw.for_group(fleet, fleet.groups[0]).warm_pool.size == size


def test_a_group_that_cannot_grow_keeps_no_warm_pool() -> None:
    fleet = dev_fleet({"groups.1.maximum": 3})
    assert ScalingLaw.for_group(fleet, fleet.groups[1]).warm_pool.size == 0


def test_alarms_are_patient_and_removal_is_slower_than_addition() -> None:
    slow = Metrics(0.1, 100, 290, 0.0)
    state, once = INF2.initial_state(), 60
    wanted, state = INF2.advance(state, slow, ORDINARY, once, 60, 60)
    assert wanted == 60, "one slow minute at the 99th percentile is no reason yet"
    wanted, state = INF2.advance(state, slow, ORDINARY, once, 60, 60)
    assert wanted == 66

    state, course = INF2.initial_state(), [60]
    for _ in range(40):
        wanted, state = INF2.advance(state, CALM, ORDINARY, once, course[-1], course[-1])
        course.append(wanted)
    assert course.index(57) == 15, "calm for a quarter of an hour first"
    assert course.index(55) == 25, "then a cooldown of ten minutes"


@pytest.mark.parametrize(
    ("instances", "percent", "change"), [(3, 10, 1), (25, 10, 2), (3, -5, -1), (50, -5, -2), (9, 0, 0)]
)
def test_percentages_round_as_auto_scaling_rounds(instances: int, percent: float, change: int) -> None:
    assert percent_change(instances, percent) == change
