"""What EC2 holds reserved for a fleet now, beside what the fleet file reserves: by group and zone, over all cells."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass
from datetime import datetime
from typing import Any

from infra.fleet.reservations import OUTSIDE_EVENTS, reserved
from infra.fleet.settings import FleetSettings
from infra.operations.command import Clients
from infra.operations.deployed_cell import stack_of
from infra.operations.teardown import cells_standing

AT_ONCE = 100  # ids that one call describes


@dataclass(frozen=True)
class Holding:
    """The instances of one type that are reserved in one zone, and that should be; `event` is the one that is open."""

    instance_type: str
    zone: str
    held: int
    wanted: int
    event: str | None


def holdings(settings: FleetSettings, clients: Clients, now: datetime) -> Iterator[Holding]:
    """Yield each zone's holding of every group that reserves, for the cells that stand."""
    groups = [group for group in settings.groups if group.reserve]
    cells = [cell for cell in cells_standing(settings, clients("cloudformation")) if cell in settings.cell_names]
    if not groups or not cells:
        return
    held: Counter[tuple[str, str]] = Counter()
    for reservation in _described(settings, cells, clients):
        if reservation["State"] == "active":
            held[reservation["InstanceType"], reservation["AvailabilityZone"]] += reservation["TotalInstanceCount"]
    for group in groups:
        open_now = [event for event in reserved(settings, group) if event.opens <= now < event.closes]
        largest = max(open_now, key=lambda event: event.instances, default=None)
        wanted = (largest.instances if largest else OUTSIDE_EVENTS) * len(cells)
        for zone in settings.availability_zones:
            there = held[group.instance_type, zone]
            yield Holding(group.instance_type, zone, there, wanted, largest.event if largest else None)


def _described(settings: FleetSettings, cells: list[str], clients: Clients) -> Iterator[Any]:
    """Yield the reservations that the cells' stacks made; others of the account are not the fleet's."""
    ids = []
    for cell in cells:
        pages = clients("cloudformation").get_paginator("list_stack_resources")
        for page in pages.paginate(StackName=stack_of(settings, cell)):
            ids += [
                each["PhysicalResourceId"]
                for each in page["StackResourceSummaries"]
                if each["ResourceType"] == "AWS::EC2::CapacityReservation" and each.get("PhysicalResourceId")
            ]
    for first in range(0, len(ids), AT_ONCE):
        asked = ids[first : first + AT_ONCE]
        yield from clients("ec2").describe_capacity_reservations(CapacityReservationIds=asked)["CapacityReservations"]
