"""The emulator refuses what an account refuses, and operators' commands handle the refusals.

Schedules survive the passing of events, and a rollback is as fast as promised by the account's own clock.
"""

import json
from collections.abc import Iterator
from datetime import UTC, datetime, timedelta
from functools import cache
from typing import Any

import pytest
from aws_cdk import App, Stack
from botocore.exceptions import ClientError

from infra.constructs.schedule import GroupSchedule
from infra.fleet.calendar import tags
from infra.fleet.demand import Event
from infra.fleet.replacement import FAST, refresh_seconds
from infra.fleet.scaling import ScalingLaw
from infra.fleet.settings import FLEETS, FleetSettings, without_past_events
from infra.operations.deployed_cell import DeployedCell
from infra.operations.teardown import Teardown, TeardownError, cancel_reservations, reservations_of
from tests.infra.fleet.fleets import dev_fleet
from tests.infra.moto_server import MotoServer
from tests.infra.moto_timing import set_clock
from tests.infra.synthesis import resources, templates


def stack(server: MotoServer, name: str, **made: dict[str, Any]) -> str:
    """Create a stack, and return what became of it."""
    server.client("cloudformation").create_stack(StackName=name, TemplateBody=json.dumps({"Resources": made}))
    return status(server, name)


def status(server: MotoServer, name: str) -> str:
    found = server.client("cloudformation").describe_stacks()["Stacks"]
    return next((str(each["StackStatus"]) for each in found if each["StackName"] == name), "gone")


def test_what_the_real_api_does_not_know_fails_its_stack(moto_server: MotoServer) -> None:
    misspelt = {"ComparisonOperator": "GreaterThanThreshold", "EvaluationPeriodes": 3}
    alarm = {"Type": "AWS::CloudWatch::Alarm", "Properties": misspelt}
    assert stack(moto_server, "refused", It=alarm) == "ROLLBACK_COMPLETE"
    said = moto_server.client("cloudformation").describe_stack_events(StackName="refused")["StackEvents"]
    assert any("EvaluationPeriodes" in each.get("ResourceStatusReason", "") for each in said)
    moto_server.client("cloudformation").delete_stack(StackName="refused")


def test_a_stack_whose_service_has_endpoints_is_deleted(moto_server: MotoServer) -> None:
    api, ec2 = moto_server.client("cloudformation"), moto_server.client("ec2")
    subnets = ec2.describe_subnets()["Subnets"][:2]
    front: dict[str, Any] = {"Type": "network", "Subnets": [each["SubnetId"] for each in subnets]}
    front["LoadBalancerAttributes"] = [{"Key": "deletion_protection.enabled", "Value": "true"}]
    service = {"NetworkLoadBalancerArns": [{"Ref": "Front"}], "AcceptanceRequired": True}
    made = {
        "Front": {"Type": "AWS::ElasticLoadBalancingV2::LoadBalancer", "Properties": front},
        "Service": {"Type": "AWS::EC2::VPCEndpointService", "Properties": service},
    }
    body = json.dumps({"Resources": made})
    api.create_stack(StackName="served", TemplateBody=body, EnableTerminationProtection=True)
    name = ec2.describe_vpc_endpoint_service_configurations()["ServiceConfigurations"][-1]["ServiceName"]
    ec2.create_vpc_endpoint(VpcId=subnets[0]["VpcId"], ServiceName=name, VpcEndpointType="Interface")
    with pytest.raises(ClientError, match="TerminationProtection is enabled"):
        api.delete_stack(StackName="served")
    api.update_termination_protection(StackName="served", EnableTerminationProtection=False)
    api.delete_stack(StackName="served")
    assert status(moto_server, "served") == "DELETE_FAILED", "the emulator's own"
    assert Teardown(moto_server.client, lambda _: None).delete("served") == []
    assert status(moto_server, "served") == "gone"


def test_what_a_refused_deletion_leaves_is_protected_again(moto_server: MotoServer) -> None:
    exported = {"Name": {"Value": {"Ref": "Topic"}, "Export": {"Name": "kept:Topic"}}}
    api = moto_server.client("cloudformation")
    body = json.dumps({"Resources": {"Topic": {"Type": "AWS::SNS::Topic"}}, "Outputs": exported})
    api.create_stack(StackName="kept", TemplateBody=body, EnableTerminationProtection=True)
    taken = {"Type": "String", "Name": "/kept", "Value": {"Fn::ImportValue": "kept:Topic"}}
    stack(moto_server, "taker", It={"Type": "AWS::SSM::Parameter", "Properties": taken})
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


PRIME_DAY = FleetSettings.from_yaml(FLEETS / "prime-day.yaml")
SCHEDULES = "schedules"
FIRST, LAST = datetime(2026, 11, 23, 9, tzinfo=UTC), datetime(2029, 1, 1, 9, tzinfo=UTC)


@cache
def schedules(events: tuple[Event, ...]) -> str:
    """The scheduled actions of one cell of prime-day with other events, as a stack of their own."""
    settings = PRIME_DAY.model_copy(update={"events": events})
    app = App(analytics_reporting=False)
    stack = Stack(app, "Schedules")
    for group in settings.groups:
        law = ScalingLaw.for_group(settings, group)
        GroupSchedule(stack, group.chip, law=law, group=f"peakplan-{settings.name}-cell-1-{group.chip}")
    found: dict[str, Any] = app.synth().get_stack_by_name("Schedules").template
    return json.dumps({"Resources": found["Resources"]})


@pytest.fixture
def deploy(moto_server: MotoServer) -> Iterator[Any]:
    """Deploys the schedules of a fleet at a time, and returns the actions that the account then has."""
    api = moto_server.client("cloudformation")

    def deployed(settings: FleetSettings, time: datetime) -> dict[str, Any]:
        set_clock(moto_server.client("ssm"), time)
        body = schedules(without_past_events(settings, time)[0].events)
        stacks = {stack["StackName"] for stack in api.describe_stacks()["Stacks"]}
        put = api.update_stack if SCHEDULES in stacks else api.create_stack
        put(StackName=SCHEDULES, TemplateBody=body)
        (stack,) = api.describe_stacks(StackName=SCHEDULES)["Stacks"]
        assert stack["StackStatus"].endswith("E_COMPLETE"), api.describe_stack_events(StackName=SCHEDULES)
        pages = moto_server.client("autoscaling").get_paginator("describe_scheduled_actions").paginate()
        return {each["ScheduledActionName"]: each for page in pages for each in page["ScheduledUpdateGroupActions"]}

    yield deployed
    api.delete_stack(StackName=SCHEDULES)


def test_prime_day_deploys_every_week_until_all_its_events_are_over(deploy: Any) -> None:
    time = FIRST
    while time < LAST:
        actions = deploy(PRIME_DAY, time)
        left, _ = without_past_events(PRIME_DAY, time)
        wanted = sum(len(ScalingLaw.for_group(left, group).schedule) for group in left.groups)
        assert len(actions) == wanted, f"{time}: what an event that is over had scheduled is gone"
        time += timedelta(weeks=1)
    assert all("prime-day" not in name.removeprefix("schedules-") for name in actions), "no event is left"


def test_a_new_event_and_a_postponed_one_are_taken_too(deploy: Any) -> None:
    first, *others = PRIME_DAY.events
    with_fewer = PRIME_DAY.model_copy(update={"events": tuple(others[:-1])})
    fewer = deploy(with_fewer, FIRST)
    every = deploy(PRIME_DAY, FIRST + timedelta(days=1))
    assert fewer.keys() < every.keys()
    week = timedelta(weeks=1)
    later = first.model_copy(update={"start": first.start + week, "end": first.end + week})
    postponed = deploy(PRIME_DAY.model_copy(update={"events": (later, *others)}), FIRST + timedelta(days=2))
    before = {each.get("StartTime") for each in every.values()}
    assert {each.get("StartTime") for each in postponed.values()} - before


def test_actions_that_nothing_orders_are_refused_as_in_an_account(moto_server: MotoServer) -> None:
    """The emulator's own: without it the tests above would pass on any template."""
    at_once = json.loads(schedules(PRIME_DAY.events))
    for resource in at_once["Resources"].values():
        resource.pop("DependsOn", None)
    api = moto_server.client("cloudformation")
    set_clock(moto_server.client("ssm"), FIRST)
    api.create_stack(StackName="at-once", TemplateBody=json.dumps(at_once))
    (stack,) = api.describe_stacks(StackName="at-once")["Stacks"]
    assert stack["StackStatus"] == "ROLLBACK_COMPLETE"
    events = api.describe_stack_events(StackName="at-once")["StackEvents"]
    assert any("AlreadyExists" in event.get("ResourceStatusReason", "") for event in events)


BEFORE, NEXT, CELL = "ami-00000001", "ami-00000002", "cell"


def cell_as_it_ships() -> str:
    """Parameters, condition and update policy of the dev fleet's cell, with a topic in the group's place."""
    cell = templates("dev")["Cell-1"]
    group, *_ = resources(cell, "AWS::AutoScaling::AutoScalingGroup").values()
    speed = cell["Parameters"]["RefreshSpeed"]
    topic = {"Type": "AWS::SNS::Topic", "UpdatePolicy": group["UpdatePolicy"]}
    template = {
        "Parameters": {"MachineImageId": {"Type": "String"}, "RefreshSpeed": speed},
        "Conditions": {"FastRefresh": cell["Conditions"]["FastRefresh"]},
        "Resources": {"Group": topic | {"Properties": {"DisplayName": {"Ref": "MachineImageId"}}}},
    }
    return json.dumps(template)


def test_a_rollback_in_the_middle_of_a_refresh_takes_as_long_as_new_hosts_take_to_boot(moto_server: MotoServer) -> None:
    """By the account's clock, which sleeping moves, and the policies that ship."""
    api, ssm, time = (
        moto_server.client("cloudformation"),
        moto_server.client("ssm"),
        datetime(2027, 1, 4, 9, tzinfo=UTC),
    )

    def sleep(seconds: float) -> None:
        nonlocal time
        time += timedelta(seconds=seconds)
        set_clock(ssm, time)

    sleep(0)
    for put, given in (
        (api.create_stack, {"MachineImageId": BEFORE}),
        (api.update_stack, {"MachineImageId": NEXT, "RefreshSpeed": "careful"}),
    ):
        told = [{"ParameterKey": name, "ParameterValue": value} for name, value in given.items()]
        put(StackName=CELL, TemplateBody=cell_as_it_ships(), Parameters=told)
    sleep(1800)
    cell = DeployedCell("cell-1", CELL, api, sleep=sleep)
    assert not cell.is_settled(), "half an hour into a careful refresh"
    begun = time
    cell.return_to(BEFORE)
    assert (cell.runs(), cell.is_settled()) == (BEFORE, True)
    assert (time - begun).total_seconds() <= refresh_seconds(dev_fleet(), FAST) + 60
    api.delete_stack(StackName=CELL)
