"""What checkov finds in the templates is mended, or accepted with a reason at the resource.

Its severities come from a server. The policy reference (Prisma Cloud documentation, policy-reference/aws-policies) says
INFO of CKV_AWS_18 and 91, LOW of 111 and 123, and does not list 158, whose neighbours (a key of your own) are LOW.
"""

import json
import os
import subprocess
from collections import Counter
from pathlib import Path
from typing import Any

import pytest

from infra.fleet.parts import REPOSITORY_ROOT
from tests.infra.branches import OWN_KEY, locked
from tests.infra.synthesis import templates

pytestmark = pytest.mark.slow  # two fleets through Node, once

CHECKOV = REPOSITORY_ROOT / ".venv-checkov" / "bin" / "checkov"
FLEETS_THAT_SHIP = ("dev", "prime-day")
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
    return [each for name, stack in stacks.items() if name in ("Cell-1",) or "Cell" not in name
            for each in stack["Resources"].values()]  # fmt: skip


def skips_of(resource: dict[str, Any]) -> list[dict[str, str]]:
    found: list[dict[str, str]] = resource.get("Metadata", {}).get("checkov", {}).get("skip", [])
    return found


@pytest.mark.parametrize("fleet", FLEETS_THAT_SHIP)
def test_only_these_findings_are_accepted_each_with_a_reason(fleet: str) -> None:
    found: Counter[tuple[str, str]] = Counter()
    for resource in resources_of(templates(fleet)):
        for skip in skips_of(resource):
            found[resource["Type"], skip["id"]] += 1
            assert len(skip["comment"].split()) >= 8, skip
    assert found == ACCEPTED


@pytest.mark.parametrize("fleet", FLEETS_THAT_SHIP)
def test_what_was_mended_stays_mended(fleet: str) -> None:
    for resource in resources_of(templates(fleet)):
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


def test_a_fleet_s_own_key_encrypts_every_log_group() -> None:
    groups = [each for each in resources_of(locked()) if each["Type"] == "AWS::Logs::LogGroup"]
    assert len(groups) == 5
    assert {each["Properties"]["KmsKeyId"] for each in groups} == {OWN_KEY}
    assert not any(skips_of(each) for each in groups)


@pytest.mark.skipif(not CHECKOV.is_file(), reason="checkov is not installed: peakplan fleet checkov")
@pytest.mark.parametrize("fleet", FLEETS_THAT_SHIP)
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
