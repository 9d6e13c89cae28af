"""Floors, schedules and reservations follow the forecast and the events; an event that is over asks for nothing."""

from datetime import UTC, datetime, timedelta
from zoneinfo import ZoneInfo

import pytest
from pydantic import ValidationError

from infra.fleet import sizing
from infra.fleet.calendar import Calendar, reserved
from infra.fleet.cost import Prices, bill
from infra.fleet.demand import DAYS
from infra.fleet.policies import ScheduledFloor
from infra.fleet.scaling import ScalingLaw
from infra.fleet.settings import FLEETS, FleetSettings, upcoming_events_only, without_past_events
from infra.operations.quotas import AT_ONCE, Rush, rushes, zone_needs
from tests.infra.fleet.fleets import PROCESSORS, dev_fleet

PRIME_DAY = FleetSettings.from_yaml(FLEETS / "prime-day.yaml")
INF2 = Calendar.of_group(PRIME_DAY, PRIME_DAY.groups[0])
NEW_YORK = ZoneInfo("America/New_York")


def test_the_floor_follows_the_forecast_and_rises_a_boot_earlier() -> None:
    quiet, peak = (sizing.floor_for(PRIME_DAY, PRIME_DAY.groups[0], share) for share in (0.35, 1.0))
    day = datetime(2027, 3, 3, tzinfo=NEW_YORK)  # a Wednesday
    hours = {hour: INF2.floor_at(day.replace(hour=hour)) for hour in range(24)}
    assert (hours[3], hours[20]) == (quiet, peak)
    assert peak > 2 * quiet
    early = timedelta(seconds=PRIME_DAY.boot_seconds)
    evening = day.replace(hour=18)
    assert INF2.floor_at(evening - early) == peak
    assert INF2.floor_at(evening - early - timedelta(minutes=1)) < peak
    assert INF2.floor_at(day.replace(hour=1) - timedelta(minutes=1)) == peak, "it falls when the load does"


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
    actions = list(INF2.actions())
    time = datetime(2027, 7, 10, 0, 0, tzinfo=UTC)
    minimum = INF2.floor_at(time)
    for _ in range(8 * 24 * 60):
        ran = [action.minimum for action in actions if runs(action, time, INF2.time_zone)]
        assert len(ran) <= 1, "Auto Scaling refuses two actions at one time"
        minimum = ran[0] if ran else minimum
        assert minimum == INF2.floor_at(time), time
        time += timedelta(minutes=1)


def test_without_a_forecast_the_floor_is_the_peak_s_and_nothing_is_scheduled() -> None:
    fleet = dev_fleet({"events": []})
    calendar = Calendar.of_group(fleet, fleet.groups[0])
    assert calendar.floor_at(datetime(2027, 1, 1, tzinfo=UTC)) == fleet.groups[0].minimum
    assert list(calendar.actions()) == []


START, END = datetime(2030, 7, 13, 7, tzinfo=UTC), datetime(2030, 7, 14, 7, tzinfo=UTC)
SALE = {"name": "sale", "start": START, "end": END, "multiplier": 2, "lead_minutes": 60}
FLEET = dev_fleet({"events": [SALE], "groups.0.maximum": 8})


def test_an_event_that_is_over_is_left_out_in_words(capsys: pytest.CaptureFixture[str]) -> None:
    assert without_past_events(FLEET, START - timedelta(minutes=61)) == (FLEET, [])
    left, said = without_past_events(FLEET, END)
    assert left.events == ()
    assert ScalingLaw.for_group(left, left.groups[0]).schedule == ()
    (words,) = said
    assert "event sale was over on 2030-07-14 07:00 UTC" in words
    assert "take it out of the file" in words
    assert upcoming_events_only(FLEET, END).events == ()
    assert capsys.readouterr().err.startswith("dev: event sale was over")


@pytest.mark.parametrize("now", [START - timedelta(minutes=60), END - timedelta(seconds=1)])
def test_an_event_under_way_stays_with_a_warning(now: datetime) -> None:
    left, said = without_past_events(FLEET, now)
    assert left == FLEET
    assert "event sale is under way until 2030-07-14 07:00 UTC" in said[0]


def test_the_fleet_that_ships_has_events_for_long() -> None:
    """Of fixed dates, so that this test never depends on today's."""
    left, said = without_past_events(PRIME_DAY, datetime(2028, 6, 1, tzinfo=UTC))
    assert [event.name for event in left.events] == ["prime-day-2028", "black-friday-2028"]
    assert len(said) == 2


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


@pytest.mark.parametrize(
    ("changes", "why"),
    [
        ({"groups.0.reserve": True, "events": []}, "no events to reserve for"),
        (
            {"events": [SALE | {"multiplier": 1, "lead_minutes": 120, "reserve_hours": 1}]},
            "reserves after its hosts start",
        ),
    ],
)
def test_a_reservation_that_nobody_would_fill_is_refused(changes: dict[str, object], why: str) -> None:
    with pytest.raises(ValidationError, match=why):
        dev_fleet(changes)


def test_what_is_reserved_ahead_of_an_event_is_on_its_bill() -> None:
    prices = Prices.from_json()
    items = {item.what: item for item in bill(PRIME_DAY, prices, "event", 4.0).items}
    ahead = items["inf2.xlarge reserved ahead of the event, over its hours"]
    floor = sizing.instances_wanted(PRIME_DAY, PRIME_DAY.groups[0], 4) * PRIME_DAY.cells
    assert 0 < ahead.count < floor * 6 / 48  # eight hours but the two of the lead, over two days
    kept = PRIME_DAY.model_copy(
        update={"groups": tuple(group.model_copy(update={"reserve": False}) for group in PRIME_DAY.groups)}
    )
    assert not [item for item in bill(kept, prices, "event", 4.0).items if "reserved ahead" in item.what]


def test_launches_beyond_a_thousand_wait_for_their_tokens() -> None:
    assert Rush("", AT_ONCE, 0).fits
    late = Rush("", AT_ONCE + 500, 249)
    assert (late.seconds, late.fits) == (250, False)
    assert all(rush.fits and rush.instances > 0 for rush in rushes(PRIME_DAY))


def test_a_zone_s_needs_cover_a_lost_zone_and_the_pool() -> None:
    for group, need in zip(CHIPS, zone_needs(PRIME_DAY), strict=False):
        assert need.running * 3 >= group.maximum * PRIME_DAY.cells
        assert need.zone_lost * 2 >= group.maximum * PRIME_DAY.cells
        assert 0 < need.from_pool <= need.running
        assert need.reserved == max(each.instances for each in reserved(PRIME_DAY, group)) * PRIME_DAY.cells


CPUS = PROCESSORS["groups.2"]


def test_the_others_are_sized_as_if_nothing_stood_in() -> None:
    without, fleet = dev_fleet(), dev_fleet(PROCESSORS)
    for group in without.groups:
        assert sizing.instances_wanted(fleet, group) == sizing.instances_wanted(without, group)
        assert sizing.surge_instances(fleet, group) == sizing.surge_instances(without, group)
    law = ScalingLaw.for_group(fleet, fleet.groups[2])
    assert (law.minimum, law.maximum, law.warm_pool.prepared) == (3, 6, 6)


@pytest.mark.parametrize(
    ("groups", "why"), [([CPUS], "all stand in"), ([CPUS | {"minimum": 2}], "2 of a group that stands in.*write 3")]
)
def test_a_group_that_stands_in_needs_others_and_a_host_in_each_zone(groups: list[object], why: str) -> None:
    kept = [] if "all" in why else [group.model_dump(exclude_unset=True) for group in dev_fleet().groups]
    with pytest.raises(ValidationError, match=why):
        dev_fleet({"groups": [*kept, *groups], "maximum_cell_instances": 20})
