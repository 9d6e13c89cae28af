"""The names of a cell that other stacks may know, as one parameter that the cell writes and they read at deploy time.

An export that another stack imports can neither go nor change: no cell could be retired, no balancer replaced.
"""

from __future__ import annotations

from dataclasses import dataclass

from aws_cdk import Fn
from aws_cdk import aws_ssm as ssm
from constructs import Construct

from infra.fleet.parts import Group
from infra.fleet.settings import FleetSettings


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
    """Return an Auto Scaling group's name in AWS."""
    return f"peakplan-{settings.name}-{cell}-{group.chip}"


def publish(scope: Construct, settings: FleetSettings, names: CellNames) -> None:
    """Write a cell's names into its parameter."""
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
