"""Scheduled actions survive the passing of events: Auto Scaling never refuses a fleet that is deployed every week."""

import json
from collections.abc import Iterator
from datetime import UTC, datetime, timedelta
from functools import cache
from typing import Any

import pytest
from aws_cdk import App, Stack

from infra.constructs.schedule import GroupSchedule
from infra.fleet.demand import Event
from infra.fleet.scaling import ScalingLaw
from infra.fleet.settings import FLEETS, FleetSettings, without_past_events
from tests.infra.moto_server import MotoServer
from tests.infra.moto_timing import set_clock

PRIME_DAY = FleetSettings.from_yaml(FLEETS / "prime-day.yaml")
STACK = "schedules"
FIRST, LAST = datetime(2026, 11, 23, 9, tzinfo=UTC), datetime(2029, 1, 1, 9, tzinfo=UTC)


@cache
def template(events: tuple[Event, ...]) -> str:
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
        body = template(without_past_events(settings, time)[0].events)
        stacks = {stack["StackName"] for stack in api.describe_stacks()["Stacks"]}
        put = api.update_stack if STACK in stacks else api.create_stack
        put(StackName=STACK, TemplateBody=body)
        (stack,) = api.describe_stacks(StackName=STACK)["Stacks"]
        assert stack["StackStatus"].endswith("E_COMPLETE"), api.describe_stack_events(StackName=STACK)["StackEvents"]
        pages = moto_server.client("autoscaling").get_paginator("describe_scheduled_actions").paginate()
        return {each["ScheduledActionName"]: each for page in pages for each in page["ScheduledUpdateGroupActions"]}

    yield deployed
    api.delete_stack(StackName=STACK)


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
    at_once = json.loads(template(PRIME_DAY.events))
    for resource in at_once["Resources"].values():
        resource.pop("DependsOn", None)
    api = moto_server.client("cloudformation")
    set_clock(moto_server.client("ssm"), FIRST)
    api.create_stack(StackName="at-once", TemplateBody=json.dumps(at_once))
    (stack,) = api.describe_stacks(StackName="at-once")["Stacks"]
    assert stack["StackStatus"] == "ROLLBACK_COMPLETE"
    said = " ".join(event.get("ResourceStatusReason", "") for event in stack_events(api, "at-once"))
    assert "AlreadyExists" in said


def stack_events(api: Any, stack: str) -> list[dict[str, Any]]:
    events: list[dict[str, Any]] = api.describe_stack_events(StackName=stack)["StackEvents"]
    return events
