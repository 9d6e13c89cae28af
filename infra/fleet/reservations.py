"""Capacity promised by EC2 for events: On-Demand Capacity Reservations, one for each event, cell, group and zone.

They are asked for `reserve_hours` before the event, paid for from then on, and end with it. They are open: instances of
their type that already run in the zone count, and those that find no room run On-Demand all the same. Source: Amazon
EC2 user guide, Capacity Reservations.
"""

from __future__ import annotations

import math
from collections.abc import Iterator
from dataclasses import dataclass
from datetime import datetime, timedelta

from infra.fleet import sizing
from infra.fleet.description import FleetDescription
from infra.fleet.parts import PART_TAG, TAG, Group
from infra.fleet.violations import Rule, Violation


@dataclass(frozen=True)
class Reserved:
    """What is reserved for one event in each zone of one cell's group."""

    event: str
    opens: datetime
    due: datetime  # when the instances that fill it are started
    starts: datetime
    closes: datetime
    instances: int


def reserved(settings: FleetDescription, group: Group) -> Iterator[Reserved]:
    """Yield what `group` of one cell has reserved in each zone, event by event; nothing where it reserves nothing."""
    for event in settings.events if group.reserve else ():
        floor = max(group.minimum, sizing.instances_wanted(settings, group, event.multiplier))
        yield Reserved(
            event=event.name,
            opens=event.start - timedelta(hours=event.reserve_hours),
            due=event.start - timedelta(minutes=event.lead_minutes),
            starts=event.start,
            closes=event.end,
            instances=math.ceil(floor / len(settings.availability_zones)),
        )


def tags(settings: FleetDescription, cell: str) -> list[dict[str, str]]:
    """Return the tags by which a reservation is known as a cell's."""
    return [{"Key": TAG, "Value": settings.name}, {"Key": PART_TAG, "Value": cell}]


def _reservations_have_events(fleet: FleetDescription) -> Iterator[Violation]:
    for index, group in enumerate(fleet.groups):
        if group.reserve and not fleet.events:
            yield Violation(
                f"groups.{index}.reserve",
                "is on, but the file has no events to reserve for: name them, or leave it out",
                "infra/fleet/reservations.py",
            )


RESERVATION_RULES: tuple[Rule, ...] = (_reservations_have_events,)
