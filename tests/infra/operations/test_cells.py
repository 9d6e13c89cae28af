"""A cell moves out of service and back by one command, and never where that would hurt more than it helps."""

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import yaml

from infra.fleet.settings import FleetSettings
from infra.operations import cells
from infra.operations.cells import Cells, CellShiftError, Load
from tests.infra.fleet.fleets import dev_with
from tests.infra.moto_server import MotoServer

pytestmark = pytest.mark.slow  # moto starts

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


def test_out_takes_every_name_s_weight_and_in_gives_it_back(fleet_cells: Cells) -> None:
    before = fleet_cells.weights()
    fleet_cells.move_out("cell-2")
    assert fleet_cells.weights() == {
        NAMES[0]: {"cell-1": 3, "cell-2": 0, "cell-3": 1},
        NAMES[1]: {"cell-1": 3, "cell-2": 0},
    }
    assert "cell-2 0 (out)" in cells.describe(fleet_cells)
    fleet_cells.move_out("cell-2")
    fleet_cells.move_in("cell-2")
    assert fleet_cells.weights() == before


def test_the_balancer_behind_a_name_stays_as_it_was(fleet_cells: Cells, moto_server: MotoServer, zone: str) -> None:
    fleet_cells.move_out("cell-1")
    records = moto_server.client("route53").list_resource_record_sets(HostedZoneId=zone)["ResourceRecordSets"]
    targets = {record["AliasTarget"]["DNSName"] for record in records if record.get("SetIdentifier") == "cell-1"}
    assert targets == {"cell-1.elb.amazonaws.com"}


def test_the_last_cell_of_a_name_stays(fleet_cells: Cells) -> None:
    fleet_cells.move_out("cell-2")
    with pytest.raises(CellShiftError, match="would have no cell left"):
        fleet_cells.move_out("cell-1")
    assert fleet_cells.weights()[NAMES[1]]["cell-1"] == 3


def test_others_that_are_too_small_are_not_given_the_load(fleet_cells: Cells, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(fleet_cells, "loads", lambda: dict.fromkeys(fleet().cell_names, Load(8, 10)))
    with pytest.raises(CellShiftError, match="24 instances serve now, and the other cells may have 20"):
        fleet_cells.move_out("cell-2")
    fleet_cells.move_out("cell-2", force=True)
    assert fleet_cells.weights()[NAMES[0]]["cell-2"] == 0


def test_what_does_not_exist_is_named(fleet_cells: Cells, moto_server: MotoServer) -> None:
    with pytest.raises(CellShiftError, match="'cell-9' is no cell of dev: cell-1, cell-2, cell-3"):
        fleet_cells.move_out("cell-9")
    elsewhere = Cells(fleet(domain="nowhere.internal"), moto_server.client)
    with pytest.raises(CellShiftError, match="are these the fleet's credentials"):
        elsewhere.weights()


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
