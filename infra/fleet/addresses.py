"""The division of a fleet's VPC into subnets, and the number of addresses that they must hold."""

import math
from dataclasses import dataclass

from infra.fleet.description import FleetDescription

# The permitted sizes of a VPC and its subnets. Source: Amazon VPC user guide, VPC CIDR blocks.
LARGEST_PREFIX, SMALLEST_PREFIX = 16, 28
# AWS reserves the first four addresses of a subnet and its last. Source: Amazon VPC user guide, Subnet CIDR blocks.
TAKEN_BY_AWS = 5
# Nodes that an Application Load Balancer may grow to in one zone: assumed. AWS asks for a /27 with 8 free addresses
# (Elastic Load Balancing user guide, Subnets for your load balancer) and gives no upper limit.
LOAD_BALANCER_ADDRESSES = 100
# Subnets of this size have addresses for thousands of hosts; the rest stays free for other uses of the VPC.
LARGEST_SUBNET_PREFIX, LARGEST_PUBLIC_PREFIX = 20, 24
# This is a load balancer's smallest subnet. Source: Elastic Load Balancing user guide, Subnets.
SMALLEST_LOAD_BALANCER_PREFIX = 27
REFRESH_SURPLUS = 1.1  # an instance refresh starts a tenth more before it terminates any


@dataclass(frozen=True)
class Subnets:
    """The prefix lengths of the subnets in each zone; `public` is None where nothing is public."""

    cells: int
    public: int | None


def subnets(settings: FleetDescription) -> Subnets:
    """Return the largest equal cell subnets, one in each zone, that fit the VPC.

    The public subnets share one more such block.
    """
    # NAT gateways and internet-facing load balancers have public addresses.
    public = settings.network.nat or settings.load_balancer.scheme == "internet-facing"
    zones = len(settings.availability_zones)
    cells = max(LARGEST_SUBNET_PREFIX, settings.network.cidr.prefixlen + math.ceil(math.log2(zones + public)))
    shared = max(LARGEST_PUBLIC_PREFIX, cells + math.ceil(math.log2(zones)))
    return Subnets(cells, shared if public else None)


def room(prefix: int) -> int:
    return int(2 ** (32 - prefix)) - TAKEN_BY_AWS


def needed_in_a_zone(settings: FleetDescription) -> int:
    """Return how many addresses a zone's cell subnet may need when another zone is lost; stopped hosts keep theirs."""
    zones = len(settings.availability_zones)
    hosts = sum(group.maximum for group in settings.groups) * settings.cells
    surviving = math.ceil(hosts * REFRESH_SURPLUS / (zones - 1))
    load_balancers = settings.cells * (LOAD_BALANCER_ADDRESSES + settings.access.privatelink)
    return surviving + load_balancers + len(settings.interface_services)
