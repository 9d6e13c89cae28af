"""A release goes from cell to cell, goes on after its shell died, stops where it does harm, and goes back.

Against moto's CloudFormation, SSM and Step Functions, with a stand-in for the CDK CLI. test_rollout_machine.py has what
the state machine does.
"""

import json
import subprocess
import sys
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from infra.fleet.parts import REPOSITORY_ROOT
from infra.operations import rollout, teardown
from infra.operations.command import OVER, UNDER
from infra.operations.deployed_cell import CellError, DeployedCell, make_way, stack_of
from infra.operations.handover import HandoverError
from infra.operations.rollback import main as rollback_main
from infra.operations.rollout import CannotGoOnError, main
from infra.operations.teardown import Retiring, StillStandingError
from tests.infra.operations.rollout_account import (
    BEFORE,
    CELLS,
    LATER,
    NEXT,
    TEMPLATE,
    Account,
    ShellDiedError,
    asked,
    everywhere,
)
from tests.processes import eventually


def stacks_of(account: Account) -> list[list[str]]:
    """What each call of the CDK CLI deployed."""
    return [asked(line) for line in account.calls]


def test_a_first_deploy_creates_the_canary_then_the_others_then_what_is_over_them(account: Account) -> None:
    assert account.deploy(BEFORE) == 0
    over = [[stack] for stack in OVER]
    assert stacks_of(account) == [list(UNDER), ["Cell-1"], ["Cell-2", "Cell-3"], ["Cell-4"], *over]
    assert account.calls[2][account.calls[2].index("--concurrency") + 1] == "2"
    assert account.running() == everywhere(BEFORE)
    assert account.state().release is None, "the deploy is over"
    account.calls.clear()
    assert account.deploy(NEXT) == 0
    assert stacks_of(account) == [list(UNDER)], "the state machine changes what is there"
    assert account.running() == everywhere(NEXT)


def test_a_deploy_waits_for_its_end_and_skips_what_is_there(
    account: Account, capsys: pytest.CaptureFixture[str]
) -> None:
    assert account.deploy(BEFORE) == 0
    said = capsys.readouterr().out.splitlines()
    assert {f"{stack} has it" for stack in (*CELLS, "edge", "observability", "spending")} <= set(said)
    changes = {cell: account.changes(cell) for cell in CELLS}
    assert account.deploy(BEFORE) == 0
    assert {cell: account.changes(cell) for cell in CELLS} == changes, "this release and these templates are there"


@pytest.mark.parametrize("acts_first", [False, True], ids=["before it acted", "after it acted"])
@pytest.mark.parametrize("call", [1, 3, 7], ids=["under the cells", "two cells at once", "the last stack"])
def test_a_first_deploy_goes_on_where_its_shell_died(account: Account, call: int, acts_first: bool) -> None:
    account.dies_at, account.acts_first = call, acts_first
    with pytest.raises(ShellDiedError):
        account.deploy(NEXT)
    account.dies_at = None
    created = {stack for line in account.calls[: call if acts_first else call - 1] for stack in asked(line)}
    account.calls.clear()
    assert account.deploy(LATER) == 0, "the newest release is another one by now"
    assert account.running() == everywhere(NEXT), "every cell gets the release that the deploy began with"
    again = {stack for line in account.calls for stack in asked(line)} - set(UNDER)
    assert again == {*(cell.capitalize() for cell in CELLS), *OVER} - created


def test_a_creation_that_fails_ends_the_deploy_with_the_cli_s_code(account: Account) -> None:
    account.on_call = lambda line: 7 if "Cell-2" in line else 0
    assert account.deploy(BEFORE) == 7
    assert set(account.running()) == {"cell-1", "cell-2", "cell-3"}, "no further cell is created"


def test_a_release_comes_to_the_cells_of_an_account_that_is_refused_the_last_stack(account: Account) -> None:
    def refused(line: list[str]) -> int:
        if OVER[-1] not in asked(line):
            return 0
        account.client("cloudformation").delete_stack(StackName=stack_of(account.settings, OVER[-1].lower()))
        return 7

    account.on_call = refused
    assert account.deploy(BEFORE) == 7
    assert account.deploy(NEXT, "--again") == 7
    assert account.running() == everywhere(NEXT)
    assert account.state().release == NEXT, "the deploy is not over"
    account.on_call = lambda _: 0
    assert account.deploy(NEXT) == 0
    assert account.state().release is None


def test_a_bake_that_one_execution_s_history_does_not_hold_is_refused(account: Account) -> None:
    with pytest.raises(HandoverError, match=r"1440 minutes .* \(25,000 events\): lower rollout\.canary_bake_minutes"):
        account.deploy(BEFORE, minutes=(24 * 60, 5))
    assert account.calls == [], "before anything is changed"


def test_a_stack_that_was_prepared_and_never_begun_is_not_waited_for(account: Account) -> None:
    """The shell died after the CLI created a change set and before it executed it."""
    account.client("cloudformation").create_change_set(
        StackName=f"peakplan-{account.settings.name}-cell-1", ChangeSetName="cdk", ChangeSetType="CREATE",
        TemplateBody=json.dumps(TEMPLATE), Parameters=[{"ParameterKey": "MachineImageId", "ParameterValue": NEXT}],
    )  # fmt: skip
    assert account.running() == {}
    assert account.deploy(BEFORE) == 0
    assert account.running() == everywhere(BEFORE)
    assert account.state().before("cell-1") is None, "what never ran is nothing to go back to"


class OneStack:
    """CloudFormation with one stack, which is protected from termination."""

    def __init__(self, status: str) -> None:
        self.status, self.is_protected = status, True

    def describe_stacks(self, **_: object) -> dict[str, list[dict[str, str]]]:
        return {"Stacks": [{"StackStatus": self.status}]}

    def update_termination_protection(self, **asked: Any) -> None:
        assert asked["StackName"] == "stack"
        self.is_protected = asked["EnableTerminationProtection"]

    def get_paginator(self, operation: str) -> Any:
        assert operation == "list_stack_resources"
        return self

    def paginate(self, **_: object) -> list[dict[str, Any]]:
        return [{"StackResourceSummaries": []}]


@pytest.mark.parametrize("status", ["ROLLBACK_COMPLETE", "ROLLBACK_FAILED", "CREATE_FAILED"])
def test_a_first_creation_that_failed_does_not_block_the_next(status: str) -> None:
    """The CDK CLI protects a stack before it creates it, and deletes one that failed before it tries again."""
    stack = OneStack(status)
    make_way("stack", stack, None)
    assert not stack.is_protected
    assert not DeployedCell("cell-1", "stack", stack).exists()


@pytest.mark.parametrize(
    "status", ["CREATE_COMPLETE", "CREATE_IN_PROGRESS", "UPDATE_ROLLBACK_COMPLETE", "DELETE_FAILED"]
)
def test_whatever_was_created_keeps_its_protection(status: str) -> None:
    stack = OneStack(status)
    make_way("stack", stack, None)
    assert stack.is_protected
    assert DeployedCell("cell-1", "stack", stack).exists()


def test_no_deploy_begins_without_a_rehearsal_that_passes(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    """`peakplan fleet deploy` and `python -m infra.operations.rollout` too, not only `make deploy`."""
    called: list[list[str]] = []

    def refuse(line: list[str]) -> int:
        called.append(line)
        return 1

    monkeypatch.setattr(rollout, "call", refuse)
    assert main(["dev", "--traffic", str(tmp_path / "my.csv"), "--take-over", "--", "cdk"]) == 1
    gate = [sys.executable, "-m", "rehearsal.twin", "gate", "dev", "--traffic", str(tmp_path / "my.csv")]
    assert called == [gate], "neither synthesised nor asked of AWS"
    assert main(["dev", "--force", "a zone is gone"]) == 1
    assert called[1][-3:] == ["dev", "--force", "a zone is gone"], "the rehearsal logs the reason and lets it through"


def test_a_deploy_is_not_gone_on_with_other_templates(account: Account) -> None:
    account.dies_at = 3
    with pytest.raises(ShellDiedError):
        account.deploy(BEFORE)
    with pytest.raises(CannotGoOnError, match="begun with other templates"):
        account.deploy(BEFORE, note="others")


def test_a_bad_release_stops_at_the_canary(account: Account, capsys: pytest.CaptureFixture[str]) -> None:
    assert account.deploy(BEFORE) == 0
    account.alarm("cell-1", "ALARM")
    assert account.deploy(NEXT) == 1
    said = capsys.readouterr().err
    assert "not touched: cell-2, cell-3, cell-4" in said
    assert "Going back by itself: cell-1" in said
    assert "every cell is back at the release before" in said
    assert account.running() == everywhere(BEFORE)
    account.alarm("cell-1", "OK")
    with pytest.raises(CannotGoOnError, match="has hurt a cell"):
        account.deploy(NEXT)
    assert account.deploy(LATER) == 0
    assert account.running() == everywhere(LATER)


def test_harm_goes_nowhere_back_from_other_templates(account: Account) -> None:
    assert account.deploy(BEFORE) == 0
    account.alarm("cell-1", "ALARM")
    assert account.deploy(BEFORE, note="others") == 1
    assert account.running() == everywhere(BEFORE), "the image before is not to blame for what templates did"


@pytest.mark.slow
def test_a_cell_that_the_fleet_file_no_longer_has_never_runs_on_unwatched(
    account: Account, monkeypatch: pytest.MonkeyPatch
) -> None:
    assert account.deploy(BEFORE) == 0
    account.settings = account.settings.model_copy(update={"cells": 3})
    with pytest.raises(StillStandingError, match="cell-4 stands"):
        account.deploy(NEXT)
    with pytest.raises(CannotGoOnError, match="cell-4 is retired by make deploy RETIRE=1"):
        account.deploy(NEXT, "--retire", "--detach")
    before = {stack: account.changes(stack.lower()) for stack in OVER}
    changed: dict[str, bool] = {}

    def callers_leave(seconds: float) -> None:
        assert seconds == teardown.CALLERS_LEAVE_SECONDS
        changed.update({stack: account.changes(stack.lower()) != before[stack] for stack in OVER})

    def waiting(*of: Any, **given: Any) -> Retiring:
        return replace(teardown.retiring(*of, **given), sleep=callers_leave)

    monkeypatch.setattr(rollout, "retiring", waiting)
    assert account.deploy(NEXT, "--retire", note="fewer") == 0
    assert changed == {"Edge": True, "Observability": False, "Spending": False}, "after its names, before its alarms"
    assert all(account.changes(stack.lower()) != before[stack] for stack in OVER)
    assert account.running() == dict.fromkeys(("cell-1", "cell-2", "cell-3"), NEXT)
    assert account.state().release is None


def test_what_cannot_be_used_is_refused_in_words(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(rollout, "rehearsal", lambda *_: ["true"])
    assert main(["nowhere"]) == 2
    assert "Fleets that ship" in capsys.readouterr().err
    assert main(["dev", "no-such-cdk"]) == 127
    assert "no such command" in capsys.readouterr().err
    assert rollback_main(["nowhere"]) == 2
    monkeypatch.setenv("AWS_ENDPOINT_URL", "http://127.0.0.1:1")
    monkeypatch.setenv("AWS_MAX_ATTEMPTS", "1")
    monkeypatch.setenv("AWS_ACCESS_KEY_ID", "testing")
    monkeypatch.setenv("AWS_SECRET_ACCESS_KEY", "testing")
    assert rollback_main(["dev"]) == 2
    assert "AWS cannot be reached" in capsys.readouterr().err


def test_make_deploy_asks_the_account_before_it_changes_anything() -> None:
    said = subprocess.run(
        ["make", "--dry-run", "deploy", "FLEET=dev"], cwd=REPOSITORY_ROOT, capture_output=True, text=True, check=True
    ).stdout
    assert said.index("fleet preflight dev") < said.index("fleet deploy dev")


def test_a_rollback_is_one_update_of_each_stack_and_the_next_one_goes_further(account: Account) -> None:
    for image in (BEFORE, NEXT, LATER):
        assert account.deploy(image) == 0
    account.calls.clear()
    assert account.roll_back() == everywhere(NEXT)
    assert account.calls == [], "no CDK, no templates"
    parameters = account.client("cloudformation").describe_stacks(StackName=f"peakplan-{account.settings.name}-cell-1")
    found = {each["ParameterKey"]: each["ParameterValue"] for each in parameters["Stacks"][0]["Parameters"]}
    assert found == {"MachineImageId": NEXT, "RefreshSpeed": "fast", "Certificate": "arn"}
    assert account.roll_back() == everywhere(BEFORE)
    with pytest.raises(CellError, match="RELEASE="):
        account.roll_back()
    assert account.roll_back(LATER) == everywhere(LATER)


@pytest.mark.slow
def test_a_rollback_never_returns_to_a_release_that_did_harm(account: Account) -> None:
    """The deploy of such a release has created a cell before its canary was hurt."""
    every = account.settings
    account.settings = every.model_copy(update={"cells": 3})
    assert account.deploy(BEFORE) == 0
    account.settings = every
    account.alarm("cell-1", "ALARM")
    assert account.deploy(NEXT) == 1
    assert account.running() == everywhere(BEFORE) | {"cell-4": NEXT}
    account.alarm("cell-1", "OK")
    assert account.deploy(LATER) == 0
    assert account.roll_back() == dict.fromkeys(("cell-1", "cell-2", "cell-3"), BEFORE)
    assert account.running() == everywhere(BEFORE) | {"cell-4": LATER}


@pytest.mark.slow
def test_a_rollback_of_a_deploy_that_was_broken_off_returns_only_what_it_moved(account: Account) -> None:
    for image in (BEFORE, NEXT):
        assert account.deploy(image) == 0
    execution = account.hand_over(LATER, bakes=True)
    eventually(lambda: account.running()["cell-1"] == LATER, "the canary was not changed")
    account.client("stepfunctions").stop_execution(executionArn=execution, cause="a test")
    assert account.roll_back() == {"cell-1": NEXT}
    assert account.running() == everywhere(NEXT)


class Scripted:
    """CloudFormation with a stack in mid-change: each request returns the next status."""

    def __init__(self, *statuses: str) -> None:
        self.statuses = list(statuses)
        self.asked: list[str] = []
        self.image = NEXT

    def describe_stacks(self, **_: object) -> dict[str, Any]:
        status = self.statuses.pop(0) if len(self.statuses) > 1 else self.statuses[0]
        parameters = [{"ParameterKey": "MachineImageId", "ParameterValue": self.image}]
        return {"Stacks": [{"StackStatus": status, "Parameters": parameters}]}

    def __getattr__(self, name: str) -> Callable[..., None]:
        def note(**_: Any) -> None:
            self.asked.append(name)
            if name == "update_stack":
                self.image, self.statuses = BEFORE, ["UPDATE_IN_PROGRESS", "UPDATE_COMPLETE"]

        return note


@pytest.mark.parametrize(
    ("statuses", "asked"),
    [
        (
            ["UPDATE_IN_PROGRESS", "UPDATE_ROLLBACK_IN_PROGRESS", "UPDATE_ROLLBACK_COMPLETE"],
            ["cancel_update_stack", "update_stack"],
        ),
        (
            ["UPDATE_ROLLBACK_FAILED", "UPDATE_ROLLBACK_IN_PROGRESS", "UPDATE_ROLLBACK_COMPLETE"],
            ["continue_update_rollback", "update_stack"],
        ),
        (["UPDATE_COMPLETE_CLEANUP_IN_PROGRESS", "UPDATE_COMPLETE"], ["update_stack"]),
    ],
    ids=["a deploy runs", "its own rollback failed", "it cleans up"],
)
def test_a_stack_in_the_middle_of_things_comes_back(statuses: list[str], asked: list[str]) -> None:
    stack = Scripted(*statuses)
    DeployedCell("cell-1", "stack", stack, sleep=lambda _: None).return_to(BEFORE)
    assert stack.asked == asked


def test_a_stack_that_a_person_must_look_at_is_named() -> None:
    with pytest.raises(CellError, match="stack is ROLLBACK_FAILED"):
        DeployedCell("cell-1", "stack", Scripted("ROLLBACK_FAILED"), sleep=lambda _: None).return_to(BEFORE)
