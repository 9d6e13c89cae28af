"""Callers whom the fleet file names are let in, what was changed by hand is told, and a cell moves out and back."""

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import yaml

from infra.fleet.settings import FleetSettings
from infra.operations import cells, drift
from infra.operations.access import NothingToJoinError, admit, authorise, zones
from infra.operations.cells import Cells, CellShiftError, Load
from infra.operations.drift import Drifted, DriftError, detect
from tests.infra.fleet.fleets import dev_fleet, dev_with
from tests.infra.moto_server import MotoServer, stubbed

SERVICE, CALLER, STRANGER = "vpce-svc-0123456789abcdef0", "111122223333", "999999999999"
WAITING = [
    {"Name": "service-id", "Values": [SERVICE]},
    {"Name": "vpc-endpoint-state", "Values": ["pendingAcceptance", "available"]},
]


class Account:
    """Clients whose answers botocore checks for their shape: moto knows no connections of endpoints."""

    def __init__(self) -> None:
        made = {name: stubbed(name) for name in ("ec2", "cloudformation", "sts", "route53")}
        self.client = {name: client for name, (client, _) in made.items()}.__getitem__
        self.stubs = {name: stub for name, (_, stub) in made.items()}

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
GONE = [{"ResourceId": "vpce-a", "Error": {"Code": "InvalidState", "Message": "The endpoint was deleted"}}]
UNNAMED = f"no caller of the fleet file has account {STRANGER}"


@pytest.mark.parametrize(
    ("state", "owners", "becomes", "failed", "said"),
    [
        (
            "pendingAcceptance", {"a": CALLER, "b": STRANGER, "c": CALLER}, ("accept", "vpce-a", "vpce-c"), [],
            [f"a of account {CALLER} accepted", f"b waits: {UNNAMED}", f"c of account {CALLER} accepted"],
        ),
        ("available", {"a": CALLER, "b": STRANGER}, ("reject", "vpce-b"), [], [f"b rejected: {UNNAMED}"]),
        (
            "pendingAcceptance", {"a": CALLER}, ("accept", "vpce-a"), GONE,
            [f"a of account {CALLER} could not be accepted: The endpoint was deleted"],
        ),
    ],
    ids=["they wait", "one is no longer named", "AWS does not accept it"],
)  # fmt: skip
def test_the_endpoints_of_named_accounts_come_in_and_no_others(
    account: Account, state: str, owners: dict[str, str], becomes: tuple[str, ...], failed: list[Any], said: list[str]
) -> None:
    account.has_a_cell()
    account.has_waiting(state, **owners)
    account.becomes(*becomes, unsuccessful=failed)
    assert list(admit(dev_fleet(NAMED), account.client)) == [f"cell-1: vpce-{each}" for each in said]


def test_without_named_accounts_the_fleet_s_own_is_meant(account: Account) -> None:
    identity = {"Account": "123456789012", "UserId": "u", "Arn": "arn:aws:iam::123456789012:user/operator"}
    account.stubs["sts"].add_response("get_caller_identity", identity, {})
    account.has_a_cell()
    account.has_waiting(own="123456789012")
    account.becomes("accept", "vpce-own")
    assert list(admit(dev_fleet(), account.client)) == ["cell-1: vpce-own of account 123456789012 accepted"]


def test_callers_are_told_the_ids_of_zones_whose_names_differ_between_accounts(account: Account) -> None:
    found = [{"ZoneId": f"use1-az{number}"} for number in (4, 6, 1)]
    asked = {"ZoneNames": ["us-east-1a", "us-east-1b", "us-east-1c"]}
    account.stubs["ec2"].add_response("describe_availability_zones", {"AvailabilityZones": found}, asked)
    assert zones(dev_fleet(), account.client("ec2")) == "cells stand in zones use1-az1, use1-az4, use1-az6"


def test_a_fleet_without_privatelink_accepts_nothing(account: Account) -> None:
    routed = {"access": {"privatelink": False}, "callers.0.cidrs": ["10.0.0.0/12"]}
    assert list(admit(dev_fleet(routed), account.client)) == []


def test_a_cell_that_is_not_there_is_named(account: Account) -> None:
    account.stubs["cloudformation"].add_client_error("describe_stacks", "ValidationError", "does not exist")
    with pytest.raises(NothingToJoinError, match="no stack peakplan-dev-cell-1: make deploy makes it"):
        list(admit(dev_fleet(NAMED), account.client))


def test_the_zone_s_owner_authorises_and_the_vpc_s_owner_associates(account: Account) -> None:
    other = {"vpc_id": "vpc-0123456b", "region": "us-east-1", "account": "111122223333"}
    settings = dev_fleet({"access": {"caller_vpcs": [other, {"vpc_id": "vpc-0123456a", "region": "us-east-1"}]}})
    client, stub = account.client("route53"), account.stubs["route53"]
    zone = {
        "Id": "/hostedzone/Z1",
        "Name": "planner.internal.",
        "CallerReference": "r",
        "Config": {"Comment": "Peakplan dev", "PrivateZone": True},
    }
    page = {"HostedZones": [zone], "IsTruncated": False, "MaxItems": "100"}
    vpc = {"VPCRegion": "us-east-1", "VPCId": "vpc-0123456b"}
    stub.add_response("list_hosted_zones_by_name", page, {"DNSName": "planner.internal."})
    told = {"HostedZoneId": "Z1", "VPC": vpc}
    stub.add_response("create_vpc_association_authorization", told, told)
    (command,) = authorise(settings, client)
    assert command.startswith("aws route53 associate-vpc-with-hosted-zone --hosted-zone-id Z1")
    assert "as account 111122223333" in command
    stub.add_response("list_hosted_zones_by_name", page | {"HostedZones": []}, {"DNSName": "planner.internal."})
    with pytest.raises(NothingToJoinError, match="make deploy makes it"):
        authorise(settings, client)


STACK, ASKED = "peakplan-dev-cell-1", "b78ac9b0-dec1-11e7-a451-503a3example"
STACK_ID = f"arn:aws:cloudformation:us-east-1:123456789012:stack/{STACK}/1"


def drifted(name: str, kind: str, status: str, *paths: str) -> dict[str, Any]:
    differs = {"ExpectedValue": "1", "ActualValue": "2", "DifferenceType": "NOT_EQUAL"}
    return {
        "StackId": STACK_ID,
        "LogicalResourceId": name,
        "PhysicalResourceId": f"its-{name}",
        "ResourceType": kind,
        "StackResourceDriftStatus": status,
        "PropertyDifferences": [differs | {"PropertyPath": path} for path in paths],
        "Timestamp": "2026-11-23T00:00:00Z",
    }


class CloudFormation:
    """The client, with the shapes of its own description: moto cannot detect drift."""

    def __init__(self) -> None:
        self.client, self.stub = stubbed("cloudformation")
        self.stub.add_response("detect_stack_drift", {"StackDriftDetectionId": ASKED}, {"StackName": STACK})

    def says(self, status: str, **more: str) -> None:
        answer = {"StackId": STACK_ID, "StackDriftDetectionId": ASKED, "DetectionStatus": status, **more}
        answer["Timestamp"] = "2026-11-23T00:00:00Z"
        self.stub.add_response("describe_stack_drift_detection_status", answer, {"StackDriftDetectionId": ASKED})

    def found(self, *drifts: dict[str, Any]) -> None:
        asked = {"StackName": STACK, "StackResourceDriftStatusFilters": ["MODIFIED", "DELETED"]}
        self.stub.add_response("describe_stack_resource_drifts", {"StackResourceDrifts": list(drifts)}, asked)


@pytest.fixture
def changed() -> Iterator[CloudFormation]:
    made = CloudFormation()
    yield made
    made.stub.assert_no_pending_responses()


def test_changes_by_hand_are_told_with_both_values(changed: CloudFormation) -> None:
    changed.says("DETECTION_IN_PROGRESS")
    changed.says("DETECTION_COMPLETE", StackDriftStatus="DRIFTED")
    changed.found(
        drifted("Alb", "AWS::ElasticLoadBalancingV2::LoadBalancer", "MODIFIED", "/LoadBalancerAttributes/0/Value"),
        drifted("Topic", "AWS::SNS::Topic", "DELETED"),
    )
    said = [str(each) for each in detect(STACK, changed.client, sleep=lambda _: None)]
    assert said == [
        f"{STACK}: Alb (its-Alb)\n  /LoadBalancerAttributes/0/Value: 1 in the template, 2 in the account",
        f"{STACK}: Topic (its-Topic) was deleted",
    ]


def test_what_scaling_and_the_moves_of_cells_change_is_no_drift(changed: CloudFormation) -> None:
    changed.says("DETECTION_COMPLETE", StackDriftStatus="DRIFTED")
    group = drifted("Group", "AWS::AutoScaling::AutoScalingGroup", "MODIFIED", "/MinSize", "/MaxSize")
    changed.found(group, drifted("Record", "AWS::Route53::RecordSet", "MODIFIED", "/Weight"))
    (only,) = detect(STACK, changed.client)
    assert only.changes == ("/MaxSize: 1 in the template, 2 in the account",)


@pytest.mark.parametrize("changes", [(), ("/X: 1 in the template, 2 in the account",)])
def test_programs_get_what_drifted_as_json(
    changes: tuple[str, ...], monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    found = Drifted("peakplan-dev-edge", "Topic (t)", changes)
    monkeypatch.setattr(drift, "detect", lambda stack, _: [found] if stack.endswith("edge") else [])
    assert drift.main(["dev", "--json"]) == 1
    told = {"stack": found.stack, "resource": found.resource, "changes": list(changes)}
    assert json.loads(capsys.readouterr().out) == {"fleet": "dev", "drifted": [told]}


def test_a_stack_that_cannot_be_compared_is_an_error(changed: CloudFormation) -> None:
    changed.says("DETECTION_FAILED", DetectionStatusReason="the stack is in UPDATE_IN_PROGRESS")
    with pytest.raises(DriftError, match="UPDATE_IN_PROGRESS"):
        list(detect(STACK, changed.client))


DOMAIN = "moving.internal"
NAMES = (f"plan.{DOMAIN}", f"assistant.plan.{DOMAIN}")


def fleet(**network: Any) -> FleetSettings:
    changes = {"cells": 3, "network": {"domain": DOMAIN, "cell_weights": [3, 2, 1]} | network}
    return FleetSettings.model_validate(dev_with(changes))


@pytest.fixture
def zone(moto_server: MotoServer) -> Iterator[str]:
    """The fleet's zone as the Edge stack makes it, and another of the same domain that is not the fleet's."""
    route53 = moto_server.client("route53")
    vpc = moto_server.client("ec2").create_vpc(CidrBlock="10.90.0.0/24")["Vpc"]["VpcId"]
    made = [
        route53.create_hosted_zone(
            Name=DOMAIN,
            CallerReference=comment,
            HostedZoneConfig={"Comment": comment, "PrivateZone": True},
            VPC={"VPCRegion": "us-east-1", "VPCId": vpc},
        )["HostedZone"]["Id"]
        for comment in ("Peakplan dev", "somebody else's")
    ]
    for name in NAMES:
        for cell, weight in (("cell-1", 3), ("cell-2", 2), ("cell-3", 1)):
            balancer = {"DNSName": f"{cell}.elb.amazonaws.com", "HostedZoneId": "Z35SXDOTRQ7X7K"}
            record: dict[str, Any] = {"Name": name, "Type": "A", "SetIdentifier": cell, "Weight": weight}
            record["AliasTarget"] = balancer | {"EvaluateTargetHealth": True}
            if not (name.startswith("assistant") and cell == "cell-3"):
                change = {"Changes": [{"Action": "CREATE", "ResourceRecordSet": record}]}
                route53.change_resource_record_sets(HostedZoneId=made[0], ChangeBatch=change)
    yield made[0]
    moto_server.empty()


@pytest.fixture
def fleet_cells(moto_server: MotoServer, zone: str, monkeypatch: pytest.MonkeyPatch) -> Cells:
    """Room everywhere, unless a test says otherwise."""
    assert zone
    found = Cells(fleet(), moto_server.client)
    monkeypatch.setattr(found, "loads", lambda: dict.fromkeys(fleet().cell_names, Load(3, 10)))
    return found


def test_out_takes_every_name_s_weight_and_in_gives_it_back(
    fleet_cells: Cells, moto_server: MotoServer, zone: str
) -> None:
    before = fleet_cells.weights()
    fleet_cells.move_out("cell-2")
    records = moto_server.client("route53").list_resource_record_sets(HostedZoneId=zone)["ResourceRecordSets"]
    targets = {record["AliasTarget"]["DNSName"] for record in records if record.get("SetIdentifier") == "cell-2"}
    assert targets == {"cell-2.elb.amazonaws.com"}, "the balancer behind a name stays as it was"
    assert fleet_cells.weights() == {
        NAMES[0]: {"cell-1": 3, "cell-2": 0, "cell-3": 1},
        NAMES[1]: {"cell-1": 3, "cell-2": 0},
    }
    assert "cell-2 0 (out)" in cells.describe(fleet_cells)
    fleet_cells.move_out("cell-2")
    fleet_cells.move_in("cell-2")
    assert fleet_cells.weights() == before


def test_what_would_hurt_and_what_does_not_exist_is_refused(
    fleet_cells: Cells, moto_server: MotoServer, monkeypatch: pytest.MonkeyPatch
) -> None:
    with pytest.raises(CellShiftError, match="'cell-9' is no cell of dev: cell-1, cell-2, cell-3"):
        fleet_cells.move_out("cell-9")
    elsewhere = Cells(fleet(domain="nowhere.internal"), moto_server.client)
    with pytest.raises(CellShiftError, match="are these the fleet's credentials"):
        elsewhere.weights()
    monkeypatch.setattr(fleet_cells, "loads", lambda: dict.fromkeys(fleet().cell_names, Load(8, 10)))
    with pytest.raises(CellShiftError, match="24 instances serve now, and the other cells may have 20"):
        fleet_cells.move_out("cell-2")
    fleet_cells.move_out("cell-2", force=True)
    assert fleet_cells.weights()[NAMES[0]]["cell-2"] == 0
    with pytest.raises(CellShiftError, match="would have no cell left"):  # the last cell of a name stays
        fleet_cells.move_out("cell-1", force=True)
    assert fleet_cells.weights()[NAMES[1]]["cell-1"] == 3


@pytest.fixture
def listener(moto_server: MotoServer) -> str:
    """The balancer of cell-2 in a stack as the fleet names it."""
    ec2, stacks = moto_server.client("ec2"), moto_server.client("cloudformation")
    subnets = [each["SubnetId"] for each in ec2.describe_subnets()["Subnets"][:2]]
    certificate = moto_server.client("acm").request_certificate(DomainName=f"plan.{DOMAIN}")["CertificateArn"]
    targets = {"Protocol": "HTTP", "Port": 8080, "VpcId": ec2.describe_vpcs()["Vpcs"][0]["VpcId"]}
    listens: dict[str, Any] = {"LoadBalancerArn": {"Ref": "LoadBalancer"}, "Port": 443, "Protocol": "HTTPS"}
    listens["Certificates"] = [{"CertificateArn": certificate}]
    listens["DefaultActions"] = [{"Type": "forward", "TargetGroupArn": {"Ref": "TargetGroup"}}]
    made = {"TargetGroup": targets, "LoadBalancer": {"Subnets": subnets, "Scheme": "internal"}, "Listener": listens}
    resources = {
        kind: {"Type": f"AWS::ElasticLoadBalancingV2::{kind}", "Properties": properties}
        for kind, properties in made.items()
    }
    stacks.create_stack(StackName="peakplan-dev-cell-2", TemplateBody=json.dumps({"Resources": resources}))
    found = stacks.list_stack_resources(StackName="peakplan-dev-cell-2")["StackResourceSummaries"]
    (arn,) = [each["PhysicalResourceId"] for each in found if each["LogicalResourceId"] == "Listener"]
    return str(arn)


def test_a_cell_that_refuses_answers_503_until_it_is_back(
    fleet_cells: Cells, moto_server: MotoServer, listener: str
) -> None:
    def actions() -> Any:
        return moto_server.client("elbv2").describe_listeners(ListenerArns=[listener])["Listeners"][0]["DefaultActions"]

    before = actions()
    fleet_cells.move_out("cell-2")
    fleet_cells.refuse("cell-2")
    assert [each["Type"] for each in actions()] == ["fixed-response"]
    assert actions()[0]["FixedResponseConfig"]["StatusCode"] == "503"
    fleet_cells.refuse("cell-2")  # twice keeps what it did at first
    fleet_cells.move_in("cell-2")
    assert actions() == before
    fleet_cells.move_in("cell-2")


@pytest.mark.usefixtures("zone")
def test_the_command_says_what_it_did_and_why_not(
    moto_server: MotoServer, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    file = tmp_path / "fleet.yaml"
    changes = {"cells": 3, "network": {"domain": DOMAIN, "cell_weights": [3, 2, 1]}}
    file.write_text(yaml.safe_dump(dev_with(changes)))
    for name, value in moto_server.environment().items():
        monkeypatch.setenv(name, value)
    assert cells.main(["out", str(file), "cell-1"]) == 0, capsys.readouterr().err
    assert "cell-1 0 (out)" in capsys.readouterr().out
    assert cells.main(["out", str(file), "cell-2"]) == 1
    assert "no cell left" in capsys.readouterr().err
    assert cells.main(["in", str(file), "cell-1"]) == 0
    assert cells.main(["show", "nowhere"]) == 2
