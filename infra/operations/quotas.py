"""The quotas that a fleet needs and those that the account grants, for the fleet's maximum over all cells.

Codes, names and defaults are those of AWS's documentation: the quota tables of Amazon EC2, Amazon EBS, Amazon VPC,
Amazon ElastiCache and Amazon CloudWatch (AWS General Reference) and "Quotas for your Application (Network) Load
Balancers" (Elastic Load Balancing user guides), read on 2026-11-22. Accounts may start below a default: what the
account says counts. What EC2 gives at once is here, too: RunInstances' resource tokens are a bucket of 1,000 for an
account and region that fills by 2 a second, and StartInstances, which a warm pool uses, has one like it (Amazon EC2
developer guide, Request throttling for the Amazon EC2 API).
"""

import math
from collections.abc import Iterator
from dataclasses import dataclass
from datetime import timedelta
from functools import cache
from typing import Any

from infra.fleet import addresses, sizing
from infra.fleet.alarms import cell_alarms
from infra.fleet.calendar import Calendar, reserved
from infra.fleet.cost import volume_gib
from infra.fleet.images import images
from infra.fleet.replacement import FAST, stops
from infra.fleet.scaling import ScalingLaw
from infra.fleet.settings import FleetSettings

GIB_A_TIB = 1024


@dataclass(frozen=True)
class Need:
    """The fleet's need of one quota, which Service Quotas knows by `code`, or not at all where that is None."""

    service: str  # the service code of Service Quotas
    code: str | None
    name: str
    amount: float
    arithmetic: str
    default: float  # of a new account, as documented


@dataclass(frozen=True)
class Grant:
    service: str
    code: str
    name: str
    value: float


def needs(settings: FleetSettings) -> Iterator[Need]:
    """Yield every quota that a fleet of this size can exceed."""
    yield from _instance_needs(settings)
    yield from _balancer_needs(settings)
    yield from _network_needs(settings)
    if settings.shared_cache.enabled:
        nodes = settings.shared_cache.nodes * settings.cells
        said = f"{settings.cells} cells x {settings.shared_cache.nodes} of the shared cache"
        yield Need("elasticache", "L-DFE45DF3", "Nodes per Region", nodes, said, 300)
    laws = [ScalingLaw.for_group(settings, group) for group in settings.groups]
    alarms = settings.cells * (len(cell_alarms(settings)) + sum(len(law.steps) + 1 + len(stops(law)) for law in laws))
    # The CloudWatch user guide limits alarms, but Service Quotas does not list that quota.
    yield Need("monitoring", None, "Alarms per Region", alarms, f"{alarms // settings.cells} a cell", 5000)


def _instance_needs(settings: FleetSettings) -> Iterator[Need]:
    """Yield what instances need.

    Reservations count toward vCPU quotas even where no instance fills them. That is so in a zone that is lost (Amazon
    EC2 user guide, Capacity Reservations, limitations).
    """
    cells = settings.cells
    for chips, code, name, default in (
        (("inf2",), "L-1945791B", "Running On-Demand Inf instances", 0),
        (("trn1", "trn2"), "L-2C3B7624", "Running On-Demand Trn instances", 0),
        (("cpu",), "L-1216C47A", "Running On-Demand Standard (A, C, D, H, I, M, R, T, Z) instances", 5),
    ):
        groups = [group for group in settings.groups if group.chip in chips]
        unfilled = [max((each.instances for each in reserved(settings, group)), default=0) for group in groups]
        both = FAST.max_healthy_percent  # releases, while a cell at its ordinary floor goes back to the one before
        counted = [max(group.maximum, math.ceil(sizing.floor_for(settings, group) * both / 100)) for group in groups]
        baked = [image.baked_on.instance.vcpus for image in images(settings) if image.baked_on in groups]
        each = zip(groups, counted, unfilled, strict=True)
        vcpus = sum((count + idle) * group.instance.vcpus for group, count, idle in each) * cells + sum(baked)
        if vcpus:
            kinds = [group.instance_type for group in groups]
            said = " + ".join(f"{cells} cells x {count} {kind}" for count, kind in zip(counted, kinds, strict=True))
            said += f", and {sum(unfilled)} a cell that a lost zone leaves reserved" if any(unfilled) else ""
            said += ", and a bake" if baked else ""
            yield Need("ec2", code, name, vcpus, f"vCPUs of {said}", default)
    tib = math.ceil(sum(group.maximum * volume_gib(settings, group) for group in settings.groups) * cells / GIB_A_TIB)
    disks = f"root volumes of {_hosts(settings)} instances, the warm pool's too"
    yield Need("ebs", "L-7A658B76", "Storage for General Purpose SSD (gp3) volumes, in TiB", tib, disks, 50)


def _balancer_needs(settings: FleetSettings) -> Iterator[Need]:
    service, cells = "elasticloadbalancing", settings.cells
    yield Need(service, "L-53DA6B97", "Application Load Balancers per Region", cells, "one a cell", 50)
    largest = sum(group.maximum for group in settings.groups)
    yield Need(service, "L-7E6692B2", "Targets per Application Load Balancer", largest, "instances of one cell", 1000)
    if settings.access.privatelink:
        front = "one a cell, for PrivateLink"
        yield Need(service, "L-69A177A2", "Network Load Balancers per Region", cells, front, 50)
    units = sizing.reserved_units(settings, sizing.peak_multiplier(settings)) * cells
    if units:
        name = "Reserved Application Load Balancer Capacity Units (LCU) per Region"
        yield Need(service, "L-8A66D0E6", name, units, "reserved while the largest event lasts", 0)


def _network_needs(settings: FleetSettings) -> Iterator[Need]:
    cells, zones, hosts = settings.cells, len(settings.availability_zones), _hosts(settings)
    endpoints = len(settings.interface_services)
    balancers = cells * zones * (addresses.LOAD_BALANCER_ADDRESSES + settings.access.privatelink)
    interfaces = hosts + balancers + endpoints * zones
    said = f"{hosts} instances, {balancers} of load balancers, {endpoints * zones} of endpoints"
    yield Need("vpc", "L-DF5E4CA3", "Network interfaces per Region", interfaces, said, 5000)
    yield Need("vpc", "L-F678F1CE", "VPCs per Region", 2, "the fleet's and the image build's", 5)
    reached = "AWS services that hosts and canaries reach"
    yield Need("vpc", "L-29B6F2EB", "Interface VPC endpoints per VPC", endpoints, reached, 50)
    rules = sum(len(caller.cidrs) for caller in settings.callers) + 2
    name = "Inbound or outbound rules per security group"
    yield Need("vpc", "L-0EA8095F", name, rules, "networks of callers", 60)


def _hosts(settings: FleetSettings) -> int:
    return sum(group.maximum for group in settings.groups) * settings.cells


def granted(need: Need, quotas: Any) -> Grant | None:
    """Return the account's quota for `need`, or None where Service Quotas does not list it.

    `quotas` is the boto3 client of Service Quotas.
    """
    if need.code is None:
        return None
    return next((grant for grant in _listed(quotas, need.service) if grant.code == need.code), None)


@cache
def _listed(quotas: Any, service: str) -> tuple[Grant, ...]:
    """Return the quotas granted to the account, followed by the defaults of every account."""
    grants: list[Grant] = []
    for operation in ("list_service_quotas", "list_aws_default_service_quotas"):
        for page in quotas.get_paginator(operation).paginate(ServiceCode=service):
            grants += [
                Grant(service, each["QuotaCode"], each["QuotaName"], float(each["Value"])) for each in page["Quotas"]
            ]
    return tuple(grants)


def request(grant: Grant, amount: float) -> str:
    return (
        f"aws service-quotas request-service-quota-increase --service-code {grant.service} --quota-code {grant.code} "
        f"--desired-value {amount:g}"
    )


AT_ONCE, A_SECOND = 1000, 2


@dataclass(frozen=True)
class Rush:
    """Instances of the whole fleet that start at one moment, and the seconds in which they must have been asked for."""

    what: str
    instances: int
    within: float

    @property
    def seconds(self) -> float:
        return max(0.0, self.instances - AT_ONCE) / A_SECOND

    @property
    def fits(self) -> bool:
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
        # The second boot is for what fails (rules.py).
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
