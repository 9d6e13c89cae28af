"""What EC2 holds reserved for a fleet now, beside what the fleet file reserves: by group and zone, over all cells."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass
from datetime import datetime

from infra.fleet.reservations import reserved
from infra.fleet.settings import FleetSettings
from infra.operations.command import Clients
from infra.operations.teardown import cells_standing, reservations_of


@dataclass(frozen=True)
class Holding:
    """The instances of one type that are reserved in one zone, and that should be; `event` is the one that is open."""

    instance_type: str
    zone: str
    held: int
    wanted: int
    event: str


def holdings(settings: FleetSettings, clients: Clients, now: datetime) -> Iterator[Holding]:
    """Yield each zone's holding of every group that reserves, while an event is open, for the cells that stand."""
    groups = [group for group in settings.groups if group.reserve]
    cells = [cell for cell in cells_standing(settings, clients("cloudformation")) if cell in settings.cell_names]
    if not groups or not cells:
        return
    held: Counter[tuple[str, str]] = Counter()
    for reservation in reservations_of(settings, clients("ec2"), cells):
        held[reservation["InstanceType"], reservation["AvailabilityZone"]] += reservation["TotalInstanceCount"]
    for group in groups:
        open_now = [event for event in reserved(settings, group) if event.opens <= now < event.closes]
        for zone in settings.availability_zones if open_now else ():
            wanted = sum(event.instances for event in open_now) * len(cells)
            named = " and ".join(event.event for event in open_now)
            yield Holding(group.instance_type, zone, held[group.instance_type, zone], wanted, named)
