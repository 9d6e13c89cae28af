"""Four fleets show every branch that those that ship do not: what one of them has, another has not.

Each is synthesised once a test run; whoever tests another branch adds it to the one that it fits.
"""

from functools import cache
from typing import Any

from tests.infra.fleet.fleets import GRAVITON
from tests.infra.synthesis import Template, changed_fleet

JWT = {"method": "jwt", "issuer": "https://issuer.example.com/", "jwks": "https://issuer.example.com/keys"}
MTLS = {"method": "mtls", "trust_bundle": "s3://trusted-123456789012/authorities/2027.pem"}
AUTHORITY = "arn:aws:acm-pca:us-east-1:123456789012:certificate-authority/0123"
OWN_KEY = "arn:aws:kms:us-east-1:123456789012:key/11111111-2222-3333-4444-555555555555"
ACCOUNTS = ("111122223333", "444455556666")
VPCS = (
    {"vpc_id": "vpc-0123456a", "region": "us-east-1"},
    {"vpc_id": "vpc-0123456b", "region": "us-east-1", "account": "111122223333"},
)
NETWORKS = ("10.0.0.0/12", "10.32.0.0/13")
WAYS = {"transit_gateway": "tgw-0123456789abcdef0", "peering": "pcx-0123456789abcdef0"}
_SALE = {"name": "sale", "start": "2030-07-13T07:00:00Z", "end": "2030-07-14T07:00:00Z", "lead_minutes": 60}
LOCKED: dict[str, Any] = {
    "load_balancer.authentication": MTLS,
    "load_balancer.certificate_authority": AUTHORITY,
    "groups.1.reserve": True,
    "events": [_SALE | {"multiplier": 1}],
    "groups.0.maximum": 12,
    "maximum_cell_instances": 20,
    "callers.0.accounts": list(ACCOUNTS),
    "access.acceptance_required": False,
    "access.caller_vpcs": list(VPCS),
    "log_key": OWN_KEY,
    "machine_image.scan": True,
    "shopper_events": {
        "enabled": True,
        "bucket": True,
        "days": 40,
        "experiment": {"name": "autumn", "arms": {"control": 50, "2": 30, "rules": 20}},
    },
}
PUBLIC: dict[str, Any] = {
    "load_balancer.scheme": "internet-facing",
    "load_balancer.authentication": JWT,
    "load_balancer.reserve_capacity": True,
    "events": [_SALE | {"multiplier": 1.5}],
    "network.nat": True,
    "access.privatelink": False,
    "callers.0.cidrs": ["198.51.100.0/24"],
}
_BY_NETWORK: dict[str, Any] = {"access.privatelink": False, "callers.0.cidrs": list(NETWORKS)}
ROUTED: dict[str, Any] = _BY_NETWORK | {
    "access.transit_gateway": WAYS["transit_gateway"],
    "groups": [{"instance_type": "inf2.xlarge", "minimum": 3, "maximum": 10}],
    "cells": 2,
    "network.cell_weights": [0, 1],
    "network.endpoints": [{"service": "s3", "reason": "hosts read a table at boot", "actions": ["s3:GetObject"]}],
}
PEERED: dict[str, Any] = _BY_NETWORK | {"access.peering": WAYS["peering"]} | GRAVITON


@cache
def locked() -> dict[str, Template]:
    """An internal fleet behind mutual TLS and PrivateLink, with keys and an authority of its own and reservations."""
    return changed_fleet(LOCKED)


@cache
def public() -> dict[str, Template]:
    """A fleet on the internet, behind JWT, with NAT and reserved balancers."""
    return changed_fleet(PUBLIC)


@cache
def routed() -> dict[str, Template]:
    """A fleet of one kind of hosts and a sandbox, whose callers come through a transit gateway, and that reaches S3."""
    return changed_fleet(ROUTED)


@cache
def peered() -> dict[str, Template]:
    """A fleet of two architectures, whose callers come through a peering."""
    return changed_fleet(PEERED)
