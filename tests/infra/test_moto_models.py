"""What moto silently leaves out of a stack exists, changes with it and goes with it."""

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import yaml

from tests.infra.moto_server import MotoServer

NAME = "moto-models"

pytestmark = pytest.mark.slow  # the server starts in some ten seconds


def template(lowest: int = 2, target: float = 4.0) -> dict[str, Any]:
    """The stack of moto_models.yaml with this floor of the group and this target of its policy."""
    stack: dict[str, Any] = yaml.safe_load(Path(__file__).with_name("moto_models.yaml").read_text(encoding="utf-8"))
    stack["Resources"]["Group"]["Properties"]["MinSize"] = str(lowest)
    stack["Resources"]["Track"]["Properties"]["TargetTrackingConfiguration"]["TargetValue"] = target
    return stack


@pytest.fixture(scope="module")
def outputs(moto_server: MotoServer) -> Iterator[dict[str, str]]:
    """The stack's outputs, after an update that raises the group's floor and the tracked target."""
    stacks = moto_server.client("cloudformation")
    stacks.create_stack(StackName=NAME, TemplateBody=json.dumps(template()))
    before = stacks.describe_stacks(StackName=NAME)["Stacks"][0]
    stacks.update_stack(StackName=NAME, TemplateBody=json.dumps(template(lowest=3, target=5.0)))
    after = stacks.describe_stacks(StackName=NAME)["Stacks"][0]
    assert (before["StackStatus"], after["StackStatus"]) == ("CREATE_COMPLETE", "UPDATE_COMPLETE")
    assert before["Outputs"] == after["Outputs"]
    yield {output["OutputKey"]: output["OutputValue"] for output in after["Outputs"]}
    stacks.delete_stack(StackName=NAME)


def test_scaling_policies_read_back_as_the_update_left_them(moto_server: MotoServer, outputs: dict[str, str]) -> None:
    policies = moto_server.client("autoscaling").describe_policies(AutoScalingGroupName=outputs["Group"])
    by_type = {policy["PolicyType"]: policy for policy in policies["ScalingPolicies"]}

    assert len(policies["ScalingPolicies"]) == 2
    tracking = by_type["TargetTrackingScaling"]["TargetTrackingConfiguration"]
    assert tracking["TargetValue"] == 5.0
    assert tracking["CustomizedMetricSpecification"]["Metrics"][0]["MetricStat"]["Period"] == 10
    assert by_type["StepScaling"]["StepAdjustments"] == [{"MetricIntervalLowerBound": 0.0, "ScalingAdjustment": 50}]


def test_hooks_and_warm_pool_survive_an_update_of_their_group(moto_server: MotoServer, outputs: dict[str, str]) -> None:
    scaling = moto_server.client("autoscaling")
    group = scaling.describe_auto_scaling_groups(AutoScalingGroupNames=[outputs["Group"]])["AutoScalingGroups"][0]
    hooks = scaling.describe_lifecycle_hooks(AutoScalingGroupName=outputs["Group"])["LifecycleHooks"]
    pool = scaling.describe_warm_pool(AutoScalingGroupName=outputs["Group"])["WarmPoolConfiguration"]

    assert group["MinSize"] == 3
    assert {hook["LifecycleTransition"] for hook in hooks} == {
        "autoscaling:EC2_INSTANCE_LAUNCHING",
        "autoscaling:EC2_INSTANCE_TERMINATING",
    }
    assert (pool["MinSize"], pool["PoolState"]) == (1, "Stopped")


def test_alarms_read_back_with_actions_dimensions_and_suppression(
    moto_server: MotoServer, outputs: dict[str, str]
) -> None:
    answer = moto_server.client("cloudwatch").describe_alarms(AlarmNamePrefix=NAME)
    slow, page = answer["MetricAlarms"][0], answer["CompositeAlarms"][0]
    dimensions = slow["Metrics"][0]["MetricStat"]["Metric"]["Dimensions"]

    assert slow["AlarmActions"][0].startswith("arn:aws:autoscaling:")
    assert outputs["Group"] in slow["AlarmActions"][0]
    assert [value["Value"].split("/")[:2] for value in dimensions] == [
        ["targetgroup", f"{NAME}-tg"],
        ["app", f"{NAME}-lb"],
    ]
    assert page["AlarmRule"] == f"ALARM({NAME}-slow)"
    assert page["ActionsSuppressor"] == slow["AlarmArn"]
    assert (page["ActionsSuppressorWaitPeriod"], page["ActionsSuppressorExtensionPeriod"]) == (60, 120)


def test_egress_is_what_the_template_says_and_no_more(moto_server: MotoServer, outputs: dict[str, str]) -> None:
    groups = moto_server.client("ec2").describe_security_groups(GroupIds=[outputs["Guard"]])["SecurityGroups"]
    rules = {rule["FromPort"]: rule for rule in groups[0]["IpPermissionsEgress"]}

    assert set(rules) == {443, 8080}
    assert rules[443]["IpRanges"] == [{"CidrIp": "10.0.0.0/16", "Description": "endpoints"}]
    assert rules[8080]["UserIdGroupPairs"][0]["GroupId"] == outputs["Guard"]


def test_balancer_topic_and_bucket_carry_their_attributes(moto_server: MotoServer, outputs: dict[str, str]) -> None:
    balancing, topics = moto_server.client("elbv2"), moto_server.client("sns")
    balancer = balancing.describe_load_balancers(Names=[f"{NAME}-lb"])["LoadBalancers"][0]["LoadBalancerArn"]
    group = balancing.describe_target_groups(Names=[f"{NAME}-tg"])["TargetGroups"][0]["TargetGroupArn"]
    of_balancer = balancing.describe_load_balancer_attributes(LoadBalancerArn=balancer)["Attributes"]
    of_group = balancing.describe_target_group_attributes(TargetGroupArn=group)["Attributes"]
    topic = f"arn:aws:sns:us-east-1:123456789012:{NAME}-on-call"
    of_topic = topics.get_topic_attributes(TopicArn=topic)["Attributes"]
    people = topics.list_subscriptions_by_topic(TopicArn=topic)["Subscriptions"]

    assert {"Key": "routing.http.drop_invalid_header_fields.enabled", "Value": "true"} in of_balancer
    assert {"Key": "load_balancing.algorithm.type", "Value": "least_outstanding_requests"} in of_group
    assert of_topic["KmsMasterKeyId"]
    assert json.loads(of_topic["Policy"])["Id"] == "ours"
    assert [person["Endpoint"] for person in people] == ["on-call@example.com"]
    assert json.loads(moto_server.client("s3").get_bucket_policy(Bucket=f"{NAME}-logs")["Policy"])["Id"] == "ours"
    assert outputs["Trust"].startswith("arn:aws:elasticloadbalancing")


def test_what_the_real_api_does_not_know_is_refused(moto_server: MotoServer) -> None:
    broken = template()
    policy = broken["Resources"]["Step"]["Properties"]
    policy["EstimatedInstanceWarmUp"] = policy.pop("EstimatedInstanceWarmup")

    stacks = moto_server.client("cloudformation")
    stacks.create_stack(StackName="broken", TemplateBody=json.dumps(broken))
    (stack,) = stacks.describe_stacks(StackName="broken")["Stacks"]
    said = [
        event.get("ResourceStatusReason", "")
        for event in stacks.describe_stack_events(StackName="broken")["StackEvents"]
    ]
    assert stack["StackStatus"].startswith("ROLLBACK")
    assert any("EstimatedInstanceWarmUp" in each for each in said)


def test_a_deleted_stack_leaves_nothing(moto_server: MotoServer) -> None:
    stacks, name = moto_server.client("cloudformation"), "moto-models-gone"
    stacks.create_stack(StackName=name, TemplateBody=json.dumps(template()).replace(NAME, name))
    stacks.delete_stack(StackName=name)

    assert stacks.list_stacks(StackStatusFilter=["DELETE_COMPLETE"])["StackSummaries"]
    assert moto_server.client("cloudwatch").describe_alarms(AlarmNamePrefix=name)["MetricAlarms"] == []
    policies = moto_server.client("autoscaling").describe_policies()["ScalingPolicies"]
    assert [policy for policy in policies if name in policy["AutoScalingGroupName"]] == []
