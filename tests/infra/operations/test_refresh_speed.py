"""How long a release takes to come and to go back, in the emulated account's clock and by the policies that ship."""

import json
from collections.abc import Iterator
from datetime import UTC, datetime, timedelta
from typing import Any

import pytest

from infra.fleet.policies import Signal
from infra.fleet.replacement import FAST, careful, refresh_seconds, stops
from infra.fleet.scaling import ScalingLaw
from infra.fleet.settings import FLEETS, FleetSettings
from infra.fleet.sizing import service_time
from infra.operations.deployed_cell import DeployedCell
from infra.operations.handover import waves_of
from tests.infra.fleet.fleets import dev_fleet
from tests.infra.moto_server import MotoServer
from tests.infra.moto_timing import NOW, set_clock
from tests.infra.synthesis import resources, templates

BEFORE, NEXT, STACK = "ami-00000001", "ami-00000002", "cell"


def cell_as_it_ships() -> str:
    """Parameters, condition and update policy of the dev fleet's cell, with a topic in the group's place."""
    cell = templates("dev")["Cell-1"]
    group, *_ = resources(cell, "AWS::AutoScaling::AutoScalingGroup").values()
    speed = cell["Parameters"]["RefreshSpeed"]
    topic = {"Type": "AWS::SNS::Topic", "UpdatePolicy": group["UpdatePolicy"]}
    return json.dumps(
        {
            "Parameters": {"MachineImageId": {"Type": "String"}, "RefreshSpeed": speed},
            "Conditions": {"FastRefresh": cell["Conditions"]["FastRefresh"]},
            "Resources": {"Group": topic | {"Properties": {"DisplayName": {"Ref": "MachineImageId"}}}},
        }
    )


class Clock:
    """The emulated account's clock, which sleeping moves."""

    def __init__(self, server: MotoServer) -> None:
        self._ssm = server.client("ssm")
        self.time = self.begins = datetime(2027, 1, 4, 9, tzinfo=UTC)
        self.sleep(0)

    def sleep(self, seconds: float) -> None:
        self.time += timedelta(seconds=seconds)
        set_clock(self._ssm, self.time)


@pytest.fixture
def clock(moto_server: MotoServer) -> Iterator[Clock]:
    yield Clock(moto_server)
    moto_server.client("ssm").delete_parameter(Name=NOW)
    moto_server.client("cloudformation").delete_stack(StackName=STACK)


def parameters(image: str, speed: str | None = None) -> list[dict[str, str]]:
    given = {"MachineImageId": image} | ({"RefreshSpeed": speed} if speed else {})
    return [{"ParameterKey": name, "ParameterValue": value} for name, value in given.items()]


def deployed_careful(api: Any, image: str) -> None:
    """What `make deploy` asks of CloudFormation for a cell."""
    api.update_stack(StackName=STACK, TemplateBody=cell_as_it_ships(), Parameters=parameters(image, "careful"))


def test_a_rollback_in_the_middle_of_a_refresh_takes_as_long_as_new_hosts_take_to_boot(
    moto_server: MotoServer, clock: Clock
) -> None:
    api = moto_server.client("cloudformation")
    api.create_stack(StackName=STACK, TemplateBody=cell_as_it_ships(), Parameters=parameters(BEFORE))
    deployed_careful(api, NEXT)
    clock.sleep(1800)
    cell = DeployedCell("cell-1", STACK, api, sleep=clock.sleep)
    assert not cell.is_settled(), "half an hour into a careful refresh"
    begun = clock.time
    cell.return_to(BEFORE)
    assert (cell.runs(), cell.is_settled()) == (BEFORE, True)
    assert (clock.time - begun).total_seconds() <= refresh_seconds(dev_fleet(), FAST) + 60


def test_a_deploy_that_is_through_leaves_the_stack_at_the_fast_speed(moto_server: MotoServer, clock: Clock) -> None:
    api = moto_server.client("cloudformation")
    api.create_stack(StackName=STACK, TemplateBody=cell_as_it_ships(), Parameters=parameters(BEFORE))
    deployed_careful(api, NEXT)
    cell = DeployedCell("cell-1", STACK, api, sleep=clock.sleep)
    assert cell.settled() == "UPDATE_COMPLETE"
    through = clock.time
    resting = parameters(NEXT, "fast")  # as the state machine asks for it
    api.update_stack(StackName=STACK, TemplateBody=cell_as_it_ships(), Parameters=resting)
    assert cell.settled() == "UPDATE_COMPLETE"
    assert clock.time == through, "no instance is replaced for it"
    (stack,) = api.describe_stacks(StackName=STACK)["Stacks"]
    said = {each["ParameterKey"]: each["ParameterValue"] for each in stack["Parameters"]}
    assert said == {"MachineImageId": NEXT, "RefreshSpeed": "fast"}


def test_a_release_is_everywhere_within_half_a_working_day() -> None:
    """From the first cell to the last, watched ones included: the canary, then waves."""
    fleet = FleetSettings.from_yaml(FLEETS / "prime-day.yaml")
    waves, each = len(waves_of(fleet)) - 1, refresh_seconds(fleet, careful(fleet))
    watched = 60 * (fleet.rollout.canary_bake_minutes + waves * fleet.rollout.bake_minutes)
    assert (waves + 1) * each + watched <= 4 * 3600


@pytest.mark.parametrize("name", ["prime-day", "prime-day-small"])
def test_harm_on_a_part_of_the_hosts_crosses_the_lines_that_stop_a_refresh(name: str) -> None:
    """No plan by the model takes longer than the SLO, and a tenth of the hosts that spoils a fifth is 2%."""
    fleet = FleetSettings.from_yaml(FLEETS / f"{name}.yaml")
    for group in fleet.groups:
        lines = {stop.signal: stop.line for stop in stops(ScalingLaw.for_group(fleet, group))}
        assert service_time(fleet, group).p99_ms < lines[Signal.MODEL_P99] < fleet.slo.p99_ms
        assert round(1 - fleet.slo.model_goal, 6) <= lines[Signal.BY_RULE] < careful(fleet).checkpoints[0] / 100 * 0.2
