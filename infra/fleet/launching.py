"""How many instances start at once, and how long EC2 takes to accept that many requests.

Source: Amazon EC2 developer guide, Request throttling for the Amazon EC2 API: RunInstances' resource tokens, a bucket
of 1,000 for an account and region that fills by 2 a second; StartInstances, which a warm pool uses, has one like it.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from datetime import timedelta

from infra.fleet import sizing
from infra.fleet.calendar import Calendar
from infra.fleet.reservations import reserved
from infra.fleet.scaling import ScalingLaw
from infra.fleet.settings import FleetSettings

AT_ONCE, A_SECOND = 1000, 2


@dataclass(frozen=True)
class Rush:
    """Instances of the whole fleet that start at one moment, and the seconds in which they must have been asked for."""

    what: str
    instances: int
    within: float

    @property
    def seconds(self) -> float:
        """The seconds until EC2 has accepted the last of them."""
        return max(0.0, self.instances - AT_ONCE) / A_SECOND

    @property
    def fits(self) -> bool:
        """Whether they start in time."""
        return self.seconds <= self.within


def rushes(settings: FleetSettings) -> Iterator[Rush]:
    """Yield the moments at which most instances start: each event's floor, and a surge of every cell at once."""
    for event in settings.events:
        due = event.start - timedelta(minutes=event.lead_minutes)
        grown = 0
        for group in settings.groups:
            calendar = Calendar.of_group(settings, group)
            before = max(group.minimum, calendar.floor_at(due - timedelta(minutes=1)))
            grown += max(0, max(group.minimum, calendar.floor_at(due)) - before)
        # The second boot is for what fails (capacity_rules.py).
        left = event.lead_minutes * 60 - 2 * settings.boot_seconds
        yield Rush(f"the floor of {event.name}", grown * settings.cells, left)
    surge = sum(
        max(0, min(group.maximum, sizing.surge_instances(settings, group)) - sizing.floor_for(settings, group))
        for group in settings.groups
    )
    slack = min(settings.surge.recover - sizing.surge_recovery_seconds(settings, group) for group in settings.groups)
    yield Rush("the promised surge, in every cell at once", surge * settings.cells, max(0.0, slack))


@dataclass(frozen=True)
class ZoneNeed:
    """The most instances of one type that one zone must give the whole fleet."""

    instance_type: str
    running: int  # with every zone alive
    zone_lost: int  # with another zone lost, of which
    from_pool: int  # stand stopped in warm pools, and need capacity when they start
    reserved: int  # are promised by reservations during the largest event


def zone_needs(settings: FleetSettings) -> Iterator[ZoneNeed]:
    """Yield each group's need in one zone; Auto Scaling spreads evenly, so zones are alike."""
    zones, cells = len(settings.availability_zones), settings.cells
    for group in settings.groups:
        pool = ScalingLaw.for_group(settings, group).warm_pool.prepared
        promised = max((each.instances for each in reserved(settings, group)), default=0)
        yield ZoneNeed(
            instance_type=group.instance_type,
            running=-(-group.maximum // zones) * cells,
            zone_lost=-(-group.maximum // (zones - 1)) * cells,
            from_pool=-(-max(0, pool - group.minimum) // zones) * cells,
            reserved=promised * cells,
        )
