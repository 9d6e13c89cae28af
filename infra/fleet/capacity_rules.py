"""Rules on a fleet's capacity: ordinary days, events, a lost zone, and the surge that its file promises."""

from __future__ import annotations

from collections.abc import Iterator

from infra.fleet import shared_cache, sizing
from infra.fleet.description import FleetDescription
from infra.fleet.violations import Rule, Violation

# "Scheduled actions per Auto Scaling group", which AWS does not raise (Amazon EC2 Auto Scaling user guide, Quotas).
SCHEDULED_ACTIONS = 125


def _slo_can_be_met(fleet: FleetDescription) -> Iterator[Violation]:
    for index, group in enumerate(fleet.groups):
        utilisation, time = sizing.target_utilisation(fleet, group), sizing.service_time(fleet, group)
        if utilisation < sizing.LOWEST_UTILISATION:
            yield Violation(
                f"groups.{index}.service_time" if group.service_time else "model.service_time",
                f"mean {time.mean_ms} ms and p99 {time.p99_ms} ms leave replicas of {group.instance_type} only "
                f"{utilisation:.0%} busy inside an SLO of {fleet.slo.p99_ms} ms: use a faster model or a longer SLO",
                "infra/fleet/sizing.py, target_utilisation",
            )


def _can_be_sized(fleet: FleetDescription) -> bool:
    """Return whether the fleet can be sized at all; where it cannot, another rule reports it."""
    return all(
        sizing.replicas_per_instance(group, fleet.model.tensor_parallel)
        and sizing.target_utilisation(fleet, group) >= sizing.LOWEST_UTILISATION
        for group in fleet.groups
    )


def _ordinary_days_and_events_have_capacity(fleet: FleetDescription) -> Iterator[Violation]:
    if not _can_be_sized(fleet):
        return
    days = [("traffic.plans_per_minute", "an ordinary day", 1.0)]
    days += [(f"events.{index}", f"event {event.name!r}", event.multiplier) for index, event in enumerate(fleet.events)]
    for field, what, multiplier in days:
        for group in fleet.groups:
            wanted = sizing.instances_wanted(fleet, group, multiplier)
            if wanted > group.maximum:
                yield Violation(
                    field,
                    f"{what} needs {wanted} {group.instance_type} a cell, one zone's loss included, but the group's "
                    f"maximum is {group.maximum}: raise it, or the number of cells",
                    "infra/fleet/sizing.py; AWS Builders' Library, Static stability using Availability Zones",
                )


def _minimum_carries_the_quietest_hour(fleet: FleetDescription) -> Iterator[Violation]:
    if not _can_be_sized(fleet):
        return
    share = min((block.share for block in fleet.traffic.forecast), default=1.0)
    when = "the forecast's quietest hour" if fleet.traffic.forecast else "an ordinary day (there is no forecast)"
    for index, group in enumerate(fleet.groups):
        needed = sizing.floor_for(fleet, group, share)
        if group.minimum < needed <= group.maximum:
            yield Violation(
                f"groups.{index}.minimum",
                f"{group.minimum} is below the {needed} {group.instance_type} a cell that {when} needs, a zone's loss "
                f"and surge.absorb included: write {needed}",
                "infra/fleet/sizing.py, floor_for; AWS Builders' Library, Static stability using Availability Zones",
            )


def _surge_can_be_kept(fleet: FleetDescription) -> Iterator[Violation]:
    if not _can_be_sized(fleet):
        return
    surge, source = fleet.surge, "infra/fleet/sizing.py, surge_instances and surge_recovery_seconds"
    for group in fleet.groups:
        needed, takes = sizing.surge_instances(fleet, group), sizing.surge_recovery_seconds(fleet, group)
        if needed > group.maximum:
            yield Violation(
                "surge.times",
                f"{surge.times:g} times the load needs {needed} {group.instance_type} a cell, but the group's maximum "
                f"is {group.maximum}: promise less, raise it, or add cells",
                source,
            )
        if takes > surge.recover:
            yield Violation(
                "surge.recover",
                f"{surge.recover} s, but {group.instance_type} in this fleet needs {takes:.0f} s (warm_start_seconds "
                f"{fleet.warm_start_seconds} of them): promise that, or start faster",
                source,
            )


def _forecast_can_be_scheduled(fleet: FleetDescription) -> Iterator[Violation]:
    begun = [(day, block.begins) for block in fleet.traffic.forecast for day in block.days]
    if len(set(begun)) < len(begun):
        yield Violation(
            "traffic.forecast", "two blocks begin at the same time of the same day", "infra/fleet/calendar.py"
        )
    actions = len(fleet.traffic.forecast) * (len(fleet.events) + 1) + 2 * len(fleet.events)
    if actions > SCHEDULED_ACTIONS:
        yield Violation(
            "traffic.forecast",
            f"{len(fleet.traffic.forecast)} blocks around {len(fleet.events)} events make {actions} scheduled "
            f"actions a group; {SCHEDULED_ACTIONS} are allowed: use fewer blocks",
            "Amazon EC2 Auto Scaling quotas, scheduled actions per Auto Scaling group",
        )


def _events_leave_time_to_boot(fleet: FleetDescription) -> Iterator[Violation]:
    for index, event in enumerate(fleet.events):
        if event.lead_minutes * 60 < 2 * fleet.boot_seconds:
            yield Violation(
                f"events.{index}.lead_minutes",
                f"{event.lead_minutes} is less than two boots of {fleet.boot_seconds} s: the second is for what fails",
                "infra/fleet/scaling.py: capacity stands ready before an event",
            )


def _shared_cache_has_room(fleet: FleetDescription) -> Iterator[Violation]:
    cache = fleet.shared_cache
    if not cache.enabled:
        return
    zones = len(fleet.availability_zones)
    if cache.nodes > zones:
        yield Violation(
            "shared_cache.nodes",
            f"{cache.nodes} nodes over {zones} zones: a second one in a zone is lost with the first; use {zones}",
            "Amazon ElastiCache user guide, Minimizing downtime with Multi-AZ",
        )
    busiest = sizing.cell_rate(fleet, sizing.peak_multiplier(fleet))
    needed = busiest * shared_cache.KEPT_SECONDS * shared_cache.BYTES_AN_ENTRY
    if needed > cache.usable_bytes:
        yield Violation(
            "shared_cache.node_type",
            f"{cache.node_type} has {cache.usable_bytes / 2**30:.1f} GiB for plans, and a cell's busiest quarter of an "
            f"hour may bring {needed / 2**30:.1f}: use a larger one",
            "infra/fleet/shared_cache.py",
        )


CAPACITY_RULES: tuple[Rule, ...] = (
    _slo_can_be_met,
    _ordinary_days_and_events_have_capacity,
    _minimum_carries_the_quietest_hour,
    _surge_can_be_kept,
    _forecast_can_be_scheduled,
    _events_leave_time_to_boot,
    _shared_cache_has_room,
)
