"""Callers: their cells by shuffle sharding, so that one's poison reaches few others' cells, names, and who calls.

Source: AWS Builders' Library, Workload isolation using shuffle-sharding.
"""

import hashlib

from infra.fleet.description import FleetDescription
from infra.fleet.network_parts import CallerVpc


def shards(settings: FleetDescription) -> dict[str, tuple[str, ...]]:
    """Return the cells of every caller, in cell order and the same at every synthesis.

    The largest caller chooses first. Each takes the cells that have the least load from those before it, so that no
    cell stands idle while another has two callers; among equals it ranks cells by a hash (rendezvous hashing).
    """
    wanted = settings.caller_shard_cells
    stated = sum(caller.share or 0 for caller in settings.callers)
    others = sum(caller.share is None for caller in settings.callers)
    # Callers without a share split the rest of the load, or a small share if nothing is left.
    shares = {
        caller.name: max(1e-6, (1 - stated) / others) if caller.share is None else caller.share
        for caller in settings.callers
    }
    load = dict.fromkeys(settings.serving_cells, 0.0)
    chosen: dict[str, tuple[str, ...]] = {}
    for name in sorted(shares, key=lambda name: (-shares[name], name)):
        cells = sorted(load, key=lambda cell: (round(load[cell], 9), _rank(name, cell)))[:wanted]
        for cell in cells:
            load[cell] += shares[name] / len(cells)
        chosen[name] = tuple(cell for cell in settings.serving_cells if cell in cells)
    return chosen


def _rank(caller: str, cell: str) -> bytes:
    return hashlib.sha256(f"{caller}/{cell}".encode()).digest()


def fullest_share(settings: FleetDescription, without: str = "") -> float:
    """Return the share of the fleet's load that the fullest cell gets, from 1 / cells with callers to 1.

    Callers with a share send it to their own cells alone, but for one `without` callers. It is unknown where the rest
    goes, so it is spread over all.
    """
    load = {cell: 0.0 for cell in settings.serving_cells if cell != without}
    cells_of = shards(settings)
    for caller in settings.callers:
        left = [cell for cell in cells_of[caller.name] if cell != without] if caller.share else []
        for cell in left:
            load[cell] += (caller.share or 0) / len(left)
    stated = sum(caller.share or 0 for caller in settings.callers)
    return max(load.values()) + max(0.0, 1 - stated) / len(load)


def fullest_share_without_one_cell(settings: FleetDescription) -> float:
    """Return the share that the fullest cell gets once the cell is moved out whose callers hurt the others most."""
    return max(fullest_share(settings, cell) for cell in settings.serving_cells)


SERVICE = "plan"  # the label before the fleet's domain, and after the name of a caller or cell
ENDPOINT_SERVICE_OUTPUT = "EndpointServiceName"  # of a cell's stack: what callers make PrivateLink endpoints to


def service_name(settings: FleetDescription, of: str | None = None) -> str:
    """Return the host name of every cell together, or that `of` one cell or for one caller."""
    return ".".join([*([of] if of else []), SERVICE, settings.network.domain])


def names_in_tls(settings: FleetDescription) -> tuple[str, str]:
    """Return the names that the load balancers' certificate needs: the shared one, and those of callers and cells."""
    return service_name(settings), service_name(settings, "*")


def associated_by_us(settings: FleetDescription) -> tuple[CallerVpc, ...]:
    return tuple(vpc for vpc in settings.access.caller_vpcs if vpc.account in (None, settings.account))


def associated_by_owners(settings: FleetDescription) -> tuple[CallerVpc, ...]:
    """Return the callers' VPCs of other accounts, whose owners associate them after our authorisation."""
    return tuple(vpc for vpc in settings.access.caller_vpcs if vpc not in associated_by_us(settings))


# A cell's load balancer alone reaches its hosts, and what it has verified names the caller: the client certificate's
# CN, or a claim of the token. Behind PrivateLink nothing else could: the network load balancer's targets see its
# addresses, proxy protocol is the one way to pass on the callers', and an Application Load Balancer, which is that
# target, does not read it. Source: Elastic Load Balancing, Network Load Balancers, "Edit target group attributes"
# (client IP preservation, proxy protocol), and "Use an Application Load Balancer as a target of a Network Load
# Balancer". What callers by PrivateLink are called in logs where nothing names them: the network load balancers' own
# network.
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
