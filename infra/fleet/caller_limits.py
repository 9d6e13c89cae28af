"""Who calls, as the hosts are told, and the limits that each caller has there.

A cell's load balancer alone reaches its hosts, and what it has verified names the caller: the client certificate's CN,
or a claim of the token. Behind PrivateLink nothing else could: the network load balancer's targets see its addresses,
proxy protocol is the one way to pass on the callers', and an Application Load Balancer, which is that target, does not
read it. Source: Elastic Load Balancing, Network Load Balancers, "Edit target group attributes" (client IP preservation,
proxy protocol), and "Use an Application Load Balancer as a target of a Network Load Balancer".
"""

from __future__ import annotations

from collections.abc import Iterator

from infra.fleet import sizing
from infra.fleet.description import FleetDescription
from infra.fleet.network_parts import Caller
from infra.fleet.parts import Group
from infra.fleet.shards import fullest_share, shards
from infra.fleet.violations import Rule, Violation

# What callers by PrivateLink are called in logs where nothing names them: the network load balancers' own network.
BY_PRIVATELINK = "privatelink"
_SOURCES = {"none": "forwarded", "mtls": "certificate", "jwt": "token"}


def caller_environment(settings: FleetDescription) -> dict[str, str]:
    """Return the service's settings by which a host knows its callers and their limits."""
    authentication = settings.load_balancer.authentication
    told = {"PEAKPLAN_CALLER_FROM": _SOURCES[authentication.method]}
    rates = [f"{caller.name}={caller.rate:g}" for caller in settings.callers if caller.rate]
    if rates:
        told["PEAKPLAN_CALLER_RATES"] = ",".join(rates)
    if authentication.method == "jwt":
        told["PEAKPLAN_CALLER_CLAIM"] = authentication.caller_claim
    if authentication.method == "none":
        networks = [f"{caller.name}={cidr}" for caller in settings.callers for cidr in caller.cidrs]
        told["PEAKPLAN_CALLER_NETWORKS"] = ",".join([*networks, f"{BY_PRIVATELINK}={settings.network.cidr}"])
    return told


def full_host_rate(settings: FleetDescription, caller: Caller, group: Group) -> float:
    """Return the requests a second that a host which is never idle gets from `caller`, by its share of its cells.

    Its replicas are busy with the part that the model plans; rules plan the rest by choice.
    """
    if caller.share is None:
        return 0.0
    of_its_cell = caller.share / len(shards(settings)[caller.name]) / fullest_share(settings)
    return sizing.full_rate(settings, group) / settings.model.work_share * min(1.0, of_its_cell)


def _limits_are_kept_by_their_callers(fleet: FleetDescription) -> Iterator[Violation]:
    nameless = fleet.load_balancer.authentication.method == "none"
    if fleet.caller_shard_cells > len(fleet.serving_cells):
        return  # another rule reports it
    for index, caller in enumerate(fleet.callers):
        if caller.rate is None:
            continue
        if nameless and not caller.cidrs:
            yield Violation(
                f"callers.{index}.rate",
                f"{caller.name} comes by PrivateLink alone, behind which nobody sees its address: use mtls or jwt in "
                "load_balancer.authentication",
                "infra/fleet/caller_limits.py",
            )
        for group in fleet.groups:
            needed = full_host_rate(fleet, caller, group)
            if caller.rate < needed:
                yield Violation(
                    f"callers.{index}.rate",
                    f"{caller.rate:g} a second is less than the {needed:.0f} that {caller.name} sends to a full "
                    f"{group.instance_type} by its share of {caller.share:g}: write {needed:.0f} or more",
                    "infra/fleet/caller_limits.py, full_host_rate",
                )


CALLER_RULES: tuple[Rule, ...] = (_limits_are_kept_by_their_callers,)
