"""Rules on a fleet's network: its addresses, its permitted callers, and their routes."""

from __future__ import annotations

from collections.abc import Iterator

from infra.fleet import addresses
from infra.fleet.description import FleetDescription
from infra.fleet.violations import Rule, Violation


def _public_load_balancers_authenticate(fleet: FleetDescription) -> Iterator[Violation]:
    balancer = fleet.load_balancer
    if balancer.scheme == "internet-facing" and balancer.authentication.method == "none":
        yield Violation(
            "load_balancer.authentication",
            "none on an internet-facing load balancer: use mtls or jwt, or make it internal",
            "AWS Security Hub, and this project's rule: nothing public without authentication",
        )


def _callers_are_named_networks(fleet: FleetDescription) -> Iterator[Violation]:
    for index, caller in enumerate(fleet.callers):
        for cidr in caller.cidrs:
            if cidr.prefixlen < (8 if cidr.is_private else 16):
                yield Violation(
                    f"callers.{index}.cidrs",
                    f"{cidr} is nearly everyone; name the networks that call",
                    "AWS Security Hub EC2.18: no unrestricted ingress",
                )
    names = [caller.name for caller in fleet.callers]
    if len(set(names)) < len(names):
        yield Violation("callers", "two callers have one name; names become DNS names", "infra/constructs/edge.py")
    stated = sum(caller.share or 0 for caller in fleet.callers)
    if stated > 1 + 1e-9 or (stated < 1 - 1e-9 and all(caller.share for caller in fleet.callers)):
        yield Violation(
            "callers",
            f"the callers' shares add up to {stated:g}: make it 1, or leave out that of a caller which sends the rest",
            "infra/fleet/shards.py, fullest_share",
        )
    if fleet.caller_shard_cells > len(fleet.serving_cells):
        yield Violation(
            "caller_shard_cells",
            f"{fleet.caller_shard_cells} of {len(fleet.serving_cells)} cells with callers; use at most that many",
            "AWS Builders' Library, Workload isolation using shuffle-sharding",
        )


def _network_has_room(fleet: FleetDescription) -> Iterator[Violation]:
    source = "Amazon VPC user guide, VPC and subnet CIDR blocks"
    prefix = fleet.network.cidr.prefixlen
    if not addresses.LARGEST_PREFIX <= prefix <= addresses.SMALLEST_PREFIX:
        yield Violation(
            "network.cidr",
            f"{fleet.network.cidr}: AWS makes a VPC of /{addresses.LARGEST_PREFIX} to /{addresses.SMALLEST_PREFIX}; "
            f"use a /{addresses.LARGEST_PREFIX}",
            source,
        )
        return
    cut, needed = addresses.subnets(fleet), addresses.needed_in_a_zone(fleet)
    if cut.cells > addresses.SMALLEST_PREFIX or addresses.room(cut.cells) < needed:
        have = max(0, addresses.room(cut.cells)) if cut.cells <= addresses.SMALLEST_PREFIX else 0
        yield Violation(
            "network.cidr",
            f"{fleet.network.cidr} has {have} addresses a zone for hosts, load balancers and endpoints, which may come "
            f"to need {needed} with a zone lost: use a larger block",
            "infra/fleet/addresses.py",
        )
    elif cut.public is not None and cut.public > addresses.SMALLEST_LOAD_BALANCER_PREFIX:
        yield Violation(
            "network.cidr",
            f"{fleet.network.cidr} leaves a /{cut.public} for each public subnet, and a load balancer wants "
            f"/{addresses.SMALLEST_LOAD_BALANCER_PREFIX}: use a larger block",
            "Elastic Load Balancing user guide, Subnets for your load balancer",
        )


def _callers_have_a_way(fleet: FleetDescription) -> Iterator[Violation]:
    source = "infra/constructs/access.py and private_link.py"
    access = fleet.access
    for index, caller in enumerate(fleet.callers):
        if not caller.cidrs and not caller.accounts:
            yield Violation(f"callers.{index}", "name cidrs, or accounts for PrivateLink: nobody could come in", source)
        if caller.accounts and not access.privatelink:
            yield Violation(f"callers.{index}.accounts", "access.privatelink is off: turn it on, or use cidrs", source)
        routed = access.transit_gateway or access.peering
        for cidr in caller.cidrs if routed else ():
            if cidr.overlaps(fleet.network.cidr):
                yield Violation(
                    f"callers.{index}.cidrs",
                    f"{cidr} overlaps the VPC's {fleet.network.cidr}: no route can tell them apart; use PrivateLink",
                    "Amazon VPC user guide, route priority",
                )
    if access.privatelink and fleet.load_balancer.scheme == "internet-facing":
        yield Violation(
            "access.privatelink",
            "callers reach an internet-facing load balancer without PrivateLink: set it to false",
            source,
        )


NETWORK_RULES: tuple[Rule, ...] = (
    _public_load_balancers_authenticate,
    _callers_are_named_networks,
    _network_has_room,
    _callers_have_a_way,
)
