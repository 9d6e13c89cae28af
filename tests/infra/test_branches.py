"""What the fleets that ship do not show: JWT, mutual TLS, NAT, a public load balancer, reserved capacity, Graviton."""

import json
from typing import Any

import pytest

from infra.fleet.parts import REPOSITORY_ROOT
from tests.infra.branches import JWT, locked, peered, public, routed
from tests.infra.synthesis import Template, lint_findings, only, resources, told

pytestmark = pytest.mark.slow  # a synth of the dev fleet each


def _listener(stacks: dict[str, Template]) -> Any:
    """The one that callers speak TLS to; the others are for PrivateLink's load balancer and its health checks."""
    found = resources(stacks["Cell-1"], "AWS::ElasticLoadBalancingV2::Listener").values()
    (callers,) = [
        each["Properties"] for each in found if "SslPolicy" in each["Properties"] and each["Properties"]["Port"] == 443
    ]
    return callers


def test_a_jwt_is_verified_before_anything_is_forwarded() -> None:
    verify, forward = sorted(_listener(public())["DefaultActions"], key=lambda action: int(action["Order"]))
    assert verify["Type"] == "jwt-validation"
    assert verify["JwtValidationConfig"] == {"Issuer": JWT["issuer"], "JwksEndpoint": JWT["jwks"]}
    assert forward["Type"] == "forward"


def test_images_are_scanned_where_the_fleet_file_says_so() -> None:
    asked, other = (only(each["Image"], "AWS::ImageBuilder::ImagePipeline") for each in (locked(), public()))
    assert asked["ImageScanningConfiguration"] == {"ImageScanningEnabled": True}
    assert "ImageScanningConfiguration" not in other, "Inspector is billed"


def test_a_cell_without_callers_has_one_host_of_each_kind_and_no_schedule() -> None:
    found = []
    for cell in (routed()["Cell-1"], routed()["Cell-2"]):
        group = only(cell, "AWS::AutoScaling::AutoScalingGroup")
        scheduled = resources(cell, "AWS::AutoScaling::ScheduledAction")
        found.append((group["MinSize"], group["MaxSize"], len(scheduled)))
    assert found == [("1", "2", 0), ("3", "10", 2)]


def test_mutual_tls_verifies_against_the_trust_store_of_the_bundle() -> None:
    cell = locked()["Cell-1"]
    (name,) = resources(cell, "AWS::ElasticLoadBalancingV2::TrustStore")
    store = only(cell, "AWS::ElasticLoadBalancingV2::TrustStore")
    mutual = _listener(locked())["MutualAuthentication"]
    assert mutual["Mode"] == "verify"
    assert name in json.dumps(mutual["TrustStoreArn"])
    assert store["CaCertificatesBundleS3Bucket"] == "trusted-123456789012"
    assert store["CaCertificatesBundleS3Key"] == "authorities/2027.pem"
    assert [action["Type"] for action in _listener(locked())["DefaultActions"]] == ["forward"]


def test_a_public_load_balancer_stands_in_public_subnets_and_lets_named_networks_alone_in() -> None:
    cell = public()["Cell-1"]
    balancer = only(cell, "AWS::ElasticLoadBalancingV2::LoadBalancer")
    assert balancer["Scheme"] == "internet-facing"
    parameters = {name: each["Default"] for name, each in cell["Parameters"].items() if "Default" in each}
    subnets = [parameters[subnet["Ref"]] for subnet in balancer["Subnets"]]
    assert subnets == [f"/peakplan/dev/network/public-subnet-{number}" for number in (1, 2, 3)]
    groups = resources(cell, "AWS::EC2::SecurityGroup").values()
    sources = [rule["CidrIp"] for group in groups for rule in group["Properties"].get("SecurityGroupIngress", [])]
    assert sources == ["198.51.100.0/24"]


def test_hosts_stay_private_behind_a_public_load_balancer() -> None:
    cell = public()["Cell-1"]
    parameters = {name: each["Default"] for name, each in cell["Parameters"].items() if "Default" in each}
    for group in resources(cell, "AWS::AutoScaling::AutoScalingGroup").values():
        subnets = [parameters[subnet["Ref"]] for subnet in group["Properties"]["VPCZoneIdentifier"]]
        assert subnets == [f"/peakplan/dev/network/cell-subnet-{number}" for number in (1, 2, 3)]


def test_nat_is_one_gateway_a_zone_and_hosts_may_reach_https_through_it() -> None:
    network = public()["Network"]
    assert len(resources(network, "AWS::EC2::NatGateway")) == 3
    (routes,) = {
        tuple(sorted(route["Properties"]))
        for route in resources(network, "AWS::EC2::Route").values()
        if "NatGatewayId" in route["Properties"]
    }
    assert "DestinationCidrBlock" in routes
    rules = [
        rule
        for group in resources(public()["Cell-1"], "AWS::EC2::SecurityGroup").values()
        for rule in group["Properties"].get("SecurityGroupEgress", [])
    ]
    anywhere = [(rule["FromPort"], rule["ToPort"]) for rule in rules if rule.get("CidrIp") == "0.0.0.0/0"]
    assert anywhere == [(443, 443)]


def test_without_nat_nothing_reaches_the_internet() -> None:
    network = locked()["Network"]
    assert not resources(network, "AWS::EC2::NatGateway")
    assert not resources(network, "AWS::EC2::InternetGateway")
    assert "0.0.0.0/0" not in json.dumps(resources(locked()["Cell-1"], "AWS::EC2::SecurityGroup"))


def test_a_group_asks_for_its_capacity_in_each_zone_hours_before_an_event_which_ends_it() -> None:
    cell = locked()["Cell-1"]
    calls = [each["Properties"] for each in resources(cell, "AWS::Scheduler::Schedule").values()]
    assert {each["ScheduleExpression"] for each in calls} == {"at(2030-07-12T23:00:00)"}
    assert {each["Target"]["RetryPolicy"]["MaximumEventAgeInSeconds"] for each in calls} == {28800}, "until it starts"
    asked = [json.loads(each["Target"]["Input"]) for each in calls]
    assert {each["AvailabilityZone"] for each in asked} == {"us-east-1a", "us-east-1b", "us-east-1c"}
    assert {(each["InstanceType"], each["EndDate"]) for each in asked} == {("trn1.2xlarge", "2030-07-14T07:00:00Z")}
    assert len({each["ClientToken"] for each in asked}) == 3, "a call that is tried again reserves nothing twice"
    assert {tag["Value"] for each in asked for tag in each["TagSpecifications"][0]["Tags"]} == {"dev", "cell-1"}
    (role,) = [each for each in resources(cell, "AWS::IAM::Policy").values() if "ec2:Create" in json.dumps(each)]
    assert '"Resource": "*"' not in json.dumps(role)


def test_each_architecture_has_a_pipeline_and_the_parameter_that_its_image_is_named_by() -> None:
    image = peered()["Image"]
    recipes = {each["Properties"]["Name"]["Fn::Join"][1][0]: each for each in resources(image, RECIPE).values()}
    assert set(recipes) == {"peakplan-dev-", "peakplan-dev-arm64-"}
    told = {
        name: {
            parameter["Name"]: parameter["Value"][0]
            for component in recipe["Properties"]["Components"]
            for parameter in component.get("Parameters", [])
        }
        for name, recipe in recipes.items()
    }
    assert (told["peakplan-dev-"]["CHIPS"], told["peakplan-dev-arm64-"]["CHIPS"]) == ("inf2 trn1", "cpu")
    assert "python:3.11" in told["peakplan-dev-arm64-"]["CONTAINER"]
    built = {
        each["Properties"]["Name"]: each["Properties"]["InstanceTypes"]
        for each in resources(image, "AWS::ImageBuilder::InfrastructureConfiguration").values()
    }
    assert built == {"peakplan-dev": ["inf2.xlarge"], "peakplan-dev-arm64": ["c8g.4xlarge"]}
    written = {
        parameter["ParameterName"]
        for each in resources(image, "AWS::ImageBuilder::DistributionConfiguration").values()
        for distribution in each["Properties"]["Distributions"]
        for parameter in distribution["SsmParameterConfigurations"]
    }
    named = "/imagebuilder/peakplan/dev/machine-image"
    assert written == {named, f"{named}-arm64"}
    assert {"PipelineArn", "Arm64PipelineArn"} <= set(image["Outputs"])
    assert len(resources(image, "AWS::ImageBuilder::Component")) == len({*AMI_DOCUMENTS}), "the documents are shared"


def test_a_build_reaches_ubuntu_s_archives_which_speak_no_tls() -> None:
    """Canonical's images fetch packages from <region>.ec2.archive.ubuntu.com and ports.ubuntu.com by HTTP alone."""
    (builds,) = [
        group["Properties"]
        for group in resources(peered()["Image"], "AWS::EC2::SecurityGroup").values()
        if group["Properties"]["GroupDescription"] == "Image builds"
    ]
    assert sorted(rule["FromPort"] for rule in builds["SecurityGroupEgress"]) == [80, 443]
    assert "SecurityGroupIngress" not in builds


def test_hosts_boot_the_image_of_their_architecture() -> None:
    launched = resources(peered()["Cell-1"], "AWS::EC2::LaunchTemplate").values()
    images = {
        each["Properties"]["LaunchTemplateData"]["InstanceType"]: each["Properties"]["LaunchTemplateData"]["ImageId"]
        for each in launched
    }
    assert images == {
        "inf2.xlarge": told("MachineImageId"),
        "trn1.2xlarge": told("MachineImageId"),
        "c8g.4xlarge": told("Arm64MachineImageId"),
    }
    releases = {
        line
        for each in launched
        for line in json.dumps(each["Properties"]["LaunchTemplateData"]["UserData"]).split("PEAKPLAN_")
        if line.startswith("RELEASE=")
    }
    assert len(releases) == 1, "one name for a release, whatever a host boots"
    assert "Arm64MachineImageId" not in locked()["Cell-1"]["Parameters"]


@pytest.mark.parametrize("stack", ["Image", "Cell-1"])
def test_cfn_lint_is_content_with_two_architectures(stack: str) -> None:
    assert lint_findings(peered()[stack]) == []


RECIPE = "AWS::ImageBuilder::ImageRecipe"
AMI_DOCUMENTS = sorted((REPOSITORY_ROOT / "ami" / "components").glob("*.yaml"))
