"""The floor follows the forecast and the events, and Auto Scaling's scheduled actions say the same as the law."""

from datetime import UTC, datetime, timedelta
from zoneinfo import ZoneInfo

from infra.fleet import sizing
from infra.fleet.calendar import Calendar
from infra.fleet.demand import DAYS
from infra.fleet.policies import ScheduledFloor
from infra.fleet.settings import FLEETS, FleetSettings
from tests.infra.fleet.fleets import dev_fleet

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


def test_no_two_actions_start_at_one_time() -> None:
    starts = [action.at or action.starts for action in INF2.actions() if action.at or action.starts]
    assert len(starts) == len(set(starts)) > 20


def test_without_a_forecast_the_floor_is_the_peak_s_and_nothing_is_scheduled() -> None:
    fleet = dev_fleet({"events": []})
    calendar = Calendar.of_group(fleet, fleet.groups[0])
    assert calendar.floor_at(datetime(2027, 1, 1, tzinfo=UTC)) == fleet.groups[0].minimum
    assert list(calendar.actions()) == []
