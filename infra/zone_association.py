"""`python -m infra.zone_association FLEET`: let callers' VPCs of other accounts join the fleet's private zone.

CloudFormation has no resource for it: the zone's owner authorises, the VPC's owner associates. Authorises every VPC of
`access.caller_vpcs` that has another account, and prints the command for its owner. Not run in a real account.
"""

from __future__ import annotations

import argparse
import sys
from collections.abc import Sequence
from typing import Any

import boto3
from botocore.exceptions import BotoCoreError, ClientError

from infra.fleet.__main__ import fleet_file
from infra.fleet.host_names import associated_by_owners
from infra.fleet.settings import FleetFileError, FleetSettings


class NoZoneError(Exception):
    """A private zone of the fleet that does not exist yet. The message is written for operators."""


def zone_of(settings: FleetSettings, route53: Any) -> str:
    """Return the id of the fleet's private zone. Raise NoZoneError if it does not exist."""
    name = f"{settings.network.domain}."
    for zone in route53.list_hosted_zones_by_name(DNSName=name)["HostedZones"]:
        said = zone["Config"].get("Comment", "")
        if zone["Name"] == name and zone["Config"].get("PrivateZone") and settings.name in said:
            return str(zone["Id"]).removeprefix("/hostedzone/")
    raise NoZoneError(f"no private zone {settings.network.domain} of fleet {settings.name}: make deploy makes it")


def authorise(settings: FleetSettings, route53: Any) -> list[str]:
    """Authorise each VPC of another account, and return the commands for their owners.

    Raise NoZoneError if the zone does not exist.
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


def main(words: Sequence[str] | None = None) -> int:
    """Run the command line. Return 2 when the fleet file or the account cannot be used."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("fleet", help="dev, prime-day, or the path of a YAML file")
    given = parser.parse_args(words)
    try:
        settings = FleetSettings.from_yaml(fleet_file(given.fleet))
        commands = authorise(settings, boto3.client("route53", region_name=settings.region))
    except (FleetFileError, NoZoneError) as error:
        print(error, file=sys.stderr)
        return 2
    except (BotoCoreError, ClientError) as error:
        print(f"AWS cannot be asked as this user: {error}", file=sys.stderr)
        return 2
    print("\n".join(commands) or "access.caller_vpcs names no VPC of another account: nothing to authorise")
    return 0


if __name__ == "__main__":
    sys.exit(main())
