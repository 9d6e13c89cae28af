"""The CloudWatch metrics behind a cell's reading, as infra/fleet names it. This module does not depend on aws_cdk."""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass
from itertools import product

from infra.constructs.names import CellNames
from infra.fleet.alarm_kinds import Reading
from infra.fleet.synthetic_plans import canary_name


@dataclass(frozen=True)
class NamedMetric:
    """One CloudWatch metric under an id that metric math can use."""

    id: str
    namespace: str
    name: str
    dimensions: tuple[tuple[str, str], ...]
    statistic: str


def dimension_values(fleet: str, names: CellNames) -> dict[str, tuple[str, ...]]:
    """Return the values of the dimensions of a cell's metrics."""
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
