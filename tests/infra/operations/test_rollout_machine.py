"""A release goes from cell to cell inside the account: the shipped state machine, interpreted by moto.

Waves, gates, harm, interruption and resumption, and a lock that somebody takes. Not run in a real account.
"""

import json
from collections.abc import Iterator
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import pytest

from infra.fleet.alarms import alarm_name
from infra.fleet.rollout_machine import HARM, definition
from infra.fleet.rollout_states import FAILED, LOST, done_parameter, machine_name
from infra.operations.deploy_lock import LockedError
from infra.operations.deployment_state import DeploymentState, Step
from infra.operations.handover import Handover, waves_of
from infra.operations.rollout import CannotGoOnError, start
from infra.operations.rollout_marks import RolloutMarks
from tests.infra.moto_server import ACCOUNT, REGION
from tests.infra.operations.rollout_account import BEFORE, CELLS, LATER, NEXT, TEMPLATE, Account, everywhere, known
from tests.processes import eventually

OVER = {"Resources": {"Topic": {"Type": "AWS::SNS::Topic"}}}
BUCKET = f"cdk-hnb659fds-assets-{ACCOUNT}-{REGION}"


def assembly_of(folder: Path, note: str, cell_template: dict[str, Any]) -> Path:
    """What a synthesis leaves, with the account's small templates; `note` makes it another one."""
    stacks = {
        **{cell.capitalize(): cell_template for cell in CELLS},
        "Edge": OVER,
        "Observability": OVER,
        "Spending": OVER,
    }
    for stack, template in stacks.items():
        (folder / f"{stack}.template.json").write_text(json.dumps({**template, "Description": note}), encoding="utf-8")
        place = {"bucketName": "cdk-hnb659fds-assets-${AWS::AccountId}-" + REGION, "objectKey": f"{note}-{stack}.json"}
        asset = {"source": {"path": f"{stack}.template.json"}, "destinations": {"current": place}}
        files = {"files": {"hash": asset}}
        (folder / f"{stack}.assets.json").write_text(json.dumps(files), encoding="utf-8")
    artifacts = {
        stack: {"properties": {"tags": {"peakplan:part": stack.lower()}, "terminationProtection": stack == "Edge"}}
        for stack in stacks
    }
    (folder / "manifest.json").write_text(json.dumps({"artifacts": artifacts}), encoding="utf-8")
    return folder


class Rollouts:
    """The fleet's machine in the account, and deploys that are handed over to it."""

    def __init__(self, account: Account, folder: Path) -> None:
        self.account, self._folder, self.template = account, folder, TEMPLATE
        self.machine = account.client("stepfunctions").create_state_machine(
            name=machine_name(account.settings),
            definition=json.dumps(definition(account.settings)),
            roleArn=f"arn:aws:iam::{ACCOUNT}:role/rollout",
        )["stateMachineArn"]

    def hand_over(
        self,
        image: str,
        *,
        note: str = "one",
        minutes: float = 0,
        take_over: bool = False,
        again: bool = False,
        **lock: Any,
    ) -> str:
        """`make release` with these templates, after the stacks under the cells."""
        folder = self._folder / f"{note}-{image}"
        folder.mkdir(exist_ok=True)
        held = self.account.lock("deploy", **lock)
        held.acquire(take_over=take_over)
        try:
            state = self.account.state()
            if again:  # as --again does
                state.finish()
                state.rejected = []
            start(state, known(image), note, known)
            handover = Handover(
                self.account.settings, state, self.account.client, assembly_of(folder, note, self.template)
            )
            handover = replace(handover, look_seconds=1 if minutes else 0, settle_seconds=1)
            return handover.start(held, minutes, minutes)
        finally:
            held.release()

    def described(self, execution: str) -> dict[str, Any]:
        found: dict[str, Any] = self.account.client("stepfunctions").describe_execution(executionArn=execution)
        return found

    def ended(self, execution: str) -> dict[str, Any]:
        """The execution once nothing of it runs any more."""
        eventually(lambda: self.described(execution)["status"] != "RUNNING", "the machine goes on for ever")
        return self.described(execution)

    def begun(self) -> list[str]:
        """The cells in the order in which their stacks were last changed."""
        api = self.account.client("cloudformation")
        names = {f"peakplan-{self.account.settings.name}-{cell}": cell for cell in CELLS}
        found = [stack for stack in api.describe_stacks()["Stacks"] if stack["StackName"] in names]
        found.sort(key=lambda stack: stack.get("LastUpdatedTime", stack["CreationTime"]))
        return [names[stack["StackName"]] for stack in found]

    def lock(self) -> str | None:
        ssm, name = self.account.client("ssm"), f"/peakplan/{self.account.settings.name}/deploy-lock"
        try:
            return str(ssm.get_parameter(Name=name)["Parameter"]["Value"])
        except ssm.exceptions.ParameterNotFound:
            return None


@pytest.fixture
def rollouts(account: Account, tmp_path: Path) -> Iterator[Rollouts]:
    s3 = account.client("s3")
    if BUCKET not in [each["Name"] for each in s3.list_buckets()["Buckets"]]:
        s3.create_bucket(Bucket=BUCKET)
    made = Rollouts(account, tmp_path)
    yield made
    api = account.client("cloudformation")
    for over in ("edge", "observability"):
        name = f"peakplan-{account.settings.name}-{over}"
        if name in [stack["StackName"] for stack in api.describe_stacks()["Stacks"]]:
            api.update_termination_protection(StackName=name, EnableTerminationProtection=False)
        api.delete_stack(StackName=name)


def test_the_canary_goes_first_and_the_others_in_waves(rollouts: Rollouts) -> None:
    account = rollouts.account
    assert waves_of(account.settings) == [("cell-1",), ("cell-2", "cell-3"), ("cell-4",)]
    for image in (BEFORE, NEXT):  # the first execution makes the stacks, the second changes them
        ended = rollouts.ended(rollouts.hand_over(image))
        assert ended["status"] == "SUCCEEDED", f"{ended.get('error')}: {ended.get('cause')}"
        assert account.running() == everywhere(image)
    begun = rollouts.begun()
    assert (begun[0], set(begun[1:3]), begun[3]) == ("cell-1", {"cell-2", "cell-3"}, "cell-4")
    assert {account.parameters(cell)["RefreshSpeed"] for cell in CELLS} == {"fast"}, "where stacks rest"
    state = account.state()
    assert (state.release, state.before("cell-4")) == (None, BEFORE)
    assert rollouts.lock() is None
    stacks = account.client("cloudformation").describe_stacks()["Stacks"]
    protected = {stack["StackName"]: stack["EnableTerminationProtection"] for stack in stacks}
    over = {name: protected[f"peakplan-{account.settings.name}-{name}"] for name in ("edge", "observability")}
    assert over == {"edge": True, "observability": False}, "as the CDK CLI makes them"


@pytest.mark.parametrize("key", ["deploy-health", "shoppers-buy-less", "synthetic-plans"])
def test_a_failed_gate_stops_every_later_wave(rollouts: Rollouts, key: str) -> None:
    account = rollouts.account
    rollouts.ended(rollouts.hand_over(BEFORE))
    account.alarm("cell-1", "ALARM", key)
    ended = rollouts.ended(rollouts.hand_over(NEXT))
    assert (ended["status"], ended["error"]) == ("FAILED", HARM)
    assert key in ended["cause"]
    assert "every cell is back at the release before" in ended["cause"]
    assert account.running() == everywhere(BEFORE)
    assert account.parameters("cell-1") == account.parameters("cell-4")
    state = account.state()
    assert (state.release, state.cell("cell-1").releases, state.rejected) == (None, [BEFORE], [NEXT])
    assert rollouts.lock() is None, "a person may act at once"
    with pytest.raises(CannotGoOnError, match="has hurt a cell"):
        rollouts.hand_over(NEXT)
    watching = account.client("cloudwatch")  # the emulator does not look at an alarm's state where it is named
    watching.delete_alarms(AlarmNames=[alarm_name(account.settings.name, "cell-1", key)])
    ended = rollouts.ended(rollouts.hand_over(LATER))
    assert ended["status"] == "SUCCEEDED", f"{ended.get('error')}: {ended.get('cause')}"
    assert account.running() == everywhere(LATER)


def test_harm_of_a_first_release_leaves_it_where_it_is(rollouts: Rollouts) -> None:
    account = rollouts.account
    account.alarm("cell-1", "ALARM")
    assert rollouts.ended(rollouts.hand_over(BEFORE))["error"] == HARM
    assert account.running() == {"cell-1": BEFORE}
    assert account.state().cell("cell-1").step is Step.HURT
    with pytest.raises(CannotGoOnError, match="cell-1 was hurt"):
        rollouts.hand_over(LATER)


def test_a_later_wave_is_gated_too(rollouts: Rollouts) -> None:
    account = rollouts.account
    rollouts.ended(rollouts.hand_over(BEFORE))
    account.alarm("cell-3", "ALARM")
    assert rollouts.ended(rollouts.hand_over(NEXT))["error"] == HARM
    assert account.running() == everywhere(BEFORE), "cells that had baked go back, too"
    parameter = account.client("ssm").get_parameter(Name=done_parameter(account.settings, "cell-1"))
    assert parameter["Parameter"]["Value"] == f"back at {BEFORE}", "tried again, it would not be skipped"


def test_what_was_interrupted_goes_on_where_it_was(rollouts: Rollouts) -> None:
    account = rollouts.account
    rollouts.ended(rollouts.hand_over(BEFORE))
    first = rollouts.hand_over(NEXT, minutes=1e6)  # it bakes its canary until somebody stops it
    eventually(lambda: account.running()["cell-1"] == NEXT, "the canary was not changed")
    with pytest.raises(LockedError, match="a deploy runs"):
        rollouts.hand_over(NEXT)
    account.client("stepfunctions").stop_execution(executionArn=first, cause="a test")
    assert rollouts.ended(first)["status"] in ("ABORTED", "FAILED")  # moto's worker may write the latter over it
    later = datetime.now(UTC) + timedelta(minutes=6)
    assert account.running() == everywhere(BEFORE) | {"cell-1": NEXT}
    again = rollouts.hand_over(LATER, take_over=True, now=lambda: later)
    assert rollouts.ended(again)["status"] == "SUCCEEDED"
    assert account.running() == everywhere(NEXT), "every cell gets the release that the deploy began with"


def test_what_a_deploy_has_behind_it_is_skipped(rollouts: Rollouts) -> None:
    account = rollouts.account
    rollouts.ended(rollouts.hand_over(BEFORE))
    ssm = account.client("ssm")
    for cell in CELLS[:3]:
        name = done_parameter(account.settings, cell)
        assert ssm.get_parameter(Name=name)["Parameter"]["Value"] == f"{BEFORE} one"
        ssm.put_parameter(Name=name, Value=f"{NEXT} one", Overwrite=True)
    assert rollouts.ended(rollouts.hand_over(NEXT))["status"] == "SUCCEEDED"
    assert account.running() == everywhere(BEFORE) | {"cell-4": NEXT}


def test_a_mark_whose_stack_is_gone_is_not_trusted(rollouts: Rollouts) -> None:
    account = rollouts.account
    rollouts.ended(rollouts.hand_over(BEFORE))
    account.client("cloudformation").delete_stack(StackName=f"peakplan-{account.settings.name}-cell-2")
    assert "cell-2" not in account.running()
    assert rollouts.ended(rollouts.hand_over(BEFORE))["status"] == "SUCCEEDED"
    assert account.running() == everywhere(BEFORE)


def test_it_stops_where_a_rollback_takes_the_lock(rollouts: Rollouts) -> None:
    account = rollouts.account
    rollouts.ended(rollouts.hand_over(BEFORE))
    execution = rollouts.hand_over(NEXT, minutes=1e6)
    eventually(lambda: account.running()["cell-1"] == NEXT, "the canary was not changed")
    taken = account.lock("rollback")
    taken.acquire()
    ended = rollouts.ended(execution)
    assert (ended["status"], ended["error"]) == ("FAILED", LOST)
    taken.check()  # and it is still the rollback's
    taken.release()


def test_a_rollback_stops_the_machine_itself(rollouts: Rollouts) -> None:
    account = rollouts.account
    rollouts.ended(rollouts.hand_over(BEFORE))
    execution = rollouts.hand_over(NEXT, minutes=1e6)
    eventually(lambda: account.running()["cell-1"] == NEXT, "the canary was not changed")
    assert account.roll_back() == {"cell-1": BEFORE}
    assert rollouts.ended(execution)["status"] in ("ABORTED", "FAILED")
    assert account.running() == everywhere(BEFORE)


def test_what_was_rolled_back_by_hand_is_not_skipped_when_it_is_deployed_again(rollouts: Rollouts) -> None:
    account = rollouts.account
    for image in (BEFORE, NEXT):
        assert rollouts.ended(rollouts.hand_over(image))["status"] == "SUCCEEDED"
    assert account.roll_back() == everywhere(BEFORE)
    assert rollouts.ended(rollouts.hand_over(NEXT, again=True))["status"] == "SUCCEEDED"
    assert account.running() == everywhere(NEXT), "what succeeded is there"


def test_what_a_shell_deployed_since_is_not_skipped(rollouts: Rollouts) -> None:
    """A deploy from a shell makes the machine's marks untrue, and takes them back."""
    account = rollouts.account
    assert rollouts.ended(rollouts.hand_over(BEFORE))["status"] == "SUCCEEDED"
    assert account.deploy(NEXT) == 0
    marks = RolloutMarks(account.settings, account.client("ssm"))
    behind = DeploymentState(release=NEXT, assembly="templates")
    assert all(marks.has(stack, behind) for stack in (*CELLS, "Edge", "Observability", "Spending"))
    assert rollouts.ended(rollouts.hand_over(BEFORE))["status"] == "SUCCEEDED"
    assert account.running() == everywhere(BEFORE)


def test_a_shell_goes_on_where_the_machine_was_broken_off(rollouts: Rollouts) -> None:
    account = rollouts.account
    rollouts.ended(rollouts.hand_over(BEFORE))
    first = rollouts.hand_over(NEXT, minutes=1e6)
    eventually(lambda: account.running()["cell-1"] == NEXT, "the canary was not changed")
    account.client("stepfunctions").stop_execution(executionArn=first, cause="a test")
    rollouts.ended(first)
    account.client("ssm").delete_parameter(Name=f"/peakplan/{account.settings.name}/deploy-lock")  # taken over
    RolloutMarks(account.settings, account.client("ssm")).done("cell-1", account.state())  # as after its bake
    account.calls.clear()
    assert account.deploy(LATER, assembly="one") == 0
    assert account.running() == everywhere(NEXT)
    assert "Cell-1" not in [word for line in account.calls for word in line], "it has that behind it"


def test_a_cell_that_is_not_there_is_made_and_one_that_cannot_be_changed_ends_it(rollouts: Rollouts) -> None:
    account = rollouts.account
    rollouts.ended(rollouts.hand_over(BEFORE))
    account.client("cloudformation").delete_stack(StackName=f"peakplan-{account.settings.name}-cell-2")
    assert rollouts.ended(rollouts.hand_over(NEXT))["status"] == "SUCCEEDED"
    assert account.running() == everywhere(NEXT)
    nowhere = {"AutoScalingGroupName": "nowhere", "MinSize": 3, "StartTime": "2020-01-01T00:00:00Z"}
    impossible = {"Type": "AWS::AutoScaling::ScheduledAction", "DependsOn": ["Topic"], "Properties": nowhere}
    rollouts.template = {**TEMPLATE, "Resources": {**TEMPLATE["Resources"], "Impossible": impossible}}
    ended = rollouts.ended(rollouts.hand_over(LATER, note="unchangeable"))
    assert (ended["status"], ended["error"]) == ("FAILED", FAILED)
    running = account.running()
    assert (running["cell-2"], running["cell-4"]) == (NEXT, NEXT), "no further cell is begun"
    assert rollouts.lock() is None
