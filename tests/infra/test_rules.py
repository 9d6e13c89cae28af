"""Our Guard rules fire: a bad example of each thing that must never be."""

import json
from typing import Any

import pytest
from aws_cdk import App, CfnResource, RemovalPolicy, Stack

from infra.stacks import GUARD_RULES, check
from tests.infra.synthesis import findings

pytestmark = pytest.mark.slow  # Node starts


def _tracking(metrics: list[dict[str, Any]] | None = None, name: str | None = None) -> dict[str, Any]:
    specification = {"Metrics": metrics} if metrics else {"MetricName": name, "Namespace": "N", "Statistic": "Average"}
    return {
        "AutoScalingGroupName": "group",
        "PolicyType": "TargetTrackingScaling",
        "TargetTrackingConfiguration": {"TargetValue": 1, "CustomizedMetricSpecification": specification},
    }


def _metric(name: str) -> dict[str, Any]:
    return {"Id": "m", "MetricStat": {"Stat": "p99", "Metric": {"Namespace": "N", "MetricName": name}}}


def _statement(action: str | list[str]) -> dict[str, Any]:
    return {"Version": "2012-10-17", "Statement": [{"Effect": "Allow", "Action": action, "Resource": "arn:aws:s3:::b"}]}


ASSUME = {"Version": "2012-10-17", "Statement": []}
BAD: dict[str, tuple[str, str, dict[str, Any]]] = {
    "latency, in metric math": (
        "no_latency_in_target_tracking",
        "AWS::AutoScaling::ScalingPolicy",
        _tracking([_metric("OutstandingPerReplica"), _metric("TargetResponseTime")]),
    ),
    "latency, by name": ("no_latency_in_target_tracking", "AWS::AutoScaling::ScalingPolicy", _tracking(name="Latency")),
    "public ingress": (
        "no_public_ingress",
        "AWS::EC2::SecurityGroup",
        {
            "GroupDescription": "x",
            "SecurityGroupIngress": [{"IpProtocol": "tcp", "FromPort": 443, "ToPort": 443, "CidrIp": "0.0.0.0/0"}],
        },
    ),
    "public ingress, IPv6, beside its group": (
        "no_public_ingress_beside_a_group",
        "AWS::EC2::SecurityGroupIngress",
        {"GroupId": "sg-1", "IpProtocol": "tcp", "FromPort": 443, "ToPort": 443, "CidrIpv6": "::/0"},
    ),
    "IMDSv1": (
        "only_imdsv2",
        "AWS::EC2::LaunchTemplate",
        {"LaunchTemplateData": {"MetadataOptions": {"HttpTokens": "optional"}}},
    ),
    "IMDSv1 by silence": ("only_imdsv2", "AWS::EC2::LaunchTemplate", {"LaunchTemplateData": {"EbsOptimized": True}}),
    "unencrypted host": (
        "encrypted_host_volumes",
        "AWS::EC2::LaunchTemplate",
        {"LaunchTemplateData": {"BlockDeviceMappings": [{"DeviceName": "/dev/sda1", "Ebs": {"VolumeSize": 8}}]}},
    ),
    "IMDSv1 in builds": (
        "only_imdsv2_in_builds",
        "AWS::ImageBuilder::InfrastructureConfiguration",
        {"Name": "n", "InstanceProfileName": "p"},
    ),
    "unencrypted image": (
        "encrypted_image_volumes",
        "AWS::ImageBuilder::ImageRecipe",
        {"Name": "n", "Version": "1.0.0", "BlockDeviceMappings": [{"Ebs": {"Encrypted": False}}]},
    ),
    "every action of a service": (
        "no_wildcard_actions",
        "AWS::IAM::Policy",
        {"PolicyName": "p", "Roles": ["r"], "PolicyDocument": _statement("s3:*")},
    ),
    "every read": (
        "no_wildcard_actions",
        "AWS::IAM::ManagedPolicy",
        {"PolicyDocument": _statement(["s3:PutObject", "s3:Get*"])},
    ),
    "every action, in a role": (
        "no_wildcard_actions_in_roles",
        "AWS::IAM::Role",
        {"AssumeRolePolicyDocument": ASSUME, "Policies": [{"PolicyName": "p", "PolicyDocument": _statement("*")}]},
    ),
    "unencrypted bucket": ("encrypted_buckets", "AWS::S3::Bucket", {}),
    "unencrypted topic": ("encrypted_topics", "AWS::SNS::Topic", {}),
    "VPC of a quarter million addresses": (
        "vpcs_of_a_size_that_aws_makes",
        "AWS::EC2::VPC",
        {"CidrBlock": "10.64.0.0/14"},
    ),
    "endpoint for everything": (
        "endpoints_have_a_policy",
        "AWS::EC2::VPCEndpoint",
        {"VpcId": "vpc-01234567", "ServiceName": "com.amazonaws.us-east-1.logs", "VpcEndpointType": "Interface"},
    ),
    "S3 by an interface": (
        "no_interface_endpoint_for_s3",
        "AWS::EC2::VPCEndpoint",
        {
            "VpcId": "vpc-01234567",
            "ServiceName": "com.amazonaws.us-east-1.s3",
            "VpcEndpointType": "Interface",
            "PolicyDocument": {},
        },
    ),
    "a bucket that outlives its stack": ("nothing_outlives_a_failed_create", "AWS::S3::Bucket", {}),
    "capacity all year": (
        "no_capacity_reserved_all_year",
        "AWS::ElasticLoadBalancingV2::LoadBalancer",
        {"MinimumLoadBalancerCapacity": {"CapacityUnits": 600}},
    ),
    "a key that silences alarms": (
        "alarms_may_use_keys_without_a_source_account",
        "AWS::KMS::Key",
        {
            "KeyPolicy": {
                "Version": "2012-10-17",
                "Statement": [
                    {
                        "Effect": "Allow",
                        "Principal": {"Service": "cloudwatch.amazonaws.com"},
                        "Action": ["kms:Decrypt"],
                        "Resource": "*",
                        "Condition": {"StringEquals": {"aws:SourceAccount": "123456789012"}},
                    }
                ],
            }
        },
    ),
    "unencrypted repository": ("encrypted_repositories", "AWS::ECR::Repository", {}),
}


@pytest.fixture(scope="module")
def found(tmp_path_factory: pytest.TempPathFactory) -> list[str]:
    """What the checks say of one stack with every bad example."""
    app = App(outdir=str(tmp_path_factory.mktemp("bad")), analytics_reporting=False)
    stack = Stack(app, "Bad")
    for name, (_, kind, properties) in BAD.items():
        made = CfnResource(stack, name, type=kind, properties=properties)
        if "outlives" in name:
            made.apply_removal_policy(RemovalPolicy.RETAIN)
    check(app)
    app.synth()
    return findings(str(app.outdir))


@pytest.mark.parametrize("name", BAD)
def test_what_must_never_be_is_found(found: list[str], name: str) -> None:
    assert f"{BAD[name][0]} at Bad/{name}" in found, json.dumps(found, indent=1)


def test_every_rule_has_a_bad_example() -> None:
    rules = {
        line.split()[1] for line in GUARD_RULES.read_text(encoding="utf-8").splitlines() if line.startswith("rule ")
    }
    assert rules == {rule for rule, _, _ in BAD.values()}
