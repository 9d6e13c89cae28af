"""`python -m infra.operations.access FLEET` lets in callers of the fleet file where that takes more than a template.

It accepts the PrivateLink endpoints that accounts of `callers` have made to the cells, and rejects those of accounts
that are no longer named. It authorises the VPCs of other accounts in `access.caller_vpcs` to join the private zone, and
prints the command for their owners: CloudFormation has no resource for it, the zone's owner authorises and the VPC's
owner associates. It has not run in a real account.
"""

import sys
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any

from infra.fleet.settings import FleetSettings
from infra.fleet.shards import ENDPOINT_SERVICE_OUTPUT, associated_by_owners
from infra.operations.command import UNUSABLE, Clients, Told, fleet_parser, operate
from infra.operations.deployed_cell import described, stack_of


class NothingToJoinError(Exception):
    """A private zone or a cell's stack that does not exist yet. The message is written for operators."""


def zone_of(settings: FleetSettings, route53: Any) -> str:
    """Return the id of the fleet's private zone. Raise NothingToJoinError if it does not exist."""
    name = f"{settings.network.domain}."
    for zone in route53.list_hosted_zones_by_name(DNSName=name)["HostedZones"]:
        said = zone["Config"].get("Comment")
        if zone["Name"] == name and zone["Config"].get("PrivateZone") and said == f"Peakplan {settings.name}":
            return str(zone["Id"]).removeprefix("/hostedzone/")
    raise NothingToJoinError(
        f"no private zone {settings.network.domain} of fleet {settings.name}: make deploy makes it"
    )


def authorise(settings: FleetSettings, route53: Any) -> list[str]:
    """Authorise each VPC of another account, and return the commands for their owners.

    Raise NothingToJoinError if the zone does not exist.
    """
    callers = associated_by_owners(settings)
    if not callers:
        return []
    zone = zone_of(settings, route53)
    commands = []
    for caller in callers:
        vpc = {"VPCRegion": caller.region, "VPCId": caller.vpc_id}
        route53.create_vpc_association_authorization(HostedZoneId=zone, VPC=vpc)
        commands.append(
            f"aws route53 associate-vpc-with-hosted-zone --hosted-zone-id {zone} "
            f"--vpc VPCRegion={caller.region},VPCId={caller.vpc_id}  # as account {caller.account}"
        )
    return commands


def admit(settings: FleetSettings, clients: Clients) -> Iterator[str]:
    """Accept the endpoints that wait at each cell's service and belong to a caller's account, and reject those of an
    account that no caller has any more; yield what was done. Raise NothingToJoinError if a cell's stack does not exist.
    """
    if not settings.access.privatelink:
        return
    named = {account for caller in settings.callers for account in caller.accounts}
    accounts = named or {clients("sts").get_caller_identity()["Account"]}
    ec2 = clients("ec2")
    for cell in settings.cell_names:
        service = _service_id(settings, cell, clients("cloudformation"))
        for each in connections(service, ec2):
            name, owner = each["VpcEndpointId"], each["VpcEndpointOwner"]
            waits = each["VpcEndpointState"] == "pendingAcceptance"
            if owner in accounts and waits:
                yield f"{cell}: {name} of account {owner} " + _asked(
                    "accepted", ec2.accept_vpc_endpoint_connections, each
                )
            elif owner not in accounts:
                said = "waits" if waits else _asked("rejected", ec2.reject_vpc_endpoint_connections, each)
                yield f"{cell}: {name} {said}: no caller of the fleet file has account {owner}"


def connections(service: str, ec2: Any) -> list[dict[str, Any]]:
    """Return the endpoints that are connected to a service, or wait to be."""
    asked = {"service-id": [service], "vpc-endpoint-state": ["pendingAcceptance", "available"]}
    filters = [{"Name": name, "Values": values} for name, values in asked.items()]
    pages = ec2.get_paginator("describe_vpc_endpoint_connections").paginate(Filters=filters)
    return [each | {"ServiceId": service} for page in pages for each in page["VpcEndpointConnections"]]


def reject_all(service: str, ec2: Any) -> None:
    """Reject every endpoint of a service, which can be deleted only then."""
    for each in connections(service, ec2):
        print(f"{each['VpcEndpointId']} " + _asked("rejected", ec2.reject_vpc_endpoint_connections, each), flush=True)


def _asked(done: str, ask: Callable[..., Any], connection: Mapping[str, Any]) -> str:
    failed = ask(ServiceId=connection["ServiceId"], VpcEndpointIds=[connection["VpcEndpointId"]])["Unsuccessful"]
    return f"could not be {done}: {failed[0]['Error']['Message']}" if failed else done


def zones(settings: FleetSettings, ec2: Any) -> str:
    """Return the ids of the fleet's zones for callers: zones' names differ between accounts."""
    found = ec2.describe_availability_zones(ZoneNames=list(settings.availability_zones))["AvailabilityZones"]
    return "cells stand in zones " + ", ".join(sorted(zone["ZoneId"] for zone in found))


def _service_id(settings: FleetSettings, cell: str, cloudformation: Any) -> str:
    name = stack_of(settings, cell)
    stack = described(name, cloudformation)
    if stack is None:
        raise NothingToJoinError(f"no stack {name}: make deploy makes it")
    outputs = {each["OutputKey"]: each["OutputValue"] for each in stack.get("Outputs", [])}
    return str(outputs[ENDPOINT_SERVICE_OUTPUT]).rpartition(".")[2]


def main(words: Sequence[str] | None = None) -> int:
    """Run the command line. Return 2 when the fleet file or the account cannot be used."""
    given = fleet_parser(__doc__).parse_args(words)

    def act(settings: FleetSettings, clients: Clients) -> Told:
        done, owners = list(admit(settings, clients)), authorise(settings, clients("route53"))
        stand = zones(settings, clients("ec2"))
        nothing = "no endpoint waits, and access.caller_vpcs names no VPC of another account"
        words = "\n".join([*(done + owners or [nothing]), stand])
        return Told(words, {"endpoints": done, "commands_for_owners": owners, "zones": stand})

    return operate(given, act, {NothingToJoinError: UNUSABLE})


if __name__ == "__main__":
    sys.exit(main())
