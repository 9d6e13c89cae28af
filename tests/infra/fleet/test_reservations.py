"""What events have reserved by zone, and how fast EC2 lets that many instances start."""

from datetime import timedelta

import pytest
from pydantic import ValidationError

from infra.fleet import sizing
from infra.fleet.cost import Prices, bill
from infra.fleet.launching import AT_ONCE, Rush, rushes, zone_needs
from infra.fleet.reservations import reserved
from infra.fleet.scaling import ScalingLaw
from infra.fleet.settings import FLEETS, FleetSettings
from tests.infra.fleet.fleets import dev_fleet

PRIME_DAY = FleetSettings.from_yaml(FLEETS / "prime-day.yaml")
CHIPS = [group for group in PRIME_DAY.groups if group.reserve]
EVENT = {
    "name": "sale",
    "start": "2030-07-13T07:00:00Z",
    "end": "2030-07-14T07:00:00Z",
    "multiplier": 1,
    "lead_minutes": 60,
}


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
        ({"events": [EVENT | {"lead_minutes": 120, "reserve_hours": 1}]}, "reserves after its hosts start"),
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


CPUS = {
    "instance_type": "c7a.4xlarge",
    "engine": "torch",
    "minimum": 3,
    "maximum": 6,
    "stands_in": True,
    "service_time": {"mean_ms": 74, "p99_ms": 200, "source": "stated: for a test"},
}


def test_the_others_are_sized_as_if_nothing_stood_in() -> None:
    without = dev_fleet()
    groups = [group.model_dump(exclude_unset=True) for group in without.groups]
    fleet = dev_fleet({"groups": [*groups, CPUS], "maximum_cell_instances": 20})
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
