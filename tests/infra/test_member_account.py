"""What a member account refuses is refused in the emulator, and no stack of a fleet asks for it."""

import json
from typing import Any

import pytest

from infra.fleet.reservations import tags
from infra.operations.teardown import Teardown, TeardownError, cancel_reservations, reservations_of
from tests.infra.fleet.fleets import dev_fleet
from tests.infra.moto_member_account import CHARACTERS
from tests.infra.moto_server import MotoServer
from tests.infra.synthesis import Template, resources, templates

BOTH = ["dev", "prime-day"]


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


def test_an_export_that_is_imported_elsewhere_neither_goes_nor_changes(moto_server: MotoServer) -> None:
    exported = {"Name": {"Value": {"Ref": "Topic"}, "Export": {"Name": "first:Topic"}}}
    assert stack(moto_server, "first", topic("a"), exported) == "CREATE_COMPLETE"
    taken = {"Log": {"Type": "AWS::SSM::Parameter", "Properties": {"Name": "/taken", "Type": "String"}}}
    taken["Log"]["Properties"]["Value"] = {"Fn::ImportValue": "first:Topic"}  # type: ignore[index]
    assert stack(moto_server, "second", taken) == "CREATE_COMPLETE"
    assert stack(moto_server, "first", topic("a")) == "UPDATE_ROLLBACK_COMPLETE"
    api = moto_server.client("cloudformation")
    api.delete_stack(StackName="first")
    assert status(moto_server, "first") == "DELETE_FAILED"
    api.delete_stack(StackName="second")
    api.delete_stack(StackName="first")
    assert status(moto_server, "first") == "gone"


@pytest.mark.parametrize(
    "refused",
    [
        {"AWS::EC2::CapacityReservation": {"InstanceType": "inf2.xlarge", "InstanceCount": 1}},
        {"AWS::CE::AnomalyMonitor": {"MonitorName": "mine", "MonitorType": "CUSTOM"}},
        {"AWS::EC2::SecurityGroup": {"GroupDescription": "The builder's group"}},
    ],
)
def test_what_is_refused_fails_its_stack(moto_server: MotoServer, refused: dict[str, Any]) -> None:
    ((kind, properties),) = refused.items()
    assert stack(moto_server, "refused", {"It": {"Type": kind, "Properties": properties}}) == "ROLLBACK_COMPLETE"
    moto_server.client("cloudformation").delete_stack(StackName="refused")


def test_a_service_with_an_endpoint_cannot_be_deleted_until_it_is_rejected(moto_server: MotoServer) -> None:
    ec2 = moto_server.client("ec2")
    vpc = ec2.describe_vpcs()["Vpcs"][0]["VpcId"]
    subnets = [each["SubnetId"] for each in ec2.describe_subnets()["Subnets"][:2]]
    balancer = moto_server.client("elbv2").create_load_balancer(Name="front", Type="network", Subnets=subnets)
    service = ec2.create_vpc_endpoint_service_configuration(
        NetworkLoadBalancerArns=[balancer["LoadBalancers"][0]["LoadBalancerArn"]]
    )["ServiceConfiguration"]
    endpoint = ec2.create_vpc_endpoint(VpcId=vpc, ServiceName=service["ServiceName"], VpcEndpointType="Interface")
    asked = {"ServiceId": service["ServiceId"]}
    with pytest.raises(ec2.exceptions.ClientError, match="ExistingVpcEndpointConnections"):
        ec2.delete_vpc_endpoint_service_configurations(ServiceIds=[service["ServiceId"]])
    ec2.reject_vpc_endpoint_connections(VpcEndpointIds=[endpoint["VpcEndpoint"]["VpcEndpointId"]], **asked)
    ec2.delete_vpc_endpoint_service_configurations(ServiceIds=[service["ServiceId"]])


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


@pytest.mark.parametrize(
    ("policy", "became"),
    [("AutoScalingRollingUpdate", "UPDATE_ROLLBACK_COMPLETE"), ("AutoScalingInstanceRefresh", "UPDATE_COMPLETE")],
)
def test_a_rolling_update_of_a_group_with_scheduled_actions_is_refused(
    moto_server: MotoServer, policy: str, became: str
) -> None:
    """What AWS documents of an instance refresh is no refusal; no fleet has the policy that is refused."""
    launch = {"LaunchTemplateData": {"ImageId": "ami-12c6146b", "InstanceType": "t3.micro"}}
    said = {"Preferences": {"CheckpointPercentages": [100], "CheckpointDelay": 0, "BakeTime": 0}}
    said["Preferences"] |= {"MinHealthyPercentage": 100, "MaxHealthyPercentage": 150}
    sizes = {"MinSize": "0", "MaxSize": "2", "AvailabilityZones": ["us-east-1a"]}
    template = {"LaunchTemplateId": {"Ref": "Launch"}, "Version": "1"}
    made: dict[str, Any] = {
        "Launch": {"Type": "AWS::EC2::LaunchTemplate", "Properties": launch},
        "Group": {
            "Type": "AWS::AutoScaling::AutoScalingGroup",
            "Properties": sizes | {"LaunchTemplate": template},
            "UpdatePolicy": {policy: said},
        },
        "Sale": {
            "Type": "AWS::AutoScaling::ScheduledAction",
            "Properties": {
                "AutoScalingGroupName": {"Ref": "Group"},
                "MinSize": 1,
                "StartTime": "2030-01-08T08:00:00Z",
            },
        },
    }
    name = f"scheduled-{policy}"
    assert stack(moto_server, name, made) == "CREATE_COMPLETE"
    changed = json.loads(json.dumps(made))
    changed["Group"]["Properties"]["MaxSize"] = "3"
    assert stack(moto_server, name, changed) == became


@pytest.mark.parametrize("fleet", BOTH)
def test_no_group_has_an_update_policy_that_scheduled_actions_stand_in_the_way_of(fleet: str) -> None:
    policies = {
        policy
        for _, template in every(fleet)
        for each in resources(template, "AWS::AutoScaling::AutoScalingGroup").values()
        for policy in each["UpdatePolicy"]
    }
    assert policies == {"AutoScalingInstanceRefresh", "AutoScalingScheduledAction"}


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


def every(fleet: str) -> list[tuple[str, Template]]:
    return list(templates(fleet).items())


@pytest.mark.parametrize("fleet", BOTH)
def test_no_stack_imports_what_another_exports(fleet: str) -> None:
    """A cell can be retired, and its cache, PrivateLink, canary or balancer go, in one deploy."""
    for name, template in every(fleet):
        assert "Fn::ImportValue" not in json.dumps(template), name


@pytest.mark.parametrize("fleet", BOTH)
def test_no_cell_depends_on_capacity_that_may_be_refused(fleet: str) -> None:
    for name, template in every(fleet):
        assert resources(template, "AWS::EC2::CapacityReservation") == {}, name


@pytest.mark.parametrize("fleet", BOTH)
def test_alarms_do_not_depend_on_what_the_paying_account_alone_may_have(fleet: str) -> None:
    for name, template in every(fleet):
        kinds = {each["Type"] for each in template["Resources"].values()}
        paid = {kind for kind in kinds if kind.startswith(("AWS::CE::", "AWS::Budgets::"))}
        assert paid == set() or name == "Spending", name


@pytest.mark.parametrize("fleet", BOTH)
def test_every_description_of_a_security_group_has_characters_that_ec2_accepts(fleet: str) -> None:
    said = [
        str(text)
        for _, template in every(fleet)
        for kind in ("AWS::EC2::SecurityGroup", "AWS::EC2::SecurityGroupEgress", "AWS::EC2::SecurityGroupIngress")
        for each in resources(template, kind).values()
        for text in texts(each["Properties"])
    ]
    assert said
    assert [text for text in said if not CHARACTERS.fullmatch(text)] == []


def texts(value: Any) -> list[Any]:
    """The descriptions in a resource's properties, of its rules too."""
    if isinstance(value, list):
        return [text for each in value for text in texts(each)]
    if not isinstance(value, dict):
        return []
    own = [value[name] for name in ("Description", "GroupDescription") if isinstance(value.get(name), str)]
    return own + [text for each in value.values() for text in texts(each)]
