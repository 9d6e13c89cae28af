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
from infra.fleet.shopper_events import key_parameter, stream_name
from infra.fleet.synthetic_plans import ENDPOINTS as CANARIES_REACH
from tests.infra.synthesis import (
    ACCOUNTS,
    AUTHORITY,
    JWT,
    NETWORKS,
    WAYS,
    Template,
    all_of,
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
AMI_DOCUMENTS = len(list((REPOSITORY_ROOT / "ami" / "components").glob("*.yaml")))


def listed(value: str | list[str]) -> list[str]:
    """Return a list: the CDK writes a list of one item as the item."""
    return [value] if isinstance(value, str) else value


@pytest.mark.parametrize("fleet", FLEETS_THAT_SHIP)
def test_the_vpc_is_of_a_size_that_aws_makes_and_its_subnets_hold_the_fleet(fleet: str) -> None:
    settings = FleetSettings.from_yaml(FLEETS / f"{fleet}.yaml")
    network = templates(fleet)["Network"]
    vpc = IPv4Network(only(network, "AWS::EC2::VPC")["CidrBlock"])
    assert 16 <= vpc.prefixlen <= 28
    subnets = [each["CidrBlock"] for each in all_of(network, "EC2::Subnet")]
    assert len(subnets) == len(settings.availability_zones)
    instances = settings.cells * sum(group.maximum for group in settings.groups)
    for subnet in map(IPv4Network, subnets):
        assert subnet.subnet_of(vpc)
        assert subnet.num_addresses - 5 >= addresses.needed_in_a_zone(settings)
        assert addresses.needed_in_a_zone(settings) > instances / (len(settings.availability_zones) - 1)


@pytest.mark.parametrize("fleet", FLEETS_THAT_SHIP)
def test_hosts_reach_what_they_call_and_nothing_else(fleet: str) -> None:
    endpoints, reached = all_of(templates(fleet)["Network"], "EC2::VPCEndpoint"), {}
    for endpoint in endpoints:
        (statement,) = endpoint["PolicyDocument"]["Statement"]
        assert statement["Condition"]["StringEquals"]["aws:PrincipalAccount"] == {"Ref": "AWS::AccountId"}
        service = json.dumps(endpoint["ServiceName"]).rstrip('"}] ').rpartition(".")[2]
        reached[service] = set(listed(statement["Action"]))
    assert reached == {endpoint.service: set(endpoint.actions) for endpoint in (*OF_EVERY_HOST, *CANARIES_REACH)}
    interfaces = [each for each in endpoints if each["VpcEndpointType"] == "Interface"]
    assert len(interfaces) == len(FleetSettings.from_yaml(FLEETS / f"{fleet}.yaml").interface_services)
    of_hosts = {endpoint.service for endpoint in OF_EVERY_HOST}
    cell = templates(fleet)["Cell-1"]
    hosts = {
        name for name, role in resources(cell, "AWS::IAM::Role").items() if "ec2.amazonaws.com" in json.dumps(role)
    }
    policies = [each for each in all_of(cell, "IAM::Policy") if hosts & {role["Ref"] for role in each["Roles"]}]
    for statement in (each for policy in policies for each in policy["PolicyDocument"]["Statement"]):
        for action in set(listed(statement["Action"])) - {SIGNED_ON_THE_HOST}:
            service = action.partition(":")[0]
            assert service in of_hosts, "what canaries reach is nothing to hosts"
            assert action in reached[service], "a host is allowed what it cannot reach"
    assert {each["Port"] for each in all_of(cell, "ElastiCache::ReplicationGroup")} == {PORT}


def test_s3_is_reached_by_a_gateway_where_a_fleet_asks_for_it() -> None:
    network = routed()["Network"]
    (found,) = [each for each in all_of(network, "EC2::VPCEndpoint") if "s3" in json.dumps(each["ServiceName"])]
    assert found["VpcEndpointType"] == "Gateway"
    assert len(found["RouteTableIds"]) == 3
    (statement,) = found["PolicyDocument"]["Statement"]
    canaries = next(endpoint for endpoint in CANARIES_REACH if endpoint.service == "s3")
    assert set(statement["Action"]) == {"s3:GetObject", *canaries.actions}, "one endpoint, for hosts and canaries"


def test_capacity_is_reserved_when_an_event_is_due_and_given_back_at_its_end() -> None:
    stacks = public()
    schedules = all_of(stacks["Cell-1"], "Scheduler::Schedule")
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
    (found,) = [each for each in all_of(template, "ElasticLoadBalancingV2::LoadBalancer") if each["Type"] == kind]
    return found


def test_each_cell_has_an_endpoint_service_of_its_own() -> None:
    cell = locked()["Cell-1"]
    front = only_load_balancer(cell, "network")
    (service,) = all_of(cell, "EC2::VPCEndpointService")
    targets = all_of(cell, "ElasticLoadBalancingV2::TargetGroup")
    (target,) = [each for each in targets if each.get("TargetType") == "alb"]
    allowed = only(cell, "AWS::EC2::VPCEndpointServicePermissions")["AllowedPrincipals"]
    assert front["Scheme"] == "internal"
    assert front["EnforceSecurityGroupInboundRulesOnPrivateLinkTraffic"] == "off"
    assert service["AcceptanceRequired"] is False, "as this fleet says; test_synth.py has the default"
    assert [account in json.dumps(allowed) for account in ACCOUNTS] == [True, True]
    assert (target["HealthCheckProtocol"], target["HealthCheckPort"]) == ("HTTPS", "8443")
    assert "EndpointServiceName" in cell["Outputs"]


@pytest.mark.parametrize(
    ("way", "property"), [("transit_gateway", "TransitGatewayId"), ("peering", "VpcPeeringConnectionId")]
)
def test_callers_networks_are_routed_to(way: str, property: str) -> None:
    id, stacks = WAYS[way], {"transit_gateway": routed, "peering": peered}[way]()
    routes = [each for each in all_of(stacks["Network"], "EC2::Route") if each.get(property) == id]
    assert len(routes) == 2 * 3
    assert {route["DestinationCidrBlock"] for route in routes} == set(NETWORKS)
    attached = resources(stacks["Network"], "AWS::EC2::TransitGatewayAttachment")
    assert len(attached) == (1 if way == "transit_gateway" else 0)
    assert not resources(stacks["Cell-1"], "AWS::EC2::VPCEndpointService")


def test_callers_vpcs_resolve_the_names_for_which_a_private_authority_issues_the_certificate() -> None:
    zone = only(locked()["Edge"], "AWS::Route53::HostedZone")
    assert {"VPCId": "vpc-0123456a", "VPCRegion": "us-east-1"} in zone["VPCs"]
    assert "vpc-0123456b" not in json.dumps(zone), "its owner associates it, once `peakplan fleet access` lets it"
    network = locked()["Network"]
    certificate = only(network, "AWS::CertificateManager::Certificate")
    names = [certificate["DomainName"], *certificate["SubjectAlternativeNames"]]
    assert names == ["plan.planner.internal", "*.plan.planner.internal"]
    assert certificate["CertificateAuthorityArn"] == AUTHORITY
    assert "/peakplan/dev/certificate-arn" in [each["Name"] for each in all_of(network, "SSM::Parameter")]


@pytest.mark.parametrize("fleet", FLEETS_THAT_SHIP)
def test_a_cell_runs_the_image_that_its_stack_was_told_and_says_whom_it_verifies(fleet: str) -> None:
    """A deploy names one, so that all cells get the same; `cdk deploy` by itself takes what was baked last."""
    cell = templates(fleet)["Cell-1"]
    assert cell["Parameters"]["MachineImageId"]["Default"] == NEWEST
    newest = cell["Parameters"]["NewestMachineImageId"]
    assert newest["Type"] == "AWS::SSM::Parameter::Value<AWS::EC2::Image::Id>"
    assert newest["Default"] == FleetSettings.from_yaml(FLEETS / f"{fleet}.yaml").machine_image.parameter
    for launched in (each["LaunchTemplateData"] for each in all_of(cell, "EC2::LaunchTemplate")):
        assert launched["ImageId"] == told("MachineImageId")
        (disk,) = launched["BlockDeviceMappings"]
        assert disk["Ebs"]["VolumeInitializationRate"] == 300, "read at once, not at 5 MiB/s"
        assert disk["Ebs"]["VolumeSize"] == 50, "stopped hosts keep it"
    listeners = all_of(cell, "ElasticLoadBalancingV2::Listener")
    modes = {each.get("MutualAuthentication", {}).get("Mode") for each in listeners}
    assert {"dev": "off", "prime-day": "verify"}[fleet] in modes, "who is verified is said even where no caller is"
    said = only_load_balancer(cell, "application")["LoadBalancerAttributes"]
    assert {"Key": "connection_logs.s3.enabled", "Value": "true"} in said, "handshakes that fail are logged"


def test_a_release_in_the_account_may_read_what_templates_name() -> None:
    policies = all_of(templates("dev")["Rollout"], "IAM::Policy")
    said = [each for policy in policies for each in policy["PolicyDocument"]["Statement"]]
    (read,) = [each for each in said if each["Action"] == "ssm:GetParameters"]
    text = json.dumps(read["Resource"])
    for name in ("peakplan/dev/*", "cdk-bootstrap/hnb659fds/version", "imagebuilder/peakplan/dev/machine-image"):
        assert f":parameter/{name}" in text


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
    found = all_of(stacks["Cell-1"], "ElasticLoadBalancingV2::Listener")
    (callers,) = [each for each in found if "SslPolicy" in each and each["Port"] == 443]
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
    groups = all_of(cell, "EC2::SecurityGroup")
    sources = [rule["CidrIp"] for group in groups for rule in group.get("SecurityGroupIngress", [])]
    assert sources == ["198.51.100.0/24"]
    for group in all_of(cell, "AutoScaling::AutoScalingGroup"):  # hosts stay private
        hosts = [parameters[subnet["Ref"]] for subnet in group["VPCZoneIdentifier"]]
        assert hosts == [f"/peakplan/dev/network/cell-subnet-{number}" for number in (1, 2, 3)]


def test_nat_is_one_gateway_a_zone_and_hosts_may_reach_https_through_it() -> None:
    network = public()["Network"]
    assert len(resources(network, "AWS::EC2::NatGateway")) == 3
    through = [route for route in all_of(network, "EC2::Route") if "NatGatewayId" in route]
    assert through
    assert all("DestinationCidrBlock" in route for route in through)
    groups = all_of(public()["Cell-1"], "EC2::SecurityGroup")
    rules = [rule for group in groups for rule in group.get("SecurityGroupEgress", [])]
    anywhere = [(rule["FromPort"], rule["ToPort"]) for rule in rules if rule.get("CidrIp") == "0.0.0.0/0"]
    assert anywhere == [(443, 443)]
    network = locked()["Network"]  # without NAT nothing reaches the internet
    assert not resources(network, "AWS::EC2::NatGateway")
    assert not resources(network, "AWS::EC2::InternetGateway")
    assert "0.0.0.0/0" not in json.dumps(resources(locked()["Cell-1"], "AWS::EC2::SecurityGroup"))


def test_a_group_asks_for_its_capacity_in_each_zone_hours_before_an_event_which_ends_it() -> None:
    cell = locked()["Cell-1"]
    calls = all_of(cell, "Scheduler::Schedule")
    assert {each["ScheduleExpression"] for each in calls} == {"at(2030-07-12T23:00:00)"}
    assert {each["Target"]["RetryPolicy"]["MaximumEventAgeInSeconds"] for each in calls} == {28800}, "until it starts"
    asked = [json.loads(each["Target"]["Input"]) for each in calls]
    assert {each["AvailabilityZone"] for each in asked} == {"us-east-1a", "us-east-1b", "us-east-1c"}
    assert {(each["InstanceType"], each["EndDate"]) for each in asked} == {("trn1.2xlarge", "2030-07-14T07:00:00Z")}
    assert len({each["ClientToken"] for each in asked}) == 3, "a call that is tried again reserves nothing twice"
    assert {tag["Value"] for each in asked for tag in each["TagSpecifications"][0]["Tags"]} == {"dev", "cell-1"}
    (role,) = [each for each in all_of(cell, "IAM::Policy") if "ec2:Create" in json.dumps(each)]
    assert '"Resource": "*"' not in json.dumps(role)


def test_each_architecture_has_a_pipeline_and_the_parameter_that_its_image_is_named_by() -> None:
    image = peered()["Image"]
    recipes = {each["Name"]["Fn::Join"][1][0]: each for each in all_of(image, "ImageBuilder::ImageRecipe")}
    assert set(recipes) == {"peakplan-dev-", "peakplan-dev-arm64-"}
    told = {
        name: {
            parameter["Name"]: parameter["Value"][0]
            for component in recipe["Components"]
            for parameter in component.get("Parameters", [])
        }
        for name, recipe in recipes.items()
    }
    assert (told["peakplan-dev-"]["CHIPS"], told["peakplan-dev-arm64-"]["CHIPS"]) == ("inf2 trn1", "cpu")
    assert "python:3.11" in told["peakplan-dev-arm64-"]["CONTAINER"]
    built = {each["Name"]: each["InstanceTypes"] for each in all_of(image, "ImageBuilder::InfrastructureConfiguration")}
    assert built == {"peakplan-dev": ["inf2.xlarge"], "peakplan-dev-arm64": ["c8g.4xlarge"]}
    written = {
        parameter["ParameterName"]
        for each in all_of(image, "ImageBuilder::DistributionConfiguration")
        for distribution in each["Distributions"]
        for parameter in distribution["SsmParameterConfigurations"]
    }
    named = "/imagebuilder/peakplan/dev/machine-image"
    assert written == {named, f"{named}-arm64"}
    assert {"PipelineArn", "Arm64PipelineArn"} <= set(image["Outputs"])
    assert len(resources(image, "AWS::ImageBuilder::Component")) == AMI_DOCUMENTS, "the documents are shared"


def test_a_build_reaches_ubuntu_s_archives_which_speak_no_tls() -> None:
    """Canonical's images fetch packages from <region>.ec2.archive.ubuntu.com and ports.ubuntu.com by HTTP alone."""
    groups = all_of(peered()["Image"], "EC2::SecurityGroup")
    (builds,) = [group for group in groups if group["GroupDescription"] == "Image builds"]
    assert sorted(rule["FromPort"] for rule in builds["SecurityGroupEgress"]) == [80, 443]
    assert "SecurityGroupIngress" not in builds


def test_hosts_boot_the_image_of_their_architecture() -> None:
    launched = [each["LaunchTemplateData"] for each in all_of(peered()["Cell-1"], "EC2::LaunchTemplate")]
    assert {each["InstanceType"]: each["ImageId"] for each in launched} == {
        "inf2.xlarge": told("MachineImageId"),
        "trn1.2xlarge": told("MachineImageId"),
        "c8g.4xlarge": told("Arm64MachineImageId"),
    }
    releases = {
        line
        for each in launched
        for line in json.dumps(each["UserData"]).split("PEAKPLAN_")
        if line.startswith("RELEASE=")
    }
    assert len(releases) == 1, "one name for a release, whatever a host boots"
    assert "Arm64MachineImageId" not in locked()["Cell-1"]["Parameters"]


@pytest.mark.parametrize("stack", ["Image", "Cell-1"])
def test_cfn_lint_is_content_with_two_architectures(stack: str) -> None:
    assert lint_findings(peered()[stack]) == []


def test_a_fleet_with_shoppers_events_gathers_them_in_a_bucket() -> None:
    found, firehose = locked(), "AWS::KinesisFirehose::DeliveryStream"
    cell, over = found["Cell-1"], found["Observability"]
    for launched in all_of(cell, "EC2::LaunchTemplate"):
        data = json.dumps(launched["LaunchTemplateData"]["UserData"])
        assert "PEAKPLAN_OUTCOMES_DIR=/var/lib/peakplan/outcomes" in data
        assert "PEAKPLAN_OUTCOMES_FIREHOSE=arn:" in data
        assert "PEAKPLAN_EXPERIMENT_NAME=autumn" in data
        assert "PEAKPLAN_EXPERIMENT_ARMS=control=50,2=30,rules=20" in data
    allowed, reached = json.dumps(all_of(cell, "IAM::Policy")), json.dumps(all_of(found["Network"], "EC2::VPCEndpoint"))
    assert f"parameter{key_parameter('dev')}" in allowed
    assert "firehose:PutRecordBatch" in allowed
    assert "kinesis-firehose" in reached
    assert "ssm:GetParameter" in reached
    stream = only(over, firehose)
    assert stream["DeliveryStreamName"] == stream_name("dev")
    kept = over["Resources"][stream["ExtendedS3DestinationConfiguration"]["BucketARN"]["Fn::GetAtt"][0]]["Properties"]
    assert kept["LifecycleConfiguration"]["Rules"][0]["ExpirationInDays"] == 40
    assert all(kept["PublicAccessBlockConfiguration"].values())
    assert not resources(public()["Observability"], firehose), "which does not ask"
    assert "PEAKPLAN_OUTCOMES" not in json.dumps(public()["Cell-1"])
