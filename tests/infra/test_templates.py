"""Templates that linters accept and AWS would refuse, and branches that the shipped fleets do not use."""

import json
from ipaddress import IPv4Network
from typing import Any

import pytest

from infra.fleet import addresses
from infra.fleet.images import NEWEST
from infra.fleet.network_parts import OF_EVERY_HOST
from infra.fleet.parts import REPOSITORY_ROOT
from infra.fleet.settings import FLEETS, FleetSettings
from infra.fleet.shared_cache import PORT
from infra.fleet.synthetic_plans import ENDPOINTS as CANARIES_REACH
from tests.infra.fleet.fleets import dev_fleet
from tests.infra.synthesis import (
    ACCOUNTS,
    AUTHORITY,
    JWT,
    NETWORKS,
    WAYS,
    Template,
    lint_findings,
    locked,
    only,
    peered,
    public,
    resources,
    routed,
    templates,
    told,
)

pytestmark = pytest.mark.slow  # a synth of each fleet, once
# It is no request: the token is signed on the host, and the cache has addresses in the cell's own subnets.
SIGNED_ON_THE_HOST = "elasticache:Connect"
FLEETS_THAT_SHIP = ("dev", "prime-day")


def listed(value: str | list[str]) -> list[str]:
    """Return a list: the CDK writes a list of one item as the item."""
    return [value] if isinstance(value, str) else value


@pytest.mark.parametrize("fleet", FLEETS_THAT_SHIP)
def test_the_vpc_is_of_a_size_that_aws_makes_and_its_subnets_hold_the_fleet(fleet: str) -> None:
    settings = FleetSettings.from_yaml(FLEETS / f"{fleet}.yaml")
    network = templates(fleet)["Network"]
    vpc = IPv4Network(only(network, "AWS::EC2::VPC")["CidrBlock"])
    assert 16 <= vpc.prefixlen <= 28
    subnets = [each["Properties"]["CidrBlock"] for each in resources(network, "AWS::EC2::Subnet").values()]
    assert len(subnets) == len(settings.availability_zones)
    instances = settings.cells * sum(group.maximum for group in settings.groups)
    for subnet in map(IPv4Network, subnets):
        assert subnet.subnet_of(vpc)
        assert subnet.num_addresses - 5 >= addresses.needed_in_a_zone(settings)
        assert addresses.needed_in_a_zone(settings) > instances / (len(settings.availability_zones) - 1)


@pytest.mark.parametrize("fleet", FLEETS_THAT_SHIP)
def test_hosts_reach_what_they_call_and_nothing_else(fleet: str) -> None:
    endpoints = resources(templates(fleet)["Network"], "AWS::EC2::VPCEndpoint").values()
    reached = {}
    for endpoint in endpoints:
        (statement,) = endpoint["Properties"]["PolicyDocument"]["Statement"]
        assert statement["Condition"]["StringEquals"]["aws:PrincipalAccount"] == {"Ref": "AWS::AccountId"}
        service = json.dumps(endpoint["Properties"]["ServiceName"]).rstrip('"}] ').rpartition(".")[2]
        reached[service] = set(listed(statement["Action"]))
    assert reached == {endpoint.service: set(endpoint.actions) for endpoint in (*OF_EVERY_HOST, *CANARIES_REACH)}
    interfaces = [each for each in endpoints if each["Properties"]["VpcEndpointType"] == "Interface"]
    assert len(interfaces) == len(FleetSettings.from_yaml(FLEETS / f"{fleet}.yaml").interface_services)
    of_hosts = {endpoint.service for endpoint in OF_EVERY_HOST}
    cell = templates(fleet)["Cell-1"]
    hosts = {
        name for name, role in resources(cell, "AWS::IAM::Role").items() if "ec2.amazonaws.com" in json.dumps(role)
    }
    for policy in resources(cell, "AWS::IAM::Policy").values():
        if not hosts & {role["Ref"] for role in policy["Properties"]["Roles"]}:
            continue
        for statement in policy["Properties"]["PolicyDocument"]["Statement"]:
            for action in set(listed(statement["Action"])) - {SIGNED_ON_THE_HOST}:
                service = action.partition(":")[0]
                assert service in of_hosts, "what canaries reach is nothing to hosts"
                assert action in reached[service], "a host is allowed what it cannot reach"
    assert {each["Properties"]["Port"] for each in resources(cell, "AWS::ElastiCache::ReplicationGroup").values()} == {
        PORT
    }


def test_s3_is_reached_by_a_gateway_where_a_fleet_asks_for_it() -> None:
    network = routed()["Network"]
    (found,) = [
        each["Properties"]
        for each in resources(network, "AWS::EC2::VPCEndpoint").values()
        if "s3" in json.dumps(each["Properties"]["ServiceName"])
    ]
    assert found["VpcEndpointType"] == "Gateway"
    assert len(found["RouteTableIds"]) == 3
    (statement,) = found["PolicyDocument"]["Statement"]
    canaries = next(endpoint for endpoint in CANARIES_REACH if endpoint.service == "s3")
    assert set(statement["Action"]) == {"s3:GetObject", *canaries.actions}, "one endpoint, for hosts and canaries"


def test_capacity_is_reserved_when_an_event_is_due_and_given_back_at_its_end() -> None:
    stacks = public()
    schedules = [each["Properties"] for each in resources(stacks["Cell-1"], "AWS::Scheduler::Schedule").values()]
    requests = {each["ScheduleExpression"]: json.dumps(each["Target"]["Input"]) for each in schedules}
    assert set(requests) == {"at(2030-07-13T06:00:00)", "at(2030-07-14T07:00:00)"}
    assert r"{\"CapacityUnits\":100}" in requests["at(2030-07-13T06:00:00)"].replace('\\\\"', '\\"')
    assert "ResetCapacityReservation" in requests["at(2030-07-14T07:00:00)"]
    balancer = only_load_balancer(stacks["Cell-1"], "application")
    assert "MinimumLoadBalancerCapacity" not in balancer


def test_a_recipe_s_version_follows_everything_that_it_holds() -> None:
    """Image Builder refuses a version that exists with other contents."""
    both, alone = only(templates("dev")["Image"], RECIPE), only(routed()["Image"], RECIPE)
    assert both["Version"] != alone["Version"]
    base = both["ParentImage"]["Ref"]
    assert base in json.dumps(both["Name"]), "another base image makes another recipe, for its version cannot know it"


RECIPE = "AWS::ImageBuilder::ImageRecipe"


def only_load_balancer(template: Template, kind: str) -> Any:
    """The properties of the one load balancer of its kind."""
    (found,) = [
        each["Properties"]
        for each in resources(template, "AWS::ElasticLoadBalancingV2::LoadBalancer").values()
        if each["Properties"]["Type"] == kind
    ]
    return found


def test_each_cell_has_an_endpoint_service_of_its_own() -> None:
    cell = locked()["Cell-1"]
    front = only_load_balancer(cell, "network")
    (service,) = resources(cell, "AWS::EC2::VPCEndpointService").values()
    (target,) = [
        each["Properties"]
        for each in resources(cell, "AWS::ElasticLoadBalancingV2::TargetGroup").values()
        if each["Properties"].get("TargetType") == "alb"
    ]
    allowed = only(cell, "AWS::EC2::VPCEndpointServicePermissions")["AllowedPrincipals"]
    assert front["Scheme"] == "internal"
    assert front["EnforceSecurityGroupInboundRulesOnPrivateLinkTraffic"] == "off"
    assert service["Properties"]["AcceptanceRequired"] is False, "as this fleet says; test_checkov.py has the default"
    assert [account in json.dumps(allowed) for account in ACCOUNTS] == [True, True]
    assert (target["HealthCheckProtocol"], target["HealthCheckPort"]) == ("HTTPS", "8443")
    assert "EndpointServiceName" in cell["Outputs"]


@pytest.mark.parametrize(
    ("way", "property"), [("transit_gateway", "TransitGatewayId"), ("peering", "VpcPeeringConnectionId")]
)
def test_callers_networks_are_routed_to(way: str, property: str) -> None:
    id, stacks = WAYS[way], {"transit_gateway": routed, "peering": peered}[way]()
    routes = [
        each["Properties"]
        for each in resources(stacks["Network"], "AWS::EC2::Route").values()
        if each["Properties"].get(property) == id
    ]
    assert len(routes) == 2 * 3
    assert {route["DestinationCidrBlock"] for route in routes} == set(NETWORKS)
    attached = resources(stacks["Network"], "AWS::EC2::TransitGatewayAttachment")
    assert len(attached) == (1 if way == "transit_gateway" else 0)
    assert not resources(stacks["Cell-1"], "AWS::EC2::VPCEndpointService")


def test_callers_vpcs_of_this_account_resolve_the_names() -> None:
    zone = only(locked()["Edge"], "AWS::Route53::HostedZone")
    assert {"VPCId": "vpc-0123456a", "VPCRegion": "us-east-1"} in zone["VPCs"]
    assert "vpc-0123456b" not in json.dumps(zone), (
        "its owner associates it, once `peakplan fleet access` has authorised that"
    )


def test_a_private_authority_issues_the_certificate_for_every_name() -> None:
    network = locked()["Network"]
    certificate = only(network, "AWS::CertificateManager::Certificate")
    names = [certificate["DomainName"], *certificate["SubjectAlternativeNames"]]
    assert names == ["plan.planner.internal", "*.plan.planner.internal"]
    assert certificate["CertificateAuthorityArn"] == AUTHORITY
    told = [each["Properties"]["Name"] for each in resources(network, "AWS::SSM::Parameter").values()]
    assert "/peakplan/dev/certificate-arn" in told


@pytest.mark.parametrize("fleet", FLEETS_THAT_SHIP)
def test_a_cell_runs_the_image_that_its_stack_was_told(fleet: str) -> None:
    """A deploy names one, so that all cells get the same; `cdk deploy` by itself takes what was baked last."""
    cell = templates(fleet)["Cell-1"]
    assert cell["Parameters"]["MachineImageId"]["Default"] == NEWEST
    newest = cell["Parameters"]["NewestMachineImageId"]
    assert newest["Type"] == "AWS::SSM::Parameter::Value<AWS::EC2::Image::Id>"
    assert newest["Default"] == FleetSettings.from_yaml(FLEETS / f"{fleet}.yaml").machine_image.parameter
    for template in resources(cell, "AWS::EC2::LaunchTemplate").values():
        launched = template["Properties"]["LaunchTemplateData"]
        assert launched["ImageId"] == told("MachineImageId")
        (disk,) = launched["BlockDeviceMappings"]
        assert disk["Ebs"]["VolumeInitializationRate"] == 300, "read at once, not at 5 MiB/s"
        assert disk["Ebs"]["VolumeSize"] == 50, "stopped hosts keep it"


def test_a_release_in_the_account_may_read_what_templates_name() -> None:
    policies = resources(templates("dev")["Rollout"], "AWS::IAM::Policy").values()
    said = [each for policy in policies for each in policy["Properties"]["PolicyDocument"]["Statement"]]
    (read,) = [each for each in said if each["Action"] == "ssm:GetParameters"]
    text = json.dumps(read["Resource"])
    for name in ("peakplan/dev/*", "cdk-bootstrap/hnb659fds/version", "imagebuilder/peakplan/dev/machine-image"):
        assert f":parameter/{name}" in text


@pytest.mark.parametrize("fleet", FLEETS_THAT_SHIP)
def test_who_is_verified_is_said_even_where_nobody_is(fleet: str) -> None:
    listeners = resources(templates(fleet)["Cell-1"], "AWS::ElasticLoadBalancingV2::Listener").values()
    modes = {each["Properties"].get("MutualAuthentication", {}).get("Mode") for each in listeners}
    assert {"dev": "off", "prime-day": "verify"}[fleet] in modes
    for balancer in resources(templates(fleet)["Cell-1"], "AWS::ElasticLoadBalancingV2::LoadBalancer").values():
        said = {each["Key"]: each["Value"] for each in balancer["Properties"]["LoadBalancerAttributes"]}
        is_front = balancer["Properties"].get("Type") == "network"
        assert is_front or said["connection_logs.s3.enabled"] == "true", "handshakes that fail are logged"


def test_a_changed_trust_bundle_is_a_changed_template() -> None:
    method = {"method": "mtls", "trust_bundle": "s3://trust-{account}/authorities.pem?versionId=abc"}
    said = dev_fleet({"load_balancer.authentication": method}).load_balancer.authentication
    assert said.trusted("123456789012") == ("trust-123456789012", "authorities.pem", "abc")


def test_an_image_s_tags_say_what_it_is() -> None:
    (distribution,) = only(templates("dev")["Image"], "AWS::ImageBuilder::DistributionConfiguration")["Distributions"]
    tags = distribution["AmiDistributionConfiguration"]["AmiTags"]
    said = ("fleet", "model", "commit", "model-hash", "manifest", "boot-seconds")
    assert set(tags) == {f"peakplan:{name}" for name in said}
    manifest = json.loads(tags["peakplan:manifest"])
    assert set(manifest) == {"service", "model", "host", "sdk"}
    assert tags["peakplan:model-hash"] == manifest["model"]
    assert all(0 < len(value) <= 256 for value in tags.values())


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
    for group in resources(cell, "AWS::AutoScaling::AutoScalingGroup").values():  # hosts stay private
        hosts = [parameters[subnet["Ref"]] for subnet in group["Properties"]["VPCZoneIdentifier"]]
        assert hosts == [f"/peakplan/dev/network/cell-subnet-{number}" for number in (1, 2, 3)]


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


AMI_DOCUMENTS = sorted((REPOSITORY_ROOT / "ami" / "components").glob("*.yaml"))
