"""An event that is over schedules nothing, and somebody is told."""

from datetime import UTC, datetime, timedelta

import pytest

from infra.fleet.events import upcoming_events_only, without_past_events
from infra.fleet.scaling import ScalingLaw
from infra.fleet.settings import FLEETS, FleetSettings
from tests.infra.fleet.fleets import dev_fleet

START, END = datetime(2030, 7, 13, 7, tzinfo=UTC), datetime(2030, 7, 14, 7, tzinfo=UTC)
SALE = {"name": "sale", "start": START, "end": END, "multiplier": 2, "lead_minutes": 60}
FLEET = dev_fleet({"events": [SALE], "groups.0.maximum": 8})


def test_an_event_ahead_is_kept_without_a_word() -> None:
    assert without_past_events(FLEET, START - timedelta(minutes=61)) == (FLEET, [])


def test_an_event_that_is_over_is_left_out_in_words() -> None:
    left, said = without_past_events(FLEET, END)
    assert left.events == ()
    assert ScalingLaw.for_group(left, left.groups[0]).schedule == ()
    (words,) = said
    assert "event sale was over on 2030-07-14 07:00 UTC" in words
    assert "take it out of the file" in words


@pytest.mark.parametrize("now", [START - timedelta(minutes=60), END - timedelta(seconds=1)])
def test_an_event_under_way_stays_with_a_warning(now: datetime) -> None:
    left, said = without_past_events(FLEET, now)
    assert left == FLEET
    assert "event sale is under way until 2030-07-14 07:00 UTC" in said[0]


def test_it_is_said_where_people_read(capsys: pytest.CaptureFixture[str]) -> None:
    assert upcoming_events_only(FLEET, END).events == ()
    assert capsys.readouterr().err.startswith("dev: event sale was over")


def test_the_fleet_that_ships_has_events_for_long() -> None:
    """Of fixed dates, so that this test never depends on today's."""
    prime_day = FleetSettings.from_yaml(FLEETS / "prime-day.yaml")
    left, said = without_past_events(prime_day, datetime(2028, 6, 1, tzinfo=UTC))
    assert [event.name for event in left.events] == ["prime-day-2028", "black-friday-2028"]
    assert len(said) == 2
