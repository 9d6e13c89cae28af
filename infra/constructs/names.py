"""The names of a cell that other stacks may know, and the CloudWatch metrics behind its readings.

The names are one parameter, which the cell writes and other stacks read at deploy time.

An export that another stack imports can neither go nor change: no cell could be retired, no balancer replaced.
"""

import re
from collections.abc import Mapping
from dataclasses import dataclass
from itertools import product

from aws_cdk import Fn
from aws_cdk import aws_cloudwatch as cloudwatch
from aws_cdk import aws_ssm as ssm
from constructs import Construct

from infra.fleet.alarm_kinds import Reading
from infra.fleet.parts import Group
from infra.fleet.settings import FleetSettings
from infra.fleet.synthetic_plans import canary_name


@dataclass(frozen=True)
class CellNames:
    """The names under which AWS publishes one cell's metrics, and those by which it is reached.

    At synthesis they may be tokens of the stack that uses them.
    """

    cell: str  # cell-1 ...
    load_balancer: str  # its full name, app/NAME/ID
    target_groups: tuple[str, ...]  # their full names, targetgroup/NAME/ID
    auto_scaling_groups: tuple[str, ...]  # in the order of the settings' groups
    network_load_balancer: str = ""  # of PrivateLink: its full name, net/NAME/ID
    network_target_group: str = ""
    cache_nodes: tuple[str, ...] = ()  # of the shared cache
    log_group: str = ""  # of its hosts
    address: str = ""  # the load balancer's own DNS name
    zone_id: str = ""  # of that name
    security_group: str = ""  # of the load balancer


def group_name(settings: FleetSettings, cell: str, group: Group) -> str:
    return f"peakplan-{settings.name}-{cell}-{group.chip}"


def camel(name: str) -> str:
    return "".join(word.capitalize() for word in name.split("-"))


def publish(scope: Construct, settings: FleetSettings, names: CellNames) -> None:
    (target_group,), reached = names.target_groups, (names.address, names.zone_id, names.security_group)
    front = (names.network_load_balancer, names.network_target_group)
    written = (names.load_balancer, target_group, *front, names.log_group, *reached, *names.cache_nodes)
    ssm.StringParameter(
        scope,
        "Names",
        parameter_name=_parameter(settings, names.cell),
        string_value=Fn.join(",", list(written)),
        description=f"What other stacks know of {names.cell}: balancers, logs, address, cache",
    )


def published(scope: Construct, settings: FleetSettings, cell: str) -> CellNames:
    """Return a cell's names for another stack, from the cell's parameter."""
    read = Fn.split(",", ssm.StringParameter.value_for_string_parameter(scope, _parameter(settings, cell)))
    nodes = settings.shared_cache.nodes if settings.shared_cache.enabled else 0
    balancer, target_group, front, front_group, log_group, *others = (Fn.select(n, read) for n in range(8 + nodes))
    address, zone_id, security_group, *cache_nodes = others
    groups = tuple(group_name(settings, cell, group) for group in settings.groups)
    fronts, reached = (front, front_group), (address, zone_id, security_group)
    return CellNames(cell, balancer, (target_group,), groups, *fronts, tuple(cache_nodes), log_group, *reached)


def _parameter(settings: FleetSettings, cell: str) -> str:
    return f"/peakplan/{settings.name}/{cell}/names"


@dataclass(frozen=True)
class NamedMetric:
    id: str
    namespace: str
    name: str
    dimensions: tuple[tuple[str, str], ...]
    statistic: str


def query(metric: NamedMetric, period: int, *, returned: bool) -> cloudwatch.CfnAlarm.MetricDataQueryProperty:
    kind = cloudwatch.CfnAlarm
    dimensions = [kind.DimensionProperty(name=name, value=value) for name, value in metric.dimensions]
    asked = kind.MetricProperty(namespace=metric.namespace, metric_name=metric.name, dimensions=dimensions)
    stat = kind.MetricStatProperty(metric=asked, period=period, stat=metric.statistic)
    return kind.MetricDataQueryProperty(id=metric.id, return_data=returned, metric_stat=stat)


def dimension_values(fleet: str, names: CellNames) -> dict[str, tuple[str, ...]]:
    return {
        "Fleet": (fleet,),
        "Cell": (names.cell,),
        "PlannedIn": (names.cell,),
        "LoadBalancer": (names.load_balancer,),
        "TargetGroup": names.target_groups,
        "AutoScalingGroupName": names.auto_scaling_groups,
        "CacheClusterId": names.cache_nodes,
        "ScheduleGroup": (f"peakplan-{fleet}-{names.cell}",),
        "CanaryName": (canary_name(fleet, names.cell),),
    }


def expand(identifier: str, reading: Reading, fleet: str, names: CellNames) -> list[NamedMetric]:
    """Return the metrics whose sum is `reading`: one for each target group or Auto Scaling group that it covers."""
    known = dimension_values(fleet, names) | {name: (value,) for name, value in reading.fixed}
    if reading.source == "network-balancer":
        known |= {"LoadBalancer": (names.network_load_balancer,), "TargetGroup": (names.network_target_group,)}
    combinations = list(product(*(known[name] for name in reading.dimensions)))
    several = len(combinations) > 1
    return [
        NamedMetric(
            id=f"{identifier}{number}" if several else identifier,
            namespace=reading.namespace,
            name=reading.published_name,
            dimensions=tuple(zip(reading.dimensions, values, strict=True)),
            statistic=reading.statistic,
        )
        for number, values in enumerate(combinations, start=1)
    ]


def expand_all(
    readings: Mapping[str, Reading], expression: str, fleet: str, names: CellNames
) -> tuple[list[NamedMetric], str]:
    """Return every metric behind the readings, and the expression over these metrics' ids."""
    parts = {identifier: expand(identifier, reading, fleet, names) for identifier, reading in readings.items()}

    def term(match: re.Match[str]) -> str:
        identifier = match.group()
        if identifier not in parts:
            return identifier  # the identifier is a function of metric math
        filled = "FILL({}, 0)" if readings[identifier].none_is_zero else "{}"
        terms = [filled.format(metric.id) for metric in parts[identifier]]
        return terms[0] if len(terms) == 1 else f"({' + '.join(terms)})"

    return [metric for each in parts.values() for metric in each], re.sub(r"[A-Za-z_]\w*", term, expression)
