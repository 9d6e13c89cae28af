"""`python -m infra.operations.access FLEET` lets in callers of the fleet file where that takes more than a template.

It accepts the PrivateLink endpoints that accounts of `callers` have made to the cells. It authorises the VPCs of other
accounts in `access.caller_vpcs` to join the private zone, and prints the command for their owners: CloudFormation has
no resource for it, the zone's owner authorises and the VPC's owner associates. It has not run in a real account.
"""

from __future__ import annotations

import sys
from collections.abc import Iterator, Sequence
from typing import Any

from botocore.exceptions import ClientError

from infra.fleet.host_names import ENDPOINT_SERVICE_OUTPUT, associated_by_owners
from infra.fleet.settings import FleetSettings
from infra.operations.command import UNUSABLE, Clients, Told, fleet_parser, operate


class NothingToJoinError(Exception):
    """A private zone or a cell's stack that does not exist yet. The message is written for operators."""


def zone_of(settings: FleetSettings, route53: Any) -> str:
    """Return the id of the fleet's private zone. Raise NothingToJoinError if it does not exist."""
    name = f"{settings.network.domain}."
    for zone in route53.list_hosted_zones_by_name(DNSName=name)["HostedZones"]:
        said = zone["Config"].get("Comment", "")
        if zone["Name"] == name and zone["Config"].get("PrivateZone") and settings.name in said:
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


def accept(settings: FleetSettings, clients: Clients) -> Iterator[str]:
    """Accept the endpoints that wait at each cell's service and belong to a caller's account; yield what was done.

    Raise NothingToJoinError if a cell's stack does not exist.
    """
    if not (settings.access.privatelink and settings.access.acceptance_required):
        return
    named = {account for caller in settings.callers for account in caller.accounts}
    accounts = named or {clients("sts").get_caller_identity()["Account"]}
    ec2 = clients("ec2")
    for cell in settings.cell_names:
        service = _service_id(settings, cell, clients("cloudformation"))
        chosen = [
            {"Name": "service-id", "Values": [service]},
            {"Name": "vpc-endpoint-state", "Values": ["pendingAcceptance"]},
        ]
        waiting = ec2.describe_vpc_endpoint_connections(Filters=chosen)["VpcEndpointConnections"]
        known = [each for each in waiting if each["VpcEndpointOwner"] in accounts]
        if known:
            ids = [each["VpcEndpointId"] for each in known]
            refused = ec2.accept_vpc_endpoint_connections(ServiceId=service, VpcEndpointIds=ids)["Unsuccessful"]
            failed = {each["ResourceId"]: each["Error"]["Message"] for each in refused}
            for each in known:
                owner, reason = each["VpcEndpointOwner"], failed.get(each["VpcEndpointId"])
                done = f"could not be accepted: {reason}" if reason else "accepted"
                yield f"{cell}: {each['VpcEndpointId']} of account {owner} {done}"
        for each in waiting:
            if each not in known:
                owner = each["VpcEndpointOwner"]
                yield f"{cell}: {each['VpcEndpointId']} waits: no caller of the fleet file has account {owner}"


def _service_id(settings: FleetSettings, cell: str, cloudformation: Any) -> str:
    name = f"peakplan-{settings.name}-{cell}"
    try:
        (stack,) = cloudformation.describe_stacks(StackName=name)["Stacks"]
    except ClientError as error:
        if error.response["Error"]["Code"] != "ValidationError":
            raise
        raise NothingToJoinError(f"no stack {name}: make deploy makes it") from error
    outputs = {each["OutputKey"]: each["OutputValue"] for each in stack.get("Outputs", [])}
    return str(outputs[ENDPOINT_SERVICE_OUTPUT]).rpartition(".")[2]


def main(words: Sequence[str] | None = None) -> int:
    """Run the command line. Return 2 when the fleet file or the account cannot be used."""
    given = fleet_parser(__doc__).parse_args(words)

    def act(settings: FleetSettings, clients: Clients) -> Told:
        accepted, owners = list(accept(settings, clients)), authorise(settings, clients("route53"))
        nothing = "no endpoint waits, and access.caller_vpcs names no VPC of another account"
        words = "\n".join([*accepted, *owners]) or nothing
        return Told(words, {"endpoints": accepted, "commands_for_owners": owners})

    return operate(given, act, {NothingToJoinError: UNUSABLE})


if __name__ == "__main__":
    sys.exit(main())
