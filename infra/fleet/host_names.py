"""The names that callers use, and which of their VPCs the fleet's own deploy may associate with the private zone."""

from __future__ import annotations

from infra.fleet.parts import CallerVpc
from infra.fleet.settings import FleetSettings

SERVICE = "plan"  # before the fleet's domain, and behind the name of a caller or cell


def service_name(settings: FleetSettings, of: str | None = None) -> str:
    """The host name of every cell together, or that `of` one cell or for one caller."""
    return ".".join([*([of] if of else []), SERVICE, settings.network.domain])


def names_in_tls(settings: FleetSettings) -> tuple[str, str]:
    """The names that the load balancers' certificate must have: everyone's, and those of callers and cells."""
    return service_name(settings), service_name(settings, "*")


def associated_by_us(settings: FleetSettings) -> tuple[CallerVpc, ...]:
    """The callers' VPCs of the fleet's own account."""
    return tuple(vpc for vpc in settings.access.caller_vpcs if vpc.account in (None, settings.account))


def associated_by_owners(settings: FleetSettings) -> tuple[CallerVpc, ...]:
    """The callers' VPCs of other accounts: we authorise, their owners associate."""
    return tuple(vpc for vpc in settings.access.caller_vpcs if vpc not in associated_by_us(settings))
