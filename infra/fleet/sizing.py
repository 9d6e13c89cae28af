"""The arithmetic of how many instances a load needs, for rules, scaling law and cost. Rates are in plans per second."""

import math

from infra.fleet.demand import ServiceTime
from infra.fleet.description import FleetDescription
from infra.fleet.network_parts import Caller
from infra.fleet.parts import Group
from infra.fleet.shards import fullest_share, shards

# This bounds a replica's utilisation whatever the queue's arithmetic allows: load balancers are not ideal.
HIGHEST_UTILISATION = 0.7
# Below this the model cannot meet the SLO at a price anyone would pay; rules.py refuses it.
LOWEST_UTILISATION = 0.2
# Busier than this, queues grow without bound in a load that varies by some percent below the minute: what a group does
# at most, with no deadline missed. For surges alone; every day is sized for target_utilisation.
FULL_UTILISATION = 0.93


def replicas_per_instance(group: Group, tensor_parallel: int) -> int:
    """Return the replicas on one instance.

    Each spans `tensor_parallel` NeuronCores, or one physical core where there are none.
    """
    return group.instance.cores // (1 if group.engine == "torch" else tensor_parallel)


def service_time(settings: FleetDescription, group: Group) -> ServiceTime:
    """Return how long a replica of `group` is busy with a plan: the group's own figure, else the model's."""
    return group.service_time or settings.model.service_time


def target_utilisation(settings: FleetDescription, group: Group) -> float:
    """Return the utilisation of a replica at which the p99 stays inside the SLO; it may be below LOWEST_UTILISATION.

    A host's k replicas at batch 1 share the gateway's line: an M/G/k queue whose wait has a tail of P(wait > t) <=
    exp(-t k (1 - u) / S) for service times that vary as much as exponential ones (Kingman's heavy-traffic bound with a
    squared coefficient of variation of 1). The wait that 1% of requests exceed, plus the p99 of the service time
    itself, must fit the SLO:

        S ln(100) / (k (1 - u)) + S99 <= p99    so    u = 1 - S ln(100) / (k (p99 - S99))

    The balancer's least-outstanding routing does better than this queue, which chooses hosts blindly.
    """
    time = service_time(settings, group)
    replicas = replicas_per_instance(group, settings.model.tensor_parallel)
    room = replicas * (settings.slo.p99_ms - time.p99_ms)
    if room <= 0:
        return 0.0
    return min(HIGHEST_UTILISATION, max(0.0, 1 - time.mean_ms * math.log(100) / room))


def full_rate(settings: FleetDescription, group: Group) -> float:
    """Return the plans per second of one instance of `group` that is never idle."""
    return replicas_per_instance(group, settings.model.tensor_parallel) * 1000 / service_time(settings, group).mean_ms


def full_host_rate(settings: FleetDescription, caller: Caller, group: Group) -> float:
    """Return the requests a second that a host which is never idle gets from `caller`, by its share of its cells.

    Its replicas are busy with the part that the model plans; the reader plans the rest by choice.
    """
    if caller.share is None:
        return 0.0
    of_its_cell = caller.share / len(shards(settings)[caller.name]) / fullest_share(settings)
    return full_rate(settings, group) / settings.model.work_share * min(1.0, of_its_cell)


def instance_rate(settings: FleetDescription, group: Group) -> float:
    """Return the plans per second that one instance of `group` carries at the target utilisation."""
    return target_utilisation(settings, group) * full_rate(settings, group)


def fleet_rate(settings: FleetDescription, multiplier: float = 1.0) -> float:
    """Return the fleet's load in plans per second, at `multiplier` times the ordinary traffic."""
    return settings.traffic.plans_per_minute * multiplier / 60


def cell_rate(settings: FleetDescription, multiplier: float = 1.0) -> float:
    """Return the load of the fullest cell in plans per second; cells are alike, so each is sized for it."""
    return fleet_rate(settings, multiplier) * fullest_share(settings)


def group_rate(settings: FleetDescription, group: Group, multiplier: float = 1.0) -> float:
    """Return what one cell's `group` has to plan by the model, in plans per second.

    It is the fullest cell's, less the reader's plans by choice. Groups share it by their greatest permitted capacity.

    The balancer sends each request to the host with the fewest outstanding, so a slower host gets fewer. Nothing is
    counted on from a group that stands in: whatever it carries is left for others to lack.
    """

    def weight(of: Group) -> float:
        return 0.0 if of.stands_in else of.maximum * full_rate(settings, of)

    all_groups = sum(weight(each) for each in settings.groups) or 1.0  # a rule refuses a fleet with no weight at all
    return cell_rate(settings, multiplier) * settings.model.work_share * weight(group) / all_groups


def instances_for(settings: FleetDescription, group: Group, rate: float) -> int:
    """Return the instances of `group` that carry `rate` plans per second inside the SLO, with every zone alive."""
    return math.ceil(rate / instance_rate(settings, group) - 1e-9)


def with_one_zone_lost(settings: FleetDescription, instances: int) -> int:
    """Return the instances to run so that `instances` are left when one zone is lost, without any launch in that hour.

    Rounded up to a multiple of the zones, because Auto Scaling spreads evenly and the fullest zone may be the one lost.
    Source: AWS Builders' Library, Static stability using Availability Zones.
    """
    zones = len(settings.availability_zones)
    return math.ceil(instances / (zones - 1)) * zones


def instances_wanted(settings: FleetDescription, group: Group, multiplier: float = 1.0) -> int:
    """Return the instances of one cell's `group` for `multiplier` times the ordinary traffic, with one zone lost."""
    return with_one_zone_lost(settings, instances_for(settings, group, group_rate(settings, group, multiplier)))


def floor_for(settings: FleetDescription, group: Group, share: float = 1.0) -> int:
    """Return the minimum of one cell's `group` while `share` of the ordinary peak is forecast.

    Enough for it with a zone lost, and enough to plan `surge.absorb` times as much at full use before anything new can
    be in service; a multiple of the zones, over which Auto Scaling spreads evenly.
    """
    zones = len(settings.availability_zones)
    absorbing = _at_full_use(settings, group, settings.surge.absorb * share)
    return max(instances_wanted(settings, group, share), math.ceil(absorbing / zones) * zones)


def surge_instances(settings: FleetDescription, group: Group) -> int:
    """Return the instances of one cell's `group` that carry the promised surge above the ordinary peak, at full use."""
    return _at_full_use(settings, group, settings.surge.times)


def _at_full_use(settings: FleetDescription, group: Group, multiplier: float) -> int:
    rate = group_rate(settings, group, multiplier)
    return math.ceil(rate / (FULL_UTILISATION * full_rate(settings, group)) - 1e-9)


# From a surge's first second to the law's: half a period of averaging, the report (every 10 s), the agent's flush and
# CloudWatch's extraction (15 s, stated: no document gives one), and one more period because alarms want two points.
READING_SECONDS = 35
# A started host passes two health checks, 5 seconds apart, before it receives requests.
HEALTH_SECONDS = 10


def surge_recovery_seconds(settings: FleetDescription, group: Group) -> float:
    """Return the seconds from the start of the promised surge until instances that carry it are in service.

    The load grows linearly within `surge.within` seconds. The law aims at the target utilisation, so it asks for enough
    before all of the surge is there: as soon as target / FULL_UTILISATION of it is.
    """
    surge = settings.surge
    enough = surge.times * target_utilisation(settings, group) / FULL_UTILISATION
    grown = max(0.0, (enough - 1) / (surge.times - 1)) if surge.times > 1 else 0.0
    return surge.within * grown + READING_SECONDS + settings.warm_start_seconds + HEALTH_SECONDS


# Request and answer with headers and TLS framing, stated: a plan is some 700 bytes, a question 100.
BYTES_PER_PLAN = 2500
# One load balancer capacity unit moves a gigabyte an hour; the other dimensions are slack with kept-alive connections.
BYTES_PER_UNIT_HOUR = 1e9
# This is the smallest reservation. Source: Elastic Load Balancing user guide, LCU reservation.
LEAST_RESERVED_UNITS = 100


def balancer_units(settings: FleetDescription, multiplier: float = 1.0) -> int:
    """Return the load balancer capacity units (LCU) that one cell's traffic takes."""
    return math.ceil(cell_rate(settings, multiplier) * BYTES_PER_PLAN * 3600 / BYTES_PER_UNIT_HOUR)


def reserved_units(settings: FleetDescription, multiplier: float) -> int:
    """Return the units to reserve in each cell during an event, or 0 for none.

    The event has `multiplier` times the ordinary traffic.

    Outside events nothing is reserved: 600 units all year would cost some $42,000, and balancers follow a day's load.
    """
    if not settings.load_balancer.reserve_capacity or multiplier <= 1:
        return 0
    return max(LEAST_RESERVED_UNITS, balancer_units(settings, multiplier))


def peak_multiplier(settings: FleetDescription) -> float:
    """Return the greatest multiple of ordinary traffic that is scheduled."""
    return max((event.multiplier for event in settings.events), default=1.0)
