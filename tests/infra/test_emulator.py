"""The emulator refuses what an account refuses, and operators' commands handle the refusals."""

import json
from collections.abc import Iterator
from typing import Any

import pytest
from botocore.exceptions import ClientError

from infra.fleet.calendar import tags
from infra.operations.deployed_cell import make_way
from infra.operations.teardown import Teardown, TeardownError, cancel_reservations, reservations_of
from tests.infra.fleet.fleets import dev_fleet
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
    assert status(moto_server, failed) == "ROLLBACK_FAILED"
    with pytest.raises(ClientError, match="TerminationProtection is enabled"):
        api.delete_stack(StackName=failed)
    api.update_termination_protection(StackName=failed, EnableTerminationProtection=False)
    api.delete_stack(StackName=failed)
    assert status(moto_server, failed) == "DELETE_FAILED"
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


def stack(server: MotoServer, name: str, made: dict[str, Any], outputs: dict[str, Any] | None = None) -> str:
    """Create a stack, or update it, and return what became of it."""
    api = server.client("cloudformation")
    body = json.dumps({"Resources": made, "Outputs": outputs or {}})
    there = name in [each["StackName"] for each in api.describe_stacks()["Stacks"]]
    (api.update_stack if there else api.create_stack)(StackName=name, TemplateBody=body)
    return status(server, name)


def status(server: MotoServer, name: str) -> str:
    found = server.client("cloudformation").describe_stacks()["Stacks"]
    return next((str(each["StackStatus"]) for each in found if each["StackName"] == name), "gone")


def topic(name: str) -> dict[str, Any]:
    return {"Topic": {"Type": "AWS::SNS::Topic", "Properties": {"TopicName": name}}}


def test_what_the_real_api_does_not_know_fails_its_stack(moto_server: MotoServer) -> None:
    misspelt = {"ComparisonOperator": "GreaterThanThreshold", "EvaluationPeriodes": 3}
    made = {"It": {"Type": "AWS::CloudWatch::Alarm", "Properties": misspelt}}
    assert stack(moto_server, "refused", made) == "ROLLBACK_COMPLETE"
    said = moto_server.client("cloudformation").describe_stack_events(StackName="refused")["StackEvents"]
    assert any("EvaluationPeriodes" in each.get("ResourceStatusReason", "") for each in said)
    moto_server.client("cloudformation").delete_stack(StackName="refused")


SERVED = {
    "Front": {
        "Type": "AWS::ElasticLoadBalancingV2::LoadBalancer",
        "Properties": {
            "Type": "network",
            "LoadBalancerAttributes": [{"Key": "deletion_protection.enabled", "Value": "true"}],
        },
    },
    "Service": {
        "Type": "AWS::EC2::VPCEndpointService",
        "Properties": {"NetworkLoadBalancerArns": [{"Ref": "Front"}], "AcceptanceRequired": True},
    },
}


@pytest.fixture
def served(moto_server: MotoServer) -> str:
    """A protected stack with an endpoint service, to which an endpoint is connected."""
    ec2, made = moto_server.client("ec2"), json.loads(json.dumps(SERVED))
    found = ec2.describe_subnets()["Subnets"][:2]
    made["Front"]["Properties"]["Subnets"] = [each["SubnetId"] for each in found]
    api = moto_server.client("cloudformation")
    template = json.dumps({"Resources": made})
    api.create_stack(StackName="served", TemplateBody=template, EnableTerminationProtection=True)
    service = ec2.describe_vpc_endpoint_service_configurations()["ServiceConfigurations"][-1]["ServiceName"]
    ec2.create_vpc_endpoint(VpcId=found[0]["VpcId"], ServiceName=service, VpcEndpointType="Interface")
    return "served"


def test_a_stack_whose_service_has_endpoints_is_deleted(moto_server: MotoServer, served: str) -> None:
    api = moto_server.client("cloudformation")
    api.update_termination_protection(StackName=served, EnableTerminationProtection=False)
    api.delete_stack(StackName=served)
    assert status(moto_server, served) == "DELETE_FAILED", "the emulator's own"
    assert Teardown(moto_server.client, lambda _: None).delete(served) == []
    assert status(moto_server, served) == "gone"


@pytest.fixture
def asking(moto_server: MotoServer) -> str:
    """A stack with a canary in a security group of its own."""
    (subnet, *_) = moto_server.client("ec2").describe_subnets()["Subnets"]
    group = {"GroupDescription": "Canaries", "VpcId": subnet["VpcId"]}
    place = {"SubnetIds": [subnet["SubnetId"]], "SecurityGroupIds": [{"Fn::GetAtt": ["Group", "GroupId"]}]}
    made = {
        "Group": {"Type": "AWS::EC2::SecurityGroup", "Properties": group},
        "Canary": {"Type": "AWS::Synthetics::Canary", "Properties": {"Name": "asks", "VPCConfig": place}},
    }
    assert stack(moto_server, "asking", made) == "CREATE_COMPLETE"
    return "asking"


def test_a_stack_waits_for_the_interfaces_of_its_canaries(moto_server: MotoServer, asking: str) -> None:
    waited: list[float] = []
    assert Teardown(moto_server.client, waited.append).delete(asking) == []
    assert waited == [60.0], "they were there when the stack was first deleted"
    assert status(moto_server, asking) == "gone"


def test_what_a_refused_deletion_leaves_is_protected_again(moto_server: MotoServer) -> None:
    exported = {"Name": {"Value": {"Ref": "Topic"}, "Export": {"Name": "kept:Topic"}}}
    api = moto_server.client("cloudformation")
    body = json.dumps({"Resources": topic("kept"), "Outputs": exported})
    api.create_stack(StackName="kept", TemplateBody=body, EnableTerminationProtection=True)
    taken = {"Type": "String", "Name": "/kept", "Value": {"Fn::ImportValue": "kept:Topic"}}
    stack(moto_server, "taker", {"It": {"Type": "AWS::SSM::Parameter", "Properties": taken}})
    with pytest.raises(TeardownError, match="in use by taker"):
        Teardown(moto_server.client, lambda _: None).delete("kept")
    (found,) = api.describe_stacks(StackName="kept")["Stacks"]
    assert found["EnableTerminationProtection"] is True
    api.delete_stack(StackName="taker")
    assert Teardown(moto_server.client, lambda _: None).delete("kept") == []


def test_reservations_are_known_by_their_cell_and_given_back(moto_server: MotoServer) -> None:
    ec2 = moto_server.client("ec2")
    for cell in ("cell-1", "cell-2"):
        said = [{"ResourceType": "capacity-reservation", "Tags": tags(dev_fleet(), cell)}]
        asked = {"InstanceType": "inf2.xlarge", "InstancePlatform": "Linux/UNIX", "AvailabilityZone": "us-east-1a"}
        ec2.create_capacity_reservation(**asked, InstanceCount=3, TagSpecifications=said)
    cancel_reservations(dev_fleet(), ec2, ["cell-2"])
    (left,) = reservations_of(dev_fleet(), ec2, ["cell-1", "cell-2"])
    assert {tag["Value"] for tag in left["Tags"]} == {"dev", "cell-1"}
