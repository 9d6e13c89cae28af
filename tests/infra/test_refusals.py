"""What an account refuses is refused in the emulator, and operators' commands find their way around it."""

import json
from collections.abc import Iterator
from typing import Any

import pytest
from botocore.exceptions import ClientError

from infra.operations.deployed_cell import make_way
from tests.infra.moto_server import MotoServer

BALANCER = {
    "Type": "AWS::ElasticLoadBalancingV2::LoadBalancer",
    "Properties": {
        "Scheme": "internal",
        "LoadBalancerAttributes": [{"Key": "deletion_protection.enabled", "Value": "true"}],
    },
}
IMPOSSIBLE = {
    "Type": "AWS::AutoScaling::ScheduledAction",
    "DependsOn": ["Balancer", "Log"],
    "Properties": {"AutoScalingGroupName": "group", "MinSize": 3, "StartTime": "2020-01-01T00:00:00Z"},
}


def log(policy: str) -> dict[str, Any]:
    return {"Type": "AWS::Logs::LogGroup", "DeletionPolicy": policy, "Properties": {"LogGroupName": f"/{policy}"}}


def status(api: Any, name: str) -> str:
    return str(api.describe_stacks(StackName=name)["Stacks"][0]["StackStatus"])


@pytest.fixture
def failed(moto_server: MotoServer) -> Iterator[str]:
    """A stack with a protected balancer whose first creation failed."""
    subnets = [each["SubnetId"] for each in moto_server.client("ec2").describe_subnets()["Subnets"][:2]]
    balancer = {**BALANCER, "Properties": {**BALANCER["Properties"], "Subnets": subnets}}  # type: ignore[dict-item]
    resources = {"Balancer": balancer, "Log": log("RetainExceptOnCreate"), "Impossible": IMPOSSIBLE}
    api = moto_server.client("cloudformation")
    api.create_stack(
        StackName="failed", TemplateBody=json.dumps({"Resources": resources}), EnableTerminationProtection=True
    )
    yield "failed"
    balancing = moto_server.client("elbv2")
    for left in balancing.describe_load_balancers()["LoadBalancers"]:
        unprotected = [{"Key": "deletion_protection.enabled", "Value": "false"}]
        balancing.modify_load_balancer_attributes(LoadBalancerArn=left["LoadBalancerArn"], Attributes=unprotected)
    api.delete_stack(StackName="failed")


def test_a_failed_creation_is_stuck_on_its_protected_balancer_until_way_is_made(
    moto_server: MotoServer, failed: str
) -> None:
    api, balancing = moto_server.client("cloudformation"), moto_server.client("elbv2")
    assert status(api, failed) == "ROLLBACK_FAILED"
    with pytest.raises(ClientError, match="TerminationProtection is enabled"):
        api.delete_stack(StackName=failed)
    api.update_termination_protection(StackName=failed, EnableTerminationProtection=False)
    api.delete_stack(StackName=failed)
    assert status(api, failed) == "DELETE_FAILED"
    assert len(balancing.describe_load_balancers()["LoadBalancers"]) == 1


def test_way_is_made_for_the_next_creation(moto_server: MotoServer, failed: str) -> None:
    api, balancing = moto_server.client("cloudformation"), moto_server.client("elbv2")
    make_way(failed, api, balancing)
    stack_id = api.describe_stacks(StackName=failed)["Stacks"][0]["StackId"]
    api.delete_stack(StackName=failed)
    assert api.describe_stacks(StackName=stack_id)["Stacks"][0]["StackStatus"] == "DELETE_COMPLETE"
    assert balancing.describe_load_balancers()["LoadBalancers"] == []
    assert [stack for stack in api.describe_stacks()["Stacks"] if stack["StackName"] == failed] == []
    assert moto_server.client("logs").describe_log_groups()["logGroups"] == [], "nothing stands in the way of a retry"


@pytest.fixture
def no_logs_left(moto_server: MotoServer) -> Iterator[None]:
    """What a test has the account keep does not meet the next one."""
    yield
    logs = moto_server.client("logs")
    for group in logs.describe_log_groups()["logGroups"]:
        logs.delete_log_group(logGroupName=group["logGroupName"])


@pytest.mark.usefixtures("no_logs_left")
def test_what_is_retained_outlives_its_stack(moto_server: MotoServer) -> None:
    api = moto_server.client("cloudformation")
    resources = {"Log": log("RetainExceptOnCreate"), "Other": log("Delete")}
    api.create_stack(StackName="kept", TemplateBody=json.dumps({"Resources": resources}))
    api.delete_stack(StackName="kept")
    groups = moto_server.client("logs").describe_log_groups()["logGroups"]
    assert [group["logGroupName"] for group in groups] == ["/RetainExceptOnCreate"]


def test_a_stack_of_more_than_100_resources_is_described_in_part(moto_server: MotoServer) -> None:
    """Whoever asks for a resource of a cell by `describe-stack-resources` may not find it."""
    api = moto_server.client("cloudformation")
    resources = {f"Topic{number}": {"Type": "AWS::SNS::Topic"} for number in range(120)}
    api.create_stack(StackName="large", TemplateBody=json.dumps({"Resources": resources}))
    assert len(api.describe_stack_resources(StackName="large")["StackResources"]) == 100
    pages = api.get_paginator("list_stack_resources").paginate(StackName="large")
    assert sum(len(page["StackResourceSummaries"]) for page in pages) == 120
