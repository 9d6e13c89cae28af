"""The fleets that ship synthesise: deterministic, clean by every check, in cells that stand alone."""

import json
import os
import re
import subprocess
from collections import Counter
from pathlib import Path
from typing import Any

import pytest
from aws_cdk import App, CfnResource, RemovalPolicy, Stack

from infra.fleet.parts import REPOSITORY_ROOT
from infra.fleet.rollout_machine import definition
from infra.fleet.settings import FLEETS, FleetSettings
from infra.stacks import GUARD_RULES, check
from tests.infra.fleet.fleets import dev_fleet
from tests.infra.synthesis import (
    OWN_KEY,
    Template,
    all_of,
    app_of,
    findings,
    lint_findings,
    locked,
    only,
    resources,
    synthesised,
    templates,
    templates_of,
    told,
)

SHIPPED = ("dev", "prime-day")
FLEET_NAMES = (*SHIPPED, *(pytest.param(name, marks=pytest.mark.slow) for name in ("dev-cpu", "mistral-7b")))
GROUP = "AWS::AutoScaling::AutoScalingGroup"
# Of a security group's descriptions (EC2's API reference, AuthorizeSecurityGroupEgress).
CHARACTERS = re.compile(r"[a-zA-Z0-9. _\-:/()#,@\[\]+=&;{}!$*]{0,255}")
# By which EC2 knows a reservation that was asked for before: a digest of the request, and so of the cell's name.
_TOKEN = re.compile(r"ClientToken\W+[0-9a-f]{64}")


@pytest.mark.parametrize("fleet", FLEET_NAMES)
def test_every_stack_is_there_fits_cloudformation_and_no_check_finds_what_is_not_accepted(fleet: str) -> None:
    outdir, found = synthesised(fleet)
    cells = {f"Cell-{number + 1}" for number in range(FleetSettings.from_yaml(FLEETS / f"{fleet}.yaml").cells)}
    assert set(found) == {"Network", "Image", "Rollout", "Edge", "Observability", "Spending"} | cells
    assert findings(str(outdir)) == []
    for template in found.values():
        assert len(json.dumps(template)) < 1_000_000
        assert len(template["Resources"]) <= 500


@pytest.mark.parametrize("fleet", FLEET_NAMES)
def test_cells_stand_alone_and_nothing_asks_for_what_a_member_account_is_refused(fleet: str) -> None:
    """No word of another cell, and no import: a cell can be retired, and its cache, canary or balancer go, at once.

    Sources: "custom monitors" are the management account's (Cost Management user guide); "rolling updates cannot be
    performed because scheduled action(s) are currently associated" (instance-scheduler-on-aws#705);
    InsufficientInstanceCapacity at the creation of a reservation (EC2 user guide).
    """
    cells = [name for name in templates(fleet) if name.startswith("Cell-")]
    for name, template in templates(fleet).items():
        text, kinds = json.dumps(template), {each["Type"] for each in template["Resources"].values()}
        assert "Fn::ImportValue" not in text, name
        assert name not in cells or not [each for each in cells if each != name and f'{each.lower()}"' in text]
        assert "AWS::EC2::CapacityReservation" not in kinds, "which may lack"
        of_the_payer = [kind for kind in kinds if kind.startswith(("AWS::CE::", "AWS::Budgets::"))]
        assert name == "Spending" or not of_the_payer, "alarms depend on no account that pays"
        for group in resources(template, GROUP).values():  # a rolling update would stand in scheduled actions' way
            assert set(group["UpdatePolicy"]) == {"AutoScalingInstanceRefresh", "AutoScalingScheduledAction"}
        guards = [each for each in template["Resources"].values() if "SecurityGroup" in each["Type"]]
        for said in re.findall(r'"(?:Group)?Description": "([^"]*)"', json.dumps(guards)):
            assert CHARACTERS.fullmatch(said), said


def test_two_synths_are_the_same() -> None:
    assert templates_of(app_of(dev_fleet())) == templates("dev"), "nor does it matter whether types are checked"
    for file in synthesised("dev")[0].glob("*.template.json"):  # metadata has stack traces, which nothing deploys
        assert "jsii-kernel" not in file.read_text(encoding="utf-8"), f"{file.name} names a folder of this run"


def test_node_keeps_what_it_compiled_for_the_next_synth() -> None:
    synthesised("dev")
    assert any(Path(os.environ["NODE_COMPILE_CACHE"]).iterdir())


@pytest.mark.slow
@pytest.mark.parametrize("fleet", FLEET_NAMES)
@pytest.mark.parametrize("stack", ["Network", "Image", "Rollout", "Cell-1", "Edge", "Observability", "Spending"])
def test_cfn_lint_is_content(fleet: str, stack: str) -> None:
    assert lint_findings(templates(fleet)[stack]) == []


def test_prime_day_has_at_least_four_cells_alike_but_for_their_names() -> None:
    cells = {name: template for name, template in templates("prime-day").items() if name.startswith("Cell-")}
    assert len(cells) >= 4
    first = _without_names(cells["Cell-1"], "Cell-1")
    for name, template in cells.items():
        assert _without_names(template, name) == first
    tokens = [set(_TOKEN.findall(json.dumps(template))) for template in cells.values()]
    assert all(tokens)
    assert len(set.union(*tokens)) == sum(map(len, tokens)), "else EC2 would take one cell's reservation for another's"


def test_prime_day_s_processors_stand_in_for_chips_from_the_same_image() -> None:
    settings, stacks = FleetSettings.from_yaml(FLEETS / "prime-day.yaml"), templates("prime-day")
    (stands_in,) = [group for group in settings.groups if group.stands_in]
    cell = stacks["Cell-1"]
    found = {each["Properties"]["AutoScalingGroupName"]: each for each in resources(cell, GROUP).values()}
    processors = found["peakplan-prime-day-cell-1-cpu"]["Properties"]
    assert (processors["MinSize"], processors["MaxSize"]) == (str(stands_in.minimum), str(stands_in.maximum))
    templated = resources(cell, "AWS::EC2::LaunchTemplate").values()
    hosts = [each["Properties"]["LaunchTemplateData"] for each in templated]
    assert {json.dumps(each["ImageId"]) for each in hosts} == {json.dumps(told("MachineImageId"))}
    assert {each["InstanceType"] for each in hosts} == {group.instance_type for group in settings.groups}
    pools = resources(cell, "AWS::AutoScaling::WarmPool").values()
    assert stands_in.maximum in [each["Properties"]["MaxGroupPreparedCapacity"] for each in pools]
    assert '"standing in"' in json.dumps(stacks["Observability"]).replace("\\", "")


def test_people_can_tell_what_a_stack_and_its_resources_are() -> None:
    stacks = templates("prime-day")
    for template in stacks.values():
        assert template["Description"].startswith("Peakplan prime-day: ")
        assert template["Outputs"]
    wanted = {"peakplan:fleet": "prime-day", "peakplan:part": "cell-1", "cost-center": "peakplan"}
    for hosts in resources(stacks["Cell-1"], "AWS::EC2::LaunchTemplate").values():
        for made in hosts["Properties"]["LaunchTemplateData"]["TagSpecifications"]:
            assert {tag["Key"]: tag["Value"] for tag in made["Tags"]}.items() >= wanted.items()


def _without_names(template: Template, cell: str) -> list[str]:
    """A cell's resources without its name, nor the ids and digests that are made of it."""
    named = rf"{_TOKEN.pattern}|{cell}|{cell.replace('-', '')}\w*|peakplan\w+TrustStore\w+"
    texts = [json.dumps(resource) for resource in template["Resources"].values()]
    return sorted(re.sub(named, "cell", text, flags=re.IGNORECASE) for text in texts)


CHECKOV = REPOSITORY_ROOT / ".venv-checkov" / "bin" / "checkov"
# Kinds of resources and the checks that they skip, in one stack of each kind: anything else is mended.
ACCEPTED = {
    ("AWS::S3::Bucket", "CKV_AWS_18"): 3,  # those that hold access logs
    ("AWS::IAM::Policy", "CKV_AWS_111"): 1,  # the canaries', who make their network interfaces
    ("AWS::Logs::LogGroup", "CKV_AWS_158"): 4,
    ("AWS::ElastiCache::ReplicationGroup", "CKV_AWS_31"): 1,  # IAM and RBAC in the place of AUTH's token
    ("AWS::ElasticLoadBalancingV2::LoadBalancer", "CKV_AWS_91"): 1,  # the network load balancer, which passes TCP
}
# What takes no resource but "*" (Service Authorization Reference: Amazon CloudWatch, CloudWatch Logs, AWS X-Ray,
# Amazon S3), or is asked so of a canary (CloudWatch user guide, Required roles and permissions for canaries). The
# deliveries are what the Step Functions guide asks for a state machine that logs.
WITHOUT_RESOURCE = {
    *("cloudwatch:DescribeAlarms", "cloudwatch:GetMetricData"),
    "s3:ListAllMyBuckets",
    *(f"ec2:{verb}NetworkInterface" for verb in ("Create", "Delete")),
    "ec2:DescribeNetworkInterfaces",
    *(f"logs:{verb}LogDelivery" for verb in ("Create", "Get", "Update", "Delete")),
    *("logs:ListLogDeliveries", "logs:PutResourcePolicy", "logs:DescribeResourcePolicies", "logs:DescribeLogGroups"),
    *("xray:GetSamplingRules", "xray:GetSamplingTargets", "xray:PutTelemetryRecords", "xray:PutTraceSegments"),
}
NAMESPACES = ("Peakplan", "CloudWatchSynthetics")


def resources_of(stacks: dict[str, Any]) -> list[dict[str, Any]]:
    """The resources of one stack of each kind: cells are alike."""
    alike = [stack for name, stack in stacks.items() if name == "Cell-1" or "Cell" not in name]
    return [each for stack in alike for each in stack["Resources"].values()]


def skips_of(resource: dict[str, Any]) -> list[dict[str, str]]:
    found: list[dict[str, str]] = resource.get("Metadata", {}).get("checkov", {}).get("skip", [])
    return found


@pytest.mark.slow
@pytest.mark.parametrize("fleet", SHIPPED)
def test_only_these_findings_are_accepted_each_with_a_reason(fleet: str) -> None:
    found: Counter[tuple[str, str]] = Counter()
    for resource in resources_of(templates(fleet)):
        for skip in skips_of(resource):
            found[resource["Type"], skip["id"]] += 1
            assert len(skip["comment"].split()) >= 8, skip
    assert found == ACCEPTED
    for resource in resources_of(templates(fleet)):  # what was mended stays mended
        properties, skipped = resource.get("Properties", {}), {skip["id"] for skip in skips_of(resource)}
        match resource["Type"]:
            case "AWS::S3::Bucket":
                assert ("LoggingConfiguration" in properties) != ("CKV_AWS_18" in skipped)
            case "AWS::EC2::VPCEndpointService":
                assert properties["AcceptanceRequired"] is True
            case "AWS::IAM::Policy":
                for statement in properties["PolicyDocument"]["Statement"]:
                    if statement["Resource"] == "*":
                        actions = [statement["Action"]] if isinstance(statement["Action"], str) else statement["Action"]
                        namespace = statement.get("Condition", {}).get("StringEquals", {}).get("cloudwatch:namespace")
                        of_ours = {"cloudwatch:PutMetricData"} if namespace in NAMESPACES else set()
                        for action in actions:
                            assert action.startswith("ssmmessages:") or action in of_ours | WITHOUT_RESOURCE, statement


@pytest.mark.slow
def test_a_fleet_s_own_key_encrypts_every_log_group() -> None:
    groups = [each for each in resources_of(locked()) if each["Type"] == "AWS::Logs::LogGroup"]
    assert len(groups) == 5
    assert {each["Properties"]["KmsKeyId"] for each in groups} == {OWN_KEY}
    assert not any(skips_of(each) for each in groups)


@pytest.mark.slow
@pytest.mark.skipif(not CHECKOV.is_file(), reason="checkov is not installed: peakplan fleet checkov")
@pytest.mark.parametrize("fleet", SHIPPED)
def test_checkov_finds_nothing_unexplained(fleet: str, tmp_path: Path) -> None:
    stacks = {name: each for name, each in templates(fleet).items() if name == "Cell-1" or "Cell" not in name}
    for name, template in stacks.items():
        (tmp_path / f"{name}.template.json").write_text(json.dumps(template), encoding="utf-8")
    command = [CHECKOV, "--directory", tmp_path, "--framework", "cloudformation", "--output", "json"]
    done = subprocess.run(
        [*command, "--compact", "--quiet", "--skip-download"],
        env=os.environ | {"LOG_LEVEL": "ERROR"},
        capture_output=True,
        text=True,
        check=False,
    )
    report = json.loads(done.stdout)
    found = [
        f"{each['check_id']} {each['file_path']} {each['resource']}" for each in report["results"]["failed_checks"]
    ]
    assert found == []
    assert done.returncode == 0
    assert report["summary"]["skipped"] == sum(ACCEPTED.values())
    assert report["summary"]["passed"] > 100


@pytest.mark.slow
def test_budget_and_anomalies_look_at_the_tag_that_every_resource_has_and_tell_tickets() -> None:
    asked = locked()
    assert all_of(templates("dev")["Spending"], "CE::AnomalyMonitor") == [], "a member account would be refused it"
    (budget,) = all_of(asked["Spending"], "Budgets::Budget")
    (monitor,) = all_of(asked["Spending"], "CE::AnomalyMonitor")
    (subscription,) = all_of(asked["Spending"], "CE::AnomalySubscription")
    assert budget["Budget"]["CostFilters"] == {"TagKeyValue": ["user:peakplan:fleet$dev"]}
    assert json.loads(monitor["MonitorSpecification"])["Tags"]["Key"] == "peakplan:fleet"
    tags = all_of(templates("dev")["Cell-1"], "ElasticLoadBalancingV2::LoadBalancer")[0]["Tags"]
    assert {"Key": "peakplan:fleet", "Value": "dev"} in tags
    told = [each["Subscribers"][0]["Address"] for each in budget["NotificationsWithSubscribers"]]
    topic = subscription["Subscribers"][0]["Address"]
    assert told == [topic, topic]
    (named,) = [
        each
        for each in all_of(templates("dev")["Observability"], "SNS::Topic")
        if each["TopicName"].endswith("tickets")
    ]
    assert json.dumps(topic).endswith(f':{named["TopicName"]}"]]}}')
    policies = all_of(templates("dev")["Observability"], "SNS::TopicPolicy")
    (of_topic,) = [each for each in policies if "Tickets" in json.dumps(each["Topics"])]
    publishers = [
        statement["Principal"].get("Service") for statement in of_topic["PolicyDocument"]["Statement"]
        if statement["Effect"] == "Allow"
    ]  # fmt: skip
    assert sorted(publishers[0]) == ["budgets.amazonaws.com", "cloudwatch.amazonaws.com", "costalerts.amazonaws.com"]


def test_images_end_by_the_tag_that_the_pipeline_gives_them() -> None:
    (pipeline,) = all_of(templates("dev")["Image"], "ImageBuilder::ImagePipeline")
    (policy,) = all_of(templates("dev")["Image"], "ImageBuilder::LifecyclePolicy")
    assert policy["ResourceSelection"]["TagMap"] == pipeline["ImageTags"] == {"peakplan:fleet": "dev"}
    (detail,) = policy["PolicyDetails"]
    assert (detail["Filter"]["RetainAtLeast"], detail["Filter"]["Type"]) == (5, "AGE")
    assert detail["ExclusionRules"]["Amis"]["LastLaunched"] == {"Unit": "MONTHS", "Value": 3}


@pytest.mark.parametrize("stack", ["Cell-1", "Rollout"])
def test_a_log_group_that_a_deleted_stack_kept_is_in_nobodys_way(stack: str) -> None:
    """Its name ends with a part of its own stack's id, which the next stack does not have."""
    for group in all_of(templates("dev")[stack], "Logs::LogGroup"):
        assert "AWS::StackId" in json.dumps(group["LogGroupName"])


def test_the_machine_of_the_template_is_the_one_that_tests_interpret() -> None:
    """A null drops a state's result; without it the result replaces the machine's whole input."""
    shipped = only(templates("prime-day")["Rollout"], "AWS::StepFunctions::StateMachine")["DefinitionString"]
    machine = definition(FleetSettings.from_yaml(FLEETS / "prime-day.yaml"))
    assert json.loads(shipped) == json.loads(json.dumps(machine))


def _tracking(**metric: Any) -> dict[str, Any]:
    target = {"TargetValue": 1, "CustomizedMetricSpecification": metric}
    return {"AutoScalingGroupName": "g", "PolicyType": "TargetTrackingScaling", "TargetTrackingConfiguration": target}


def _metric(name: str) -> dict[str, Any]:
    return {"Id": "m", "MetricStat": {"Stat": "p99", "Metric": {"Namespace": "N", "MetricName": name}}}


def _statement(action: str | list[str], **more: Any) -> dict[str, Any]:
    said = {"Effect": "Allow", "Action": action, "Resource": "arn:aws:s3:::b"} | more
    return {"Version": "2012-10-17", "Statement": [said]}


OPEN = {"IpProtocol": "tcp", "FromPort": 443, "ToPort": 443}
METRICS = [_metric("OutstandingPerReplica"), _metric("TargetResponseTime")]
ENDPOINT = {"VpcId": "vpc-01234567", "VpcEndpointType": "Interface", "ServiceName": "com.amazonaws.us-east-1.logs"}
LAUNCHED = "EC2::LaunchTemplate"
DISK = {"DeviceName": "/dev/sda1", "Ebs": {"VolumeSize": 8}}
IN_ROLE = {"PolicyName": "p", "PolicyDocument": _statement("*")}
SILENCED = {"Principal": {"Service": "cloudwatch.amazonaws.com"}, "Resource": "*"}
SILENCED |= {"Condition": {"StringEquals": {"aws:SourceAccount": "123456789012"}}}
# What must never be: the rule that finds it, its type, and its properties.
BAD: dict[str, tuple[str, str, dict[str, Any]]] = {
    "latency, in metric math": (
        "no_latency_in_target_tracking",
        "AutoScaling::ScalingPolicy",
        _tracking(Metrics=METRICS),
    ),
    "latency, by name": (
        "no_latency_in_target_tracking",
        "AutoScaling::ScalingPolicy",
        _tracking(MetricName="Latency", Namespace="N", Statistic="Average"),
    ),
    "public ingress": (
        "no_public_ingress",
        "EC2::SecurityGroup",
        {"GroupDescription": "x", "SecurityGroupIngress": [OPEN | {"CidrIp": "0.0.0.0/0"}]},
    ),
    "public ingress, IPv6, beside its group": (
        "no_public_ingress_beside_a_group",
        "EC2::SecurityGroupIngress",
        OPEN | {"GroupId": "sg-1", "CidrIpv6": "::/0"},
    ),
    "IMDSv1": ("only_imdsv2", LAUNCHED, {"LaunchTemplateData": {"MetadataOptions": {"HttpTokens": "optional"}}}),
    "IMDSv1 by silence": ("only_imdsv2", LAUNCHED, {"LaunchTemplateData": {"EbsOptimized": True}}),
    "unencrypted host": ("encrypted_host_volumes", LAUNCHED, {"LaunchTemplateData": {"BlockDeviceMappings": [DISK]}}),
    "IMDSv1 in builds": (
        "only_imdsv2_in_builds",
        "ImageBuilder::InfrastructureConfiguration",
        {"Name": "n", "InstanceProfileName": "p"},
    ),
    "unencrypted image": (
        "encrypted_image_volumes",
        "ImageBuilder::ImageRecipe",
        {"Name": "n", "Version": "1.0.0", "BlockDeviceMappings": [{"Ebs": {"Encrypted": False}}]},
    ),
    "every action of a service": (
        "no_wildcard_actions",
        "IAM::Policy",
        {"PolicyName": "p", "Roles": ["r"], "PolicyDocument": _statement("s3:*")},
    ),
    "every read": (
        "no_wildcard_actions",
        "IAM::ManagedPolicy",
        {"PolicyDocument": _statement(["s3:PutObject", "s3:Get*"])},
    ),
    "every action, in a role": (
        "no_wildcard_actions_in_roles",
        "IAM::Role",
        {"AssumeRolePolicyDocument": {"Version": "2012-10-17", "Statement": []}, "Policies": [IN_ROLE]},
    ),
    "unencrypted bucket": ("encrypted_buckets", "S3::Bucket", {}),
    "unencrypted topic": ("encrypted_topics", "SNS::Topic", {}),
    "VPC of a quarter million addresses": ("vpcs_of_a_size_that_aws_makes", "EC2::VPC", {"CidrBlock": "10.64.0.0/14"}),
    "endpoint for everything": ("endpoints_have_a_policy", "EC2::VPCEndpoint", ENDPOINT),
    "S3 by an interface": (
        "no_interface_endpoint_for_s3",
        "EC2::VPCEndpoint",
        ENDPOINT | {"ServiceName": "com.amazonaws.us-east-1.s3", "PolicyDocument": {}},
    ),
    "a bucket that outlives its stack": ("nothing_outlives_a_failed_create", "S3::Bucket", {}),
    "capacity all year": (
        "no_capacity_reserved_all_year",
        "ElasticLoadBalancingV2::LoadBalancer",
        {"MinimumLoadBalancerCapacity": {"CapacityUnits": 600}},
    ),
    "a key that silences alarms": (
        "alarms_may_use_keys_without_a_source_account",
        "KMS::Key",
        {"KeyPolicy": _statement(["kms:Decrypt"], **SILENCED)},
    ),
    "unencrypted repository": ("encrypted_repositories", "ECR::Repository", {}),
}


@pytest.mark.slow  # Node starts
def test_what_must_never_be_is_found_by_every_rule(tmp_path: Path) -> None:
    app = App(outdir=str(tmp_path), analytics_reporting=False)
    stack = Stack(app, "Bad")
    for name, (_, kind, properties) in BAD.items():
        made = CfnResource(stack, name, type=f"AWS::{kind}", properties=properties)
        if "outlives" in name:
            made.apply_removal_policy(RemovalPolicy.RETAIN)
    check(app)
    app.synth()
    assert {f"{rule} at Bad/{name}" for name, (rule, _, _) in BAD.items()} <= set(findings(str(app.outdir)))
    lines = GUARD_RULES.read_text(encoding="utf-8").splitlines()
    assert {line.split()[1] for line in lines if line.startswith("rule ")} == {rule for rule, _, _ in BAD.values()}
