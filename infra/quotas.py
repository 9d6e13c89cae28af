"""The quotas that a fleet needs and those that the account grants, for the fleet's maximum over all cells."""

from __future__ import annotations

import math
import re
from collections.abc import Iterator
from dataclasses import dataclass
from functools import cache
from typing import Any

from infra.fleet import addresses, sizing
from infra.fleet.alarms import cell_alarms
from infra.fleet.cost import volume_gib
from infra.fleet.scaling import ScalingLaw
from infra.fleet.settings import FleetSettings

GIB_A_TIB = 1024


@dataclass(frozen=True)
class Need:
    """The fleet's need of one quota. `default` is the initial value in AWS's documentation, if it gives one."""

    service: str  # the service code of Service Quotas
    quota: str  # a pattern of the quota's name there
    amount: float
    arithmetic: str
    default: float | None


@dataclass(frozen=True)
class Grant:
    """One quota as the account has it."""

    service: str
    code: str
    name: str
    value: float


def needs(settings: FleetSettings) -> Iterator[Need]:
    """Yield every quota that a fleet of this size can exceed."""
    cells, zones = settings.cells, len(settings.availability_zones)
    for chip, name, default in (("inf2", "Inf", 0), ("trn1", "Trn", 0), ("cpu", r"Standard \(.*\)", 5)):
        groups = [group for group in settings.groups if group.chip == chip]
        vcpus = sum(group.maximum * group.instance.vcpus for group in groups) * cells
        if vcpus:
            said = " + ".join(f"{cells} cells x {group.maximum} {group.instance_type}" for group in groups)
            yield Need("ec2", rf"^Running On-Demand {name} instances$", vcpus, f"vCPUs of {said}", default)
    hosts = sum(group.maximum for group in settings.groups) * cells
    gib = sum(group.maximum * volume_gib(group) for group in settings.groups) * cells
    disks = f"root volumes of {hosts} instances, the warm pool's too"
    yield Need("ebs", r"Storage for General Purpose SSD \(gp3\) volumes", math.ceil(gib / GIB_A_TIB), disks, 50)
    yield Need("elasticloadbalancing", r"^Application Load Balancers per Region$", cells, "one a cell", 50)
    largest = sum(group.maximum for group in settings.groups)
    yield Need(
        "elasticloadbalancing", r"^Targets per Application Load Balancer$", largest, "instances of one cell", 1000
    )
    if settings.access.privatelink:
        front = "one a cell, for PrivateLink"
        yield Need("elasticloadbalancing", r"^Network Load Balancers per Region$", cells, front, 50)
    units = sizing.reserved_units(settings, sizing.peak_multiplier(settings)) * cells
    if units:
        reserved = "reserved while the largest event lasts"
        pattern = r"Reserved Application Load Balancer Capacity Units|Application Load Balancer.*LCU"
        yield Need("elasticloadbalancing", pattern, units, reserved, 0)
    endpoints = len(settings.network.interface_endpoints)
    balancers = cells * zones * (addresses.LOAD_BALANCER_ADDRESSES + settings.access.privatelink)
    interfaces = hosts + balancers + endpoints * zones
    said = f"{hosts} instances, {balancers} of load balancers, {endpoints * zones} of endpoints"
    yield Need("vpc", r"^Network interfaces per Region$", interfaces, said, 5000)
    yield Need("vpc", r"^VPCs per Region$", 2, "the fleet's and the image build's", 5)
    yield Need("vpc", r"^Interface VPC endpoints per VPC$", endpoints, "AWS services that hosts reach", 50)
    rules = sum(len(caller.cidrs) for caller in settings.callers) + 2
    yield Need("vpc", r"^Inbound or outbound rules per security group$", rules, "networks of callers", 60)
    laws = [ScalingLaw.for_group(settings, group) for group in settings.groups]
    alarms = cells * (len(cell_alarms(settings)) + sum(len(law.steps) + 1 for law in laws))
    yield Need("monitoring", r"(?i)^number of alarms|^alarms", alarms, f"{alarms // cells} a cell", 5000)


def granted(need: Need, quotas: Any) -> Grant | None:
    """Return the account's quota for `need`, or None where Service Quotas does not list it.

    `quotas` is the boto3 client of Service Quotas.
    """
    found = [grant for grant in _listed(quotas, need.service) if re.search(need.quota, grant.name)]
    return found[0] if found else None


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
    """Return the command that asks AWS for a higher quota."""
    return (
        f"aws service-quotas request-service-quota-increase --service-code {grant.service} --quota-code {grant.code} "
        f"--desired-value {amount:g}"
    )
