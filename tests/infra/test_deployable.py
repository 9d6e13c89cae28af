"""What AWS would refuse though linters and moto accept it; the sources are in the code that each test is about."""

import json
from ipaddress import IPv4Network
from typing import Any

import pytest

from infra.fleet import addresses
from infra.fleet.endpoints import OF_EVERY_HOST
from infra.fleet.images import NEWEST
from infra.fleet.settings import FLEETS, FleetSettings
from infra.fleet.shared_cache import PORT
from infra.fleet.synthetic_plans import ENDPOINTS as CANARIES_REACH
from tests.infra.branches import ACCOUNTS, AUTHORITY, NETWORKS, WAYS, locked, peered, public, routed
from tests.infra.fleet.fleets import dev_fleet
from tests.infra.synthesis import Template, only, resources, templates, told

pytestmark = pytest.mark.slow  # a synth of each fleet, once
# It is no request: the token is signed on the host, and the cache has addresses in the cell's own subnets.
SIGNED_ON_THE_HOST = "elasticache:Connect"
FLEETS_THAT_SHIP = ("dev", "prime-day")


def listed(value: str | list[str]) -> list[str]:
    """CDK writes a list of one as the one."""
    return [value] if isinstance(value, str) else value


def every_resource(fleet: str) -> list[Any]:
    return [each for template in templates(fleet).values() for each in template["Resources"].values()]


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


@pytest.mark.parametrize("fleet", FLEETS_THAT_SHIP)
def test_no_load_balancer_capacity_is_reserved_by_default(fleet: str) -> None:
    for balancer in resources(templates(fleet)["Cell-1"], "AWS::ElasticLoadBalancingV2::LoadBalancer").values():
        assert "MinimumLoadBalancerCapacity" not in balancer["Properties"]
    schedules = resources(templates(fleet)["Cell-1"], "AWS::Scheduler::Schedule").values()
    assert not [each for each in schedules if "elasticloadbalancing" in each["Properties"]["Target"]["Arn"]]


def test_capacity_is_reserved_when_an_event_is_due_and_given_back_at_its_end() -> None:
    stacks = public()
    schedules = [each["Properties"] for each in resources(stacks["Cell-1"], "AWS::Scheduler::Schedule").values()]
    requests = {each["ScheduleExpression"]: json.dumps(each["Target"]["Input"]) for each in schedules}
    assert set(requests) == {"at(2030-07-13T06:00:00)", "at(2030-07-14T07:00:00)"}
    assert r"{\"CapacityUnits\":100}" in requests["at(2030-07-13T06:00:00)"].replace('\\\\"', '\\"')
    assert "ResetCapacityReservation" in requests["at(2030-07-14T07:00:00)"]
    balancer = only_load_balancer(stacks["Cell-1"], "application")
    assert "MinimumLoadBalancerCapacity" not in balancer


@pytest.mark.parametrize("fleet", FLEETS_THAT_SHIP)
def test_nothing_stays_of_a_first_create_that_failed(fleet: str) -> None:
    """With a fixed name it would refuse every retry; a delete, which is another thing, keeps what it must."""
    kept = {each["Type"]: each.get("DeletionPolicy") for each in every_resource(fleet) if "DeletionPolicy" in each}
    assert kept
    assert "Retain" not in kept.values()
    if fleet == "prime-day":
        assert kept["AWS::Logs::LogGroup"] == kept["AWS::S3::Bucket"] == "RetainExceptOnCreate"
    assert "AWS::ECR::Repository" not in {each["Type"] for each in every_resource(fleet)}, "hosts pull nothing"


def test_a_recipe_s_version_follows_everything_that_it_holds() -> None:
    """Image Builder refuses a version that exists with other contents."""
    both, alone = only(templates("dev")["Image"], RECIPE), only(routed()["Image"], RECIPE)
    assert both["Version"] != alone["Version"]
    base = both["ParentImage"]["Ref"]
    assert base in json.dumps(both["Name"]), "another base image makes another recipe, for its version cannot know it"


RECIPE = "AWS::ImageBuilder::ImageRecipe"


def test_cloudwatch_may_use_the_key_of_the_topic_that_it_notifies() -> None:
    """Its calls to KMS carry no aws:SourceAccount; the topic's own policy holds it to this account."""
    stack = templates("prime-day")["Observability"]
    for key in resources(stack, "AWS::KMS::Key").values():
        statements = key["Properties"]["KeyPolicy"]["Statement"]
        (alarms,) = [each for each in statements if "cloudwatch" in json.dumps(each["Principal"])]
        assert "Condition" not in alarms
    policies = resources(stack, "AWS::SNS::TopicPolicy").values()
    assert len(policies) == 2, "pages and tickets"
    for policy in policies:
        publishing = [each for each in policy["Properties"]["PolicyDocument"]["Statement"] if each["Effect"] == "Allow"]
        assert all("aws:SourceAccount" in json.dumps(each["Condition"]) for each in publishing)


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


def test_without_named_accounts_only_the_fleet_s_own_makes_endpoints() -> None:
    allowed = only(templates("dev")["Cell-1"], "AWS::EC2::VPCEndpointServicePermissions")["AllowedPrincipals"]
    assert json.dumps(allowed).count("AWS::AccountId") == 1


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


def test_every_cell_has_a_name_of_its_own() -> None:
    records = resources(templates("prime-day")["Edge"], "AWS::Route53::RecordSet").values()
    own = {each["Properties"]["Name"] for each in records if "Weight" not in each["Properties"]}
    assert own == {f"cell-{number}.plan.planner.internal" for number in range(1, 7)}


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


@pytest.mark.parametrize("fleet", FLEETS_THAT_SHIP)
def test_a_refresh_waits_for_the_balancer_and_its_way_back_needs_no_second_fleet(fleet: str) -> None:
    for group in resources(templates(fleet)["Cell-1"], "AWS::AutoScaling::AutoScalingGroup").values():
        preferences = group["UpdatePolicy"]["AutoScalingInstanceRefresh"]["Preferences"]
        assert preferences["InstanceWarmup"] == 30
        assert preferences["MinHealthyPercentage"] == {"Fn::If": ["FastRefresh", 80, 100]}
        assert preferences["MaxHealthyPercentage"] == {"Fn::If": ["FastRefresh", 180, 150]}


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


def test_handshakes_that_fail_are_logged() -> None:
    for balancer in resources(templates("dev")["Cell-1"], "AWS::ElasticLoadBalancingV2::LoadBalancer").values():
        said = {each["Key"]: each["Value"] for each in balancer["Properties"]["LoadBalancerAttributes"]}
        is_front = balancer["Properties"].get("Type") == "network"
        assert is_front or said["connection_logs.s3.enabled"] == "true"


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
