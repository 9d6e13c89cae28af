"""The names that callers use, and which of their VPCs the fleet's own deploy may associate with the private zone."""

from __future__ import annotations

from infra.fleet.network_parts import CallerVpc
from infra.fleet.settings import FleetSettings

SERVICE = "plan"  # the label before the fleet's domain, and after the name of a caller or cell
ENDPOINT_SERVICE_OUTPUT = "EndpointServiceName"  # of a cell's stack: what callers make PrivateLink endpoints to


def service_name(settings: FleetSettings, of: str | None = None) -> str:
    """Return the host name of every cell together, or that `of` one cell or for one caller."""
    return ".".join([*([of] if of else []), SERVICE, settings.network.domain])


def names_in_tls(settings: FleetSettings) -> tuple[str, str]:
    """Return the names that the load balancers' certificate needs: the shared one, and those of callers and cells."""
    return service_name(settings), service_name(settings, "*")


def associated_by_us(settings: FleetSettings) -> tuple[CallerVpc, ...]:
    """Return the callers' VPCs of the fleet's own account."""
    return tuple(vpc for vpc in settings.access.caller_vpcs if vpc.account in (None, settings.account))


def associated_by_owners(settings: FleetSettings) -> tuple[CallerVpc, ...]:
    """Return the callers' VPCs of other accounts, whose owners associate them after our authorisation."""
    return tuple(vpc for vpc in settings.access.caller_vpcs if vpc not in associated_by_us(settings))
