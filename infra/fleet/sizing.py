"""How many instances a load needs: the arithmetic that rules, scaling law and cost share. Rates are plans a second."""

from __future__ import annotations

import math
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from infra.fleet.parts import Group
    from infra.fleet.settings import FleetSettings

# What a replica may be busy at most, whatever the queue's arithmetic allows: load balancers are not ideal.
HIGHEST_UTILISATION = 0.7
# Below this the model cannot meet the SLO at a price anyone would pay; rules.py refuses it.
LOWEST_UTILISATION = 0.2


def replicas_per_instance(group: Group, tensor_parallel: int) -> int:
    """Replicas on one instance: each spans `tensor_parallel` NeuronCores."""
    return group.instance.cores // tensor_parallel


def target_utilisation(settings: FleetSettings) -> float:
    """The share of time a replica may be busy so that the p99 stays inside the SLO; may be below LOWEST_UTILISATION.

    A replica at batch 1 is an M/G/1 queue whose wait has a tail of P(wait > t) <= exp(-t (1 - u) / S) for service times
    that vary as much as exponential ones (Kingman's heavy-traffic bound with a squared coefficient of variation of 1).
    The wait that 1% of requests exceed, plus the p99 of the service time itself, must fit the SLO:

        S ln(100) / (1 - u) + S99 <= p99    so    u = 1 - S ln(100) / (p99 - S99)

    The balancer's least-outstanding routing does better than this queue, which chooses replicas blindly.
    """
    service_time = settings.model.service_time
    room = settings.slo.p99_ms - service_time.p99_ms
    if room <= 0:
        return 0.0
    return min(HIGHEST_UTILISATION, max(0.0, 1 - service_time.mean_ms * math.log(100) / room))


def instance_rate(settings: FleetSettings, group: Group) -> float:
    """Plans a second that one instance of `group` carries at the target utilisation."""
    replicas = replicas_per_instance(group, settings.model.tensor_parallel)
    return replicas * target_utilisation(settings) * 1000 / settings.model.service_time.mean_ms


def fleet_rate(settings: FleetSettings, multiplier: float = 1.0) -> float:
    """Plans a second that the fleet is asked, at `multiplier` times the ordinary traffic."""
    return settings.traffic.plans_per_minute * multiplier / 60


def group_rate(settings: FleetSettings, group: Group, multiplier: float = 1.0) -> float:
    """Plans a second that falls on one cell's `group`: cells share evenly, groups by the replicas they may have."""

    def weight(of: Group) -> int:
        return of.maximum * replicas_per_instance(of, settings.model.tensor_parallel)

    share = weight(group) / sum(weight(each) for each in settings.groups)
    return fleet_rate(settings, multiplier) / settings.cells * share


def instances_for(settings: FleetSettings, group: Group, rate: float) -> int:
    """Instances of `group` that carry `rate` plans a second inside the SLO, with every zone alive."""
    return math.ceil(rate / instance_rate(settings, group) - 1e-9)


def with_one_zone_lost(settings: FleetSettings, instances: int) -> int:
    """Instances to run so that `instances` are left when one zone is lost: nothing must be launched in that hour.

    Rounded up to a multiple of the zones, because Auto Scaling spreads evenly and the fullest zone may be the one lost.
    Source: AWS Builders' Library, Static stability using Availability Zones.
    """
    zones = len(settings.availability_zones)
    return math.ceil(instances / (zones - 1)) * zones


def instances_wanted(settings: FleetSettings, group: Group, multiplier: float = 1.0) -> int:
    """Instances of one cell's `group` for `multiplier` times the ordinary traffic, one zone's loss included."""
    return with_one_zone_lost(settings, instances_for(settings, group, group_rate(settings, group, multiplier)))


# Request and answer with headers and TLS framing, stated: a plan is some 700 bytes, a question 100.
BYTES_PER_PLAN = 2500
# One load balancer capacity unit moves a gigabyte an hour; the other dimensions are slack with kept-alive connections.
BYTES_PER_UNIT_HOUR = 1e9
# The least that can be reserved. Source: Elastic Load Balancing user guide, LCU reservation.
LEAST_RESERVED_UNITS = 100


def balancer_units(settings: FleetSettings, multiplier: float = 1.0) -> int:
    """Load balancer capacity units (LCU) that one cell's traffic takes."""
    rate = fleet_rate(settings, multiplier) / settings.cells
    return math.ceil(rate * BYTES_PER_PLAN * 3600 / BYTES_PER_UNIT_HOUR)


def reserved_units(settings: FleetSettings, multiplier: float) -> int:
    """Units to reserve in each cell while an event of `multiplier` times the ordinary traffic lasts; 0: no reservation.

    Outside events nothing is reserved: 600 units all year would cost some $42,000, and balancers follow a day's load.
    """
    if not settings.load_balancer.reserve_capacity or multiplier <= 1:
        return 0
    return max(LEAST_RESERVED_UNITS, balancer_units(settings, multiplier))


def peak_multiplier(settings: FleetSettings) -> float:
    """The biggest multiple of ordinary traffic that is scheduled."""
    return max((event.multiplier for event in settings.events), default=1.0)
