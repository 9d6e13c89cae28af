"""The scaling law: monotone in load, inside its bounds, still under constant load, ready for lost zones and events."""

import math
from collections.abc import Callable
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from itertools import pairwise
from zoneinfo import ZoneInfo

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from infra.fleet import sizing
from infra.fleet.calendar import Calendar, reserved
from infra.fleet.cost import Prices, bill
from infra.fleet.demand import DAYS
from infra.fleet.policies import Metrics, ScheduledFloor, Signal, percent_change
from infra.fleet.replacement import careful, stops
from infra.fleet.scaling import ScalingLaw
from infra.fleet.settings import FLEETS, FleetSettings, upcoming_events_only, without_past_events
from infra.operations.quotas import AT_ONCE, Rush, rushes, zone_needs
from tests.infra.fleet.fleets import PROCESSORS, dev_fleet

PRIME_DAY = FleetSettings.from_yaml(FLEETS / "prime-day.yaml")
ORDINARY = datetime(2027, 3, 1, tzinfo=UTC)
LAWS = [ScalingLaw.for_group(PRIME_DAY, group) for group in PRIME_DAY.groups]
LAWS += [ScalingLaw.for_group(dev_fleet(), group) for group in dev_fleet().groups]
STANDS_IN = PRIME_DAY.groups[-1]
STANDING_IN = ScalingLaw.for_group(PRIME_DAY, STANDS_IN)

laws = st.sampled_from(LAWS)
OF_CHIPS = [law for law in LAWS if law != STANDING_IN]
times = st.datetimes(datetime(2027, 1, 1), datetime(2028, 1, 1), timezones=st.just(UTC))
milliseconds = st.floats(0, 5000)
readings = st.builds(Metrics, st.floats(0, 20), milliseconds, milliseconds, st.floats(0, 1), st.floats(0, 20))
instances = st.integers(1, 300)


def worse(reading: Metrics, by: tuple[float, float, float, float, float]) -> Metrics:
    return Metrics(
        reading.offered_work + by[0],
        reading.model_p99_ms + by[1],
        reading.queue_p99_ms + by[2],
        min(1.0, reading.by_rule_share + by[3]),
        reading.others_work + by[4],
    )


@given(laws, readings, st.tuples(*[st.floats(0, 1000)] * 5), times, instances, st.booleans())
def test_more_load_never_wants_less(
    law: ScalingLaw,
    reading: Metrics,
    by: tuple[float, float, float, float, float],
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


@given(laws, st.floats(0, 20), instances)
def test_a_group_grows_to_what_is_asked_in_one_step(law: ScalingLaw, work: float, in_service: int) -> None:
    """Offered work says how much is missing, however much it is: nothing doubles and waits."""
    wanted = law.wanted_capacity(Metrics(work, 0, 0, 0), ORDINARY, in_service)
    assert wanted >= min(law.maximum, work / law.tracking.target * in_service)
    assert wanted <= max(law.floor_at(ORDINARY), in_service, 1.7 * work / law.tracking.target * in_service + 1)


@given(laws, readings, st.integers(50, 100), st.integers(0, 50))
def test_a_breach_that_lasts_adds_nothing_twice_while_instances_boot(
    law: ScalingLaw, reading: Metrics, in_service: int, booting: int
) -> None:
    first = law.wanted_capacity(reading, ORDINARY, in_service)
    asked = max(first, in_service + booting)
    again = law.wanted_capacity(reading, ORDINARY, in_service, desired=asked)
    assert again == min(law.maximum, asked)


# Two queues that bracket a group: one for all replicas, and one of its own for each (M/M/1), which is steepest. Past
# capacity admission control keeps what it admits fast and leaves the rest to rules.
def pooled(work: float) -> Metrics:
    if work >= 1:
        return Metrics(work, 120, 40, 1 - 1 / work)
    return Metrics(work, 60 + 20 * work**8, 20 * work**8, 0.0)


def queue_each(work: float) -> Metrics:
    if work >= 0.95:
        return Metrics(work, 290, 240, max(0.0, 1 - 0.95 / work))
    wait_99 = max(0.0, math.log(100 * max(work, 0.01))) * 20 / (1 - work)
    return Metrics(work, 60 + wait_99, wait_99, 0.0)


def queue_each_host(work: float) -> Metrics:
    """A host of processors, whose sixteen replicas share one line: sizing.target_utilisation's bound on its wait."""
    time, replicas = sizing.service_time(PRIME_DAY, STANDS_IN), sizing.replicas_per_instance(STANDS_IN, 1)
    if work >= 0.95:
        return Metrics(work, 290, 290 - time.p99_ms, max(0.0, 1 - 0.95 / work))
    wait_99 = max(0.0, math.log(100 * max(work, 0.01))) * time.mean_ms / (replicas * (1 - work))
    return Metrics(work, time.p99_ms + wait_99, wait_99, 0.0)


def run_law(law: ScalingLaw, load: float, start: int, plant: Callable[[float], Metrics], hours: float) -> list[int]:
    """Return capacity every ten seconds under a constant `load` (busy instances); new hosts serve after 90 s."""
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


@pytest.mark.parametrize(
    ("plant", "among"), [(pooled, OF_CHIPS), (queue_each, OF_CHIPS), (queue_each_host, [STANDING_IN])]
)
@settings(deadline=None, max_examples=40)
@given(data=st.data(), load_share=st.floats(0, 1.3), start_share=st.floats(0, 1))
def test_two_hours_of_a_constant_load_do_not_oscillate(
    plant: Callable[[float], Metrics],
    among: list[ScalingLaw],
    data: st.DataObject,
    load_share: float,
    start_share: float,
) -> None:
    law = data.draw(st.sampled_from(among))
    start = round(law.minimum + start_share * (law.maximum - law.minimum))
    course = run_law(law, load_share * law.maximum, start, plant, hours=2)
    changes = [later - earlier for earlier, later in pairwise([start, *course]) if later != earlier]
    removed = [index for index, change in enumerate(changes) if change < 0]
    assert not removed or all(change < 0 for change in changes[removed[0] :]), changes


def test_a_group_that_stands_in_grows_where_the_others_are_full_and_stays_while_they_are_busy() -> None:
    """Its own hosts are nearly idle meanwhile, and would have it shrink."""

    def settled(others: float, seconds: int, before: int) -> int:
        reading, state, desired = Metrics(0.1, 170, 5, 0.0, others), STANDING_IN.initial_state(), before
        for passed in range(0, seconds, 10):
            time = ORDINARY + timedelta(seconds=passed)
            desired, state = STANDING_IN.advance(state, reading, time, 10, before, desired)
        return desired

    least, most = STANDS_IN.minimum, STANDS_IN.maximum
    assert settled(0.9, 600, least) == least
    assert settled(1.0, 30, least) == most / 3, "at once, not host by host"
    assert settled(1.5, 30, least) == most * 2 / 3
    assert settled(2.5, 30, least) == most
    assert settled(0.6, 3600, most) == most
    assert settled(0.2, 3600, most) < most


def test_no_threshold_of_a_share_has_more_than_six_decimals() -> None:
    odd = dev_fleet({"slo.model_goal": 0.93123456})
    for policy in ScalingLaw.for_group(odd, odd.groups[0]).steps:
        if policy.signal == Signal.BY_RULE:
            assert [step.above for step in policy.steps] == [0.068765, 0.137531, 0.2]


CALM = Metrics(0.05, 60, 0, 0.0)
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
    floors = [INF2.floor_at(moment) for moment in (due - second, due, event.end - second, event.end)]
    assert floors == [39, peak, peak, 15], "before it an ordinary evening's, after it a night's"
    assert peak > 2.8 * 39


def test_events_back_to_back_hand_over_without_a_dip() -> None:
    first = {"name": "a", "start": "2027-07-13T07:00:00Z", "end": "2027-07-14T07:00:00Z", "multiplier": 2}
    second = {"name": "b", "start": "2027-07-14T07:00:00Z", "end": "2027-07-15T07:00:00Z", "multiplier": 1.3}
    changes = {"events": [first, second], "groups.1.maximum": 6, "traffic.plans_per_minute": 6000, "surge.times": 2}
    fleet = dev_fleet(changes)
    law = ScalingLaw.for_group(fleet, fleet.groups[0])
    assert law.floor_at(fleet.events[1].start) == sizing.instances_wanted(fleet, fleet.groups[0], 1.3) >= law.minimum
    assert len({floor.at for floor in law.schedule}) == len(law.schedule), "Auto Scaling refuses two at one time"


def test_the_warm_pool_is_sized_by_the_promised_surge() -> None:
    prepared = sizing.surge_instances(PRIME_DAY, PRIME_DAY.groups[0])
    assert INF2.warm_pool.prepared == prepared
    assert [INF2.warm_pool.size(running) for running in (36, prepared, prepared + 9)] == [prepared - 36, 0, 0]
    smaller = PRIME_DAY.model_copy(update={"surge": PRIME_DAY.surge.model_copy(update={"times": 5})})
    prepared = ScalingLaw.for_group(smaller, smaller.groups[0]).warm_pool.prepared
    assert prepared == max(floor.minimum for floor in INF2.schedule), "never below the biggest event's floor"
    slow = PRIME_DAY.model_copy(update={"warm_start_seconds": 600})
    assert ScalingLaw.for_group(slow, slow.groups[0]).warm_pool.prepared == 0, "a warm start that gains nothing"


def test_silence_holds_the_size_and_ends_a_calm() -> None:
    calm_for, night = INF2.removal.calm_seconds, datetime(2027, 3, 3, 8, 0, tzinfo=UTC)
    _, state = INF2.advance(INF2.initial_state(), CALM, night, calm_for - 60, 60, 60)
    assert INF2.advance(state, CALM, night, 60, 60, 60)[0] < 60, "without the silence it would be over"
    for minute in range(240):
        desired, state = INF2.advance(state, None, night + timedelta(minutes=minute), 60, 60, 60)
        assert desired == 60
    assert INF2.advance(state, CALM, night, calm_for - 60, 60, 60)[0] == 60, "calm is counted anew"


@pytest.mark.parametrize("minimum", [3, 5, 6])
def test_a_small_group_is_calm_only_where_one_instance_less_still_carries_it(minimum: int) -> None:
    fleet = dev_fleet({"groups.0.minimum": minimum, "groups.0.maximum": 8})
    law = ScalingLaw.for_group(fleet, fleet.groups[0])
    (calm_below,) = [line for signal, line in law.removal.calm_below if signal is Signal.WORK]
    one_less = calm_below * (minimum + 1) / minimum
    assert one_less <= 0.81 * sizing.target_utilisation(fleet, fleet.groups[0])


@pytest.mark.parametrize(("plans_a_second", "units"), [(111, 1), (112, 2), (1111, 10), (1112, 11)])
def test_a_balancer_s_unit_moves_a_gigabyte_an_hour(
    monkeypatch: pytest.MonkeyPatch, plans_a_second: int, units: int
) -> None:
    """A plan with its question is 2,500 bytes."""
    monkeypatch.setattr(sizing, "fleet_rate", lambda *_: plans_a_second * PRIME_DAY.cells)
    assert sizing.balancer_units(PRIME_DAY) == units


DEV = dev_fleet()
# The law of the first group with room for a thousand instances.
LAW = replace(ScalingLaw.for_group(DEV, DEV.groups[0]), maximum=1000)


@pytest.mark.parametrize(
    ("reading", "wanted"),
    [
        # work, p99 of the model, p99 in the queue, share by the reader; of a hundred instances
        (Metrics(0.616, 60, 0, 0), 100),  # at its target
        (Metrics(0.65, 60, 0, 0), 106),
        (Metrics(0.740, 60, 0, 0), 150),  # above 1.2 times the target, where a surge begins
        (Metrics(3.697, 60, 0, 0), 800),
        (Metrics(0.493, 180, 0, 0), 110),  # slow: four fifths of the target
        (Metrics(0.493, 60, 120, 0), 110),
        (Metrics(0, 239.9, 179.9, 0.049), 100),
        (Metrics(0, 420, 0, 0), 150),
        (Metrics(0, 60, 240, 0), 125),
        (Metrics(0, 60, 0, 0.2), 160),
    ],
)
def test_a_reading_wants_what_its_highest_step_adds(reading: Metrics, wanted: int) -> None:
    assert LAW.wanted_capacity(reading, ORDINARY, 100) == wanted


def test_removal_takes_a_twentieth_of_what_is_in_service_and_not_of_what_still_boots() -> None:
    calm = Metrics(0.1, 60, 0, 0)
    removal = LAW.removal
    assert (removal.calm_seconds, removal.cooldown_seconds, removal.wanted(100), removal.wanted(3)) == (900, 600, 95, 2)
    assert LAW.wanted_capacity(calm, ORDINARY, 100, may_remove=True) == 95
    assert LAW.wanted_capacity(calm, ORDINARY, 100, desired=101, may_remove=True) == 101
    assert LAW.wanted_capacity(calm, ORDINARY, 100) == 100
    state = replace(LAW.initial_state(), calm_seconds=890, since_removal=590)
    assert LAW.advance(state, calm, ORDINARY, 10, 100, 100)[0] == 95
    for later in (replace(state, calm_seconds=889), replace(state, since_removal=589)):
        assert LAW.advance(later, calm, ORDINARY, 10, 100, 100)[0] == 100
    _, after = LAW.advance(state, calm, ORDINARY, 10, 100, 100)
    assert (after.since_removal, after.calm_seconds) == (0, 900)
    state = replace(LAW.initial_state(), since_removal=100, since_action=(5.0,) * len(LAW.additions))
    desired, after = LAW.advance(state, None, ORDINARY, 30, 100, 100)
    assert (desired, after.since_removal) == (100, 130), "time goes on in a silence"
    assert after.since_action == (35.0,) * len(LAW.additions)


def test_an_alarm_acts_as_it_goes_off_and_then_once_a_minute() -> None:
    state, desired, course = LAW.initial_state(), 100, []
    for _ in range(12):
        desired, state = LAW.advance(state, Metrics(0, 60, 0, 0.06), ORDINARY, 10, desired, desired)
        course.append(desired)
    assert course == [115] * 6 + [132] * 6
    well = Metrics(0, 60, 0, 0)
    for reading in (well, well, Metrics(0, 60, 0, 0.06)):
        desired, state = LAW.advance(state, reading, ORDINARY, 10, 132, 132)
    assert desired == 151, "one that was well again acts at once"


def test_a_long_reading_counts_as_the_periods_that_it_lasts() -> None:
    slow = Metrics(0, 250, 0, 0)
    assert LAW.advance(LAW.initial_state(), slow, ORDINARY, 20, 100, 100)[0] == 100
    assert LAW.advance(LAW.initial_state(), slow, ORDINARY, 30, 100, 100)[0] == 110
    assert LAW.advance(LAW.initial_state(), slow, ORDINARY, 1, 100, 100)[1].over[-3] == (True,), "a short one as one"


@pytest.mark.parametrize(
    ("instances", "percent", "change"),
    [(3, 10, 1), (25, 10, 2), (3, -5, -1), (50, -5, -2), (9, 0, 0), (199, -1, -1), (50, 1, 1), (0, 50, 0)],
)
def test_percentages_round_as_auto_scaling_rounds(instances: int, percent: float, change: int) -> None:
    assert percent_change(instances, percent) == change


CALENDAR = Calendar.of_group(PRIME_DAY, PRIME_DAY.groups[0])
NEW_YORK = ZoneInfo("America/New_York")


def test_the_floor_follows_the_forecast_and_rises_a_boot_earlier() -> None:
    quiet, peak = (sizing.floor_for(PRIME_DAY, PRIME_DAY.groups[0], share) for share in (0.35, 1.0))
    day = datetime(2027, 3, 3, tzinfo=NEW_YORK)  # a Wednesday
    hours = {hour: CALENDAR.floor_at(day.replace(hour=hour)) for hour in range(24)}
    assert (hours[3], hours[20]) == (quiet, peak)
    assert peak > 2 * quiet
    early = timedelta(seconds=PRIME_DAY.boot_seconds)
    evening = day.replace(hour=18)
    assert CALENDAR.floor_at(evening - early) == peak
    assert CALENDAR.floor_at(evening - early - timedelta(minutes=1)) < peak
    assert CALENDAR.floor_at(day.replace(hour=1) - timedelta(minutes=1)) == peak, "it falls when the load does"
    fleet = dev_fleet({"events": []})
    calendar = Calendar.of_group(fleet, fleet.groups[0])
    assert calendar.floor_at(day) == fleet.groups[0].minimum, "the peak's, where there is no forecast"
    assert list(calendar.actions()) == []


def runs(action: ScheduledFloor, time: datetime, zone: str) -> bool:
    """Whether Auto Scaling runs the action at that minute."""
    if action.at is not None:
        return action.at == time
    assert action.recurrence is not None
    if (action.starts and time < action.starts) or (action.ends and time > action.ends):
        return False
    local = time.astimezone(ZoneInfo(zone))
    minute, hour, _, _, days = action.recurrence.split()
    return (local.minute, local.hour) == (int(minute), int(hour)) and DAYS[local.weekday()].upper() in days.split(",")


def test_the_actions_alone_keep_the_law_s_floor_through_a_week_with_an_event() -> None:
    actions = list(CALENDAR.actions())
    time = datetime(2027, 7, 10, 0, 0, tzinfo=UTC)
    minimum = CALENDAR.floor_at(time)
    for _ in range(8 * 24 * 60):
        ran = [action.minimum for action in actions if runs(action, time, CALENDAR.time_zone)]
        assert len(ran) <= 1, "Auto Scaling refuses two actions at one time"
        minimum = ran[0] if ran else minimum
        assert minimum == CALENDAR.floor_at(time), time
        time += timedelta(minutes=1)


START, END = datetime(2030, 7, 13, 7, tzinfo=UTC), datetime(2030, 7, 14, 7, tzinfo=UTC)
SALE = {"name": "sale", "start": START, "end": END, "multiplier": 2, "lead_minutes": 60}
FLEET = dev_fleet({"events": [SALE], "groups.0.maximum": 8})


def test_an_event_that_is_over_is_left_out_in_words_and_one_under_way_stays_with_a_warning(
    capsys: pytest.CaptureFixture[str],
) -> None:
    assert without_past_events(FLEET, START - timedelta(minutes=61)) == (FLEET, [])
    left, said = without_past_events(FLEET, END)
    assert left.events == ()
    assert ScalingLaw.for_group(left, left.groups[0]).schedule == ()
    (words,) = said
    assert "event sale was over on 2030-07-14 07:00 UTC" in words
    assert "take it out of the file" in words
    assert upcoming_events_only(FLEET, END).events == ()
    assert capsys.readouterr().err.startswith("dev: event sale was over")
    for now in (START - timedelta(minutes=60), END - timedelta(seconds=1)):
        left, said = without_past_events(FLEET, now)
        assert left == FLEET
        assert "event sale is under way until 2030-07-14 07:00 UTC" in said[0]


CHIPS = [group for group in PRIME_DAY.groups if group.reserve]


def test_every_event_has_its_floor_reserved_in_each_zone_before_it_rises() -> None:
    for group in CHIPS:
        found = list(reserved(PRIME_DAY, group))
        assert [each.event for each in found] == [event.name for event in PRIME_DAY.events]
        for each, event in zip(found, PRIME_DAY.events, strict=True):
            floor = sizing.instances_wanted(PRIME_DAY, group, event.multiplier)
            assert floor <= each.instances * 3 < floor + 3
            assert each.opens == event.start - timedelta(hours=event.reserve_hours) < each.due
            assert each.closes == event.end
    for group, need in zip(CHIPS, zone_needs(PRIME_DAY), strict=False):  # which cover a lost zone and the pool
        assert need.running * 3 >= group.maximum * PRIME_DAY.cells
        assert need.zone_lost * 2 >= group.maximum * PRIME_DAY.cells
        assert 0 < need.from_pool <= need.running
        assert need.reserved == max(each.instances for each in reserved(PRIME_DAY, group)) * PRIME_DAY.cells


def test_what_is_reserved_ahead_of_an_event_is_on_its_bill() -> None:
    prices = Prices.from_json()
    items = {item.what: item for item in bill(PRIME_DAY, prices, "event", 4.0).items}
    ahead = items["inf2.xlarge reserved ahead of the event, over its hours"]
    floor = sizing.instances_wanted(PRIME_DAY, PRIME_DAY.groups[0], 4) * PRIME_DAY.cells
    assert 0 < ahead.count < floor * 6 / 48  # eight hours but the two of the lead, over two days
    unreserved = tuple(group.model_copy(update={"reserve": False}) for group in PRIME_DAY.groups)
    kept = PRIME_DAY.model_copy(update={"groups": unreserved})
    assert not [item for item in bill(kept, prices, "event", 4.0).items if "reserved ahead" in item.what]


def test_launches_beyond_a_thousand_wait_for_their_tokens() -> None:
    assert Rush("", AT_ONCE, 0).fits
    late = Rush("", AT_ONCE + 500, 249)
    assert (late.seconds, late.fits) == (250, False)
    assert all(rush.fits and rush.instances > 0 for rush in rushes(PRIME_DAY))


def test_the_others_are_sized_as_if_nothing_stood_in() -> None:
    without, fleet = dev_fleet(), dev_fleet(PROCESSORS)
    for group in without.groups:
        assert sizing.instances_wanted(fleet, group) == sizing.instances_wanted(without, group)
        assert sizing.surge_instances(fleet, group) == sizing.surge_instances(without, group)
    law = ScalingLaw.for_group(fleet, fleet.groups[2])
    assert (law.minimum, law.maximum, law.warm_pool.prepared) == (3, 6, 6)


@pytest.mark.parametrize("name", ["prime-day", "prime-day-small"])
def test_harm_on_a_part_of_the_hosts_crosses_the_lines_that_stop_a_refresh(name: str) -> None:
    """No plan by the model takes longer than the SLO, and a tenth of the hosts that spoils a fifth is 2%."""
    fleet = FleetSettings.from_yaml(FLEETS / f"{name}.yaml")
    for group in fleet.groups:
        lines = {stop.signal: stop.line for stop in stops(ScalingLaw.for_group(fleet, group))}
        assert sizing.service_time(fleet, group).p99_ms < lines[Signal.MODEL_P99] < fleet.slo.p99_ms
        assert round(1 - fleet.slo.model_goal, 6) <= lines[Signal.BY_RULE] < careful(fleet).checkpoints[0] / 100 * 0.2
