"""Capacity promised by EC2 for events: On-Demand Capacity Reservations, which are zonal, one for each zone of a group.

A reservation exists all year with one instance, which an instance in service there fills, so that it costs nothing; it
grows before an event and shrinks at its end. Source: Amazon EC2 user guide, Capacity Reservations, and Capacity
Reservation groups: instances that find no room in their group's reservations run as On-Demand Instances all the same.
"""

from __future__ import annotations

import math
from collections.abc import Iterator
from dataclasses import dataclass
from datetime import datetime, timedelta

from infra.fleet import sizing
from infra.fleet.description import FleetDescription
from infra.fleet.parts import Group
from infra.fleet.violations import Rule, Violation

# A reservation that grew before the floor rises is there for the instances that the floor asks for.
AHEAD = timedelta(minutes=30)
OUTSIDE_EVENTS = 1  # instances; a reservation cannot be smaller


@dataclass(frozen=True)
class Reserved:
    """What is reserved for one event in each zone of one cell's group."""

    event: str
    opens: datetime
    starts: datetime
    closes: datetime
    instances: int


def reserved(settings: FleetDescription, group: Group) -> Iterator[Reserved]:
    """Yield what `group` of one cell has reserved in each zone, event by event; nothing where it reserves nothing."""
    for event in settings.events if group.reserve else ():
        floor = max(group.minimum, sizing.instances_wanted(settings, group, event.multiplier))
        yield Reserved(
            event=event.name,
            opens=event.start - timedelta(minutes=event.lead_minutes) - AHEAD,
            starts=event.start,
            closes=event.end,
            instances=math.ceil(floor / len(settings.availability_zones)),
        )


def _reservations_are_filled(fleet: FleetDescription) -> Iterator[Violation]:
    zones = len(fleet.availability_zones)
    for index, group in enumerate(fleet.groups):
        if group.reserve and not fleet.events:
            yield Violation(
                f"groups.{index}.reserve",
                "is on, but the file has no events to reserve for: name them, or leave it out",
                "infra/fleet/reservations.py",
            )
        if group.reserve and group.minimum < zones:
            yield Violation(
                f"groups.{index}.reserve",
                f"keeps one instance reserved in each of {zones} zones, and a minimum of {group.minimum} would leave "
                f"some unused, which cost the same: write minimum: {zones} or more",
                "Amazon EC2 user guide, Capacity Reservation pricing and billing",
            )


RESERVATION_RULES: tuple[Rule, ...] = (_reservations_are_filled,)
