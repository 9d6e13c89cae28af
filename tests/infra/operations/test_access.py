"""Callers whom the fleet file names are let in by one command: their endpoints accepted, their VPCs authorised."""

from collections.abc import Iterator
from typing import Any

import boto3
import pytest
from botocore.stub import Stubber

from infra.operations.access import NothingToJoinError, admit, authorise, zones
from tests.infra.fleet.fleets import dev_fleet

SERVICE, CALLER, STRANGER = "vpce-svc-0123456789abcdef0", "111122223333", "999999999999"
WAITING = [
    {"Name": "service-id", "Values": [SERVICE]},
    {"Name": "vpc-endpoint-state", "Values": ["pendingAcceptance", "available"]},
]


class Account:
    """Clients whose answers botocore checks for their shape: moto knows no connections of endpoints."""

    def __init__(self) -> None:
        self._clients = {
            name: boto3.client(name, region_name="us-east-1", aws_access_key_id="t", aws_secret_access_key="t")
            for name in ("ec2", "cloudformation", "sts")
        }
        self.stubs = {name: Stubber(client) for name, client in self._clients.items()}
        for stub in self.stubs.values():
            stub.activate()

    def client(self, name: str) -> Any:
        return self._clients[name]

    def has_a_cell(self) -> None:
        stack = {
            "StackName": "peakplan-dev-cell-1",
            "CreationTime": "2026-11-22T00:00:00Z",
            "StackStatus": "CREATE_COMPLETE",
            "Outputs": [{"OutputKey": "EndpointServiceName", "OutputValue": f"com.amazonaws.vpce.us-east-1.{SERVICE}"}],
        }
        asked = {"StackName": "peakplan-dev-cell-1"}
        self.stubs["cloudformation"].add_response("describe_stacks", {"Stacks": [stack]}, asked)

    def has_waiting(self, state: str = "pendingAcceptance", **owners: str) -> None:
        connections = [
            {"VpcEndpointId": f"vpce-{name}", "VpcEndpointOwner": owner, "VpcEndpointState": state}
            for name, owner in owners.items()
        ]
        answer = {"VpcEndpointConnections": connections}
        self.stubs["ec2"].add_response("describe_vpc_endpoint_connections", answer, {"Filters": WAITING})

    def becomes(self, what: str, *endpoints: str, unsuccessful: list[dict[str, Any]] | None = None) -> None:
        for endpoint in endpoints:
            asked = {"ServiceId": SERVICE, "VpcEndpointIds": [endpoint]}
            answer = {"Unsuccessful": unsuccessful or []}
            self.stubs["ec2"].add_response(f"{what}_vpc_endpoint_connections", answer, asked)


@pytest.fixture
def account() -> Iterator[Account]:
    made = Account()
    yield made
    for stub in made.stubs.values():
        stub.assert_no_pending_responses()


NAMED = {"callers.0.accounts": [CALLER]}


def test_the_endpoints_of_named_accounts_are_accepted_and_no_others(account: Account) -> None:
    account.has_a_cell()
    account.has_waiting(a=CALLER, b=STRANGER, c=CALLER)
    account.becomes("accept", "vpce-a", "vpce-c")
    assert list(admit(dev_fleet(NAMED), account.client)) == [
        f"cell-1: vpce-a of account {CALLER} accepted",
        f"cell-1: vpce-b waits: no caller of the fleet file has account {STRANGER}",
        f"cell-1: vpce-c of account {CALLER} accepted",
    ]


def test_the_endpoint_of_an_account_that_is_no_longer_named_is_rejected(account: Account) -> None:
    account.has_a_cell()
    account.has_waiting(state="available", a=CALLER, b=STRANGER)
    account.becomes("reject", "vpce-b")
    (said,) = admit(dev_fleet(NAMED), account.client)
    assert said == f"cell-1: vpce-b rejected: no caller of the fleet file has account {STRANGER}"


def test_callers_are_told_the_ids_of_zones_whose_names_differ_between_accounts(account: Account) -> None:
    found = [{"ZoneId": f"use1-az{number}"} for number in (4, 6, 1)]
    asked = {"ZoneNames": ["us-east-1a", "us-east-1b", "us-east-1c"]}
    account.stubs["ec2"].add_response("describe_availability_zones", {"AvailabilityZones": found}, asked)
    assert zones(dev_fleet(), account.client("ec2")) == "cells stand in zones use1-az1, use1-az4, use1-az6"


def test_without_named_accounts_the_fleet_s_own_is_meant(account: Account) -> None:
    identity = {"Account": "123456789012", "UserId": "u", "Arn": "arn:aws:iam::123456789012:user/operator"}
    account.stubs["sts"].add_response("get_caller_identity", identity, {})
    account.has_a_cell()
    account.has_waiting(own="123456789012")
    account.becomes("accept", "vpce-own")
    assert list(admit(dev_fleet(), account.client)) == ["cell-1: vpce-own of account 123456789012 accepted"]


def test_an_endpoint_that_aws_does_not_accept_is_told(account: Account) -> None:
    account.has_a_cell()
    account.has_waiting(a=CALLER)
    error = {"Code": "InvalidState", "Message": "The endpoint was deleted"}
    account.becomes("accept", "vpce-a", unsuccessful=[{"ResourceId": "vpce-a", "Error": error}])
    (line,) = admit(dev_fleet(NAMED), account.client)
    assert line == f"cell-1: vpce-a of account {CALLER} could not be accepted: The endpoint was deleted"


def test_a_fleet_without_privatelink_accepts_nothing(account: Account) -> None:
    routed = {"access": {"privatelink": False}, "callers.0.cidrs": ["10.0.0.0/12"]}
    assert list(admit(dev_fleet(routed), account.client)) == []


def test_a_cell_that_is_not_there_is_named(account: Account) -> None:
    account.stubs["cloudformation"].add_client_error("describe_stacks", "ValidationError", "does not exist")
    with pytest.raises(NothingToJoinError, match="no stack peakplan-dev-cell-1: make deploy makes it"):
        list(admit(dev_fleet(NAMED), account.client))


def test_the_zone_s_owner_authorises_and_the_vpc_s_owner_associates() -> None:
    other = {"vpc_id": "vpc-0123456b", "region": "us-east-1", "account": "111122223333"}
    settings = dev_fleet({"access": {"caller_vpcs": [other, {"vpc_id": "vpc-0123456a", "region": "us-east-1"}]}})
    client = boto3.client("route53", region_name="us-east-1", aws_access_key_id="t", aws_secret_access_key="t")
    zone = {
        "Id": "/hostedzone/Z1",
        "Name": "planner.internal.",
        "CallerReference": "r",
        "Config": {"Comment": "Peakplan dev", "PrivateZone": True},
    }
    page = {"HostedZones": [zone], "IsTruncated": False, "MaxItems": "100"}
    vpc = {"VPCRegion": "us-east-1", "VPCId": "vpc-0123456b"}
    with Stubber(client) as stub:
        stub.add_response("list_hosted_zones_by_name", page, {"DNSName": "planner.internal."})
        stub.add_response(
            "create_vpc_association_authorization",
            {"HostedZoneId": "Z1", "VPC": vpc},
            {"HostedZoneId": "Z1", "VPC": vpc},
        )
        (command,) = authorise(settings, client)
        stub.assert_no_pending_responses()
    assert command.startswith("aws route53 associate-vpc-with-hosted-zone --hosted-zone-id Z1")
    assert "as account 111122223333" in command
    with Stubber(client) as stub:
        stub.add_response("list_hosted_zones_by_name", page | {"HostedZones": []}, {"DNSName": "planner.internal."})
        with pytest.raises(NothingToJoinError, match="make deploy makes it"):
            authorise(settings, client)
