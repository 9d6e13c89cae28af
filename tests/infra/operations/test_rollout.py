"""A release goes from cell to cell, goes on after its shell died, and stops at the canary where it does harm.

Against moto's CloudFormation and SSM, by a stand-in for the CDK CLI.
"""

import json
import subprocess
import sys
import threading
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from infra.fleet.parts import REPOSITORY_ROOT
from infra.fleet.settings import FLEETS, FleetSettings
from infra.operations import rollout
from infra.operations.command_lines import OVER, UNDER, synthesis
from infra.operations.deployed_cell import DeployedCell, make_way
from infra.operations.deployment_state import Step
from infra.operations.retiring import CALLERS_LEAVE_SECONDS, StillStandingError, retiring
from infra.operations.rollback import main as rollback_main
from infra.operations.rollout import CannotGoOnError, main
from tests.infra.operations.rollout_account import (
    BEFORE,
    CELLS,
    LATER,
    NEXT,
    TEMPLATE,
    Account,
    ShellDiedError,
    everywhere,
)


def test_the_canary_goes_alone_and_the_others_follow(account: Account) -> None:
    assert account.deploy(BEFORE) == 0
    stacks = [line[line.index("--exclusively") + 1] for line in account.calls]
    assert stacks[:2] == ["Network", "Cell-1"]
    assert sorted(stacks[2:5]) == ["Cell-2", "Cell-3", "Cell-4"]
    assert [line[-1] for line in account.calls[-3:]] == ["Edge", "Observability", "Spending"]
    assert account.running() == everywhere(BEFORE)
    assert account.state().release is None, "the deploy is over"
    asked = {word for line in account.calls for word in line if word.startswith("RefreshSpeed=")}
    assert asked == {"RefreshSpeed=careful"}
    assert {account.parameters(cell)["RefreshSpeed"] for cell in everywhere(BEFORE)} == {"fast"}, "where stacks rest"


def test_cells_after_the_canary_roll_as_many_at_a_time_as_the_fleet_file_says(account: Account) -> None:
    both = threading.Barrier(2, timeout=60)

    def wait_for_another(line: list[str]) -> int:
        if any(word in line for word in ("Cell-2", "Cell-3")):
            both.wait()  # would time out if one waited for the other's end
        return 0

    account.on_call = wait_for_another
    assert account.deploy(BEFORE) == 0


@pytest.mark.parametrize("acts_first", [False, True], ids=["before it acted", "after it acted"])
@pytest.mark.parametrize(
    "step",
    range(1, 8),
    ids=["foundation", "canary", "second cell", "third cell", "last cell", "names", "alarms"],
)
def test_a_deploy_goes_on_where_its_shell_died(account: Account, step: int, acts_first: bool) -> None:
    assert account.deploy(BEFORE) == 0
    account.calls.clear()
    account.dies_at, account.acts_first = step, acts_first
    with pytest.raises(ShellDiedError):
        account.deploy(NEXT)
    done = [name for name, cell in account.state().cells.items() if cell.step is Step.DONE]
    account.dies_at = None
    account.calls.clear()

    assert account.deploy(LATER) == 0, "the newest release is another one by now"
    assert account.running() == everywhere(NEXT), "every cell gets the release that the deploy began with"
    again = {word.lower() for line in account.calls for word in line if word.startswith("Cell-")}
    assert not again & set(done), "what was baked is not deployed again"


@pytest.mark.parametrize("acts_first", [False, True], ids=["before it is written", "after it is written"])
def test_a_deploy_goes_on_whatever_it_wrote_last(account: Account, acts_first: bool) -> None:
    """Its shell dies at each write of its progress: the release, what is under the cells, each cell twice, the end."""
    assert account.deploy(BEFORE) == 0
    account.acts_first = acts_first
    for write in range(1, 12):
        image = f"ami-{0xA0 + write:08x}"
        account.writes, account.dies_at_write = 0, write
        with pytest.raises(ShellDiedError):
            account.deploy(image)
        account.dies_at_write = None
        assert account.deploy(image) == 0
        assert account.running() == everywhere(image), f"write {write}"
        assert account.state().release is None
    account.writes = 0
    assert account.deploy(LATER) == 0
    assert account.writes == 11, "every one of them"


def test_a_stack_that_was_prepared_and_never_begun_is_not_waited_for(account: Account) -> None:
    """The shell died between the CLI's change set and its execution."""
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

    monkeypatch.setattr(rollout, "_call", refuse)
    assert main(["dev", "--traffic", str(tmp_path / "my.csv"), "--take-over", "--", "cdk"]) == 1
    gate = [sys.executable, "-m", "rehearsal.twin", "gate", "dev", "--traffic", str(tmp_path / "my.csv")]
    assert called == [gate], "neither synthesised nor asked of AWS"
    assert main(["dev", "--force", "a zone is gone"]) == 1
    assert called[1][-3:] == ["dev", "--force", "a zone is gone"], "the rehearsal logs the reason and lets it through"


def test_a_shell_that_dies_begins_no_other_cell(account: Account) -> None:
    one_at_a_time = account.settings.rollout.model_copy(update={"parallel_cells": 1})
    account.settings = account.settings.model_copy(update={"rollout": one_at_a_time})
    account.dies_at = 3
    with pytest.raises(ShellDiedError):
        account.deploy(BEFORE)
    assert set(account.running()) == {"cell-1"}
    assert len(account.calls) == 3


def test_a_deploy_is_not_gone_on_with_other_templates(account: Account) -> None:
    account.dies_at = 3
    with pytest.raises(ShellDiedError):
        account.deploy(BEFORE)
    with pytest.raises(CannotGoOnError, match="begun with other templates"):
        account.deploy(BEFORE, assembly="others")


def test_a_bad_release_stops_at_the_canary(account: Account, capsys: pytest.CaptureFixture[str]) -> None:
    assert account.deploy(BEFORE) == 0
    account.alarm("cell-1", "ALARM")
    assert account.deploy(NEXT) == 1
    said = capsys.readouterr().err
    assert "not touched: cell-2, cell-3, cell-4" in said
    assert "Going back by itself: cell-1" in said
    assert account.running() == everywhere(BEFORE)
    account.alarm("cell-1", "OK")
    with pytest.raises(CannotGoOnError, match="has hurt a cell"):
        account.deploy(NEXT)
    assert account.deploy(LATER) == 0
    assert account.running() == everywhere(LATER)


def test_harm_in_a_later_cell_begins_no_other(account: Account) -> None:
    assert account.deploy(BEFORE) == 0
    one_at_a_time = account.settings.rollout.model_copy(update={"parallel_cells": 1})
    account.settings = account.settings.model_copy(update={"rollout": one_at_a_time})
    account.alarm("cell-2", "ALARM")
    assert account.deploy(NEXT) == 1
    assert account.running() == everywhere(BEFORE)
    assert [account.state().cell(cell).releases for cell in CELLS] == [[BEFORE]] * 4
    assert account.state().rejected == [NEXT]
    assert len(account.calls) == 1 + 4 + len(OVER) + 1 + 2, "cell-3 and cell-4 were not begun"


def test_harm_in_one_cell_ends_the_bakes_beside_it(account: Account) -> None:
    assert account.deploy(BEFORE) == 0
    account.alarm("cell-2", "ALARM")
    account.alarm("cell-3", "OK")  # which bakes for years unless it hears of the harm
    assert account.deploy(NEXT, minutes=1e6) == 1
    assert account.running() == everywhere(BEFORE)


def test_harm_goes_nowhere_back_from_a_first_release_or_from_other_templates(account: Account) -> None:
    account.alarm("cell-1", "ALARM")
    assert account.deploy(BEFORE) == 1
    assert account.running() == {"cell-1": BEFORE}
    account.alarm("cell-1", "OK")
    assert account.deploy(NEXT, again=True) == account.deploy(LATER) == 0
    account.alarm("cell-1", "ALARM")
    assert account.deploy(LATER, assembly="others") == 1
    assert account.running() == everywhere(LATER), "the image before is not to blame for what templates did"


def test_a_cell_that_the_fleet_file_no_longer_has_never_runs_on_unwatched(account: Account) -> None:
    assert account.deploy(BEFORE) == 0
    account.settings = account.settings.model_copy(update={"cells": 3})
    with pytest.raises(StillStandingError, match="cell-4 stands"):
        retiring(account.settings, account.client, asked=False)

    slept: list[float] = []
    leaving = replace(retiring(account.settings, account.client, asked=True), sleep=slept.append)
    account.retire = leaving.run
    standing: dict[str, bool] = {}

    def note(line: list[str]) -> int:
        standing[line[-1]] = "cell-4" in account.running()
        return 0

    account.on_call = note
    assert account.deploy(NEXT) == 0
    assert (standing["Edge"], standing["Observability"]) == (True, False), "after its names, before its alarms"
    assert slept == [CALLERS_LEAVE_SECONDS]
    assert account.running() == dict.fromkeys(("cell-1", "cell-2", "cell-3"), NEXT)
    assert not retiring(account.settings, account.client, asked=False).cells


def test_a_fleet_is_synthesised_by_this_python_into_one_folder() -> None:
    line = synthesis("my/fleet.yaml", ["cdk", "--no-notices"], "/tmp/assembly")
    assert line[:4] == ["cdk", "--no-notices", "synth", "--quiet"]
    assert line[4:6] == ["--app", f"{sys.executable} -O app.py"]
    assert line[6:] == ["--context", "fleet=my/fleet.yaml", "--output", "/tmp/assembly"]


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


def test_prime_day_s_cells_roll_several_at_a_time() -> None:
    settings = FleetSettings.from_yaml(FLEETS / "prime-day.yaml")
    assert 1 < settings.rollout.parallel_cells < settings.cells
    assert (*UNDER, *OVER) == ("Network", "Image", "Rollout", "Edge", "Observability", "Spending")


def test_make_deploy_asks_the_account_before_it_changes_anything() -> None:
    said = subprocess.run(
        ["make", "--dry-run", "deploy", "FLEET=dev"], cwd=REPOSITORY_ROOT, capture_output=True, text=True, check=True
    ).stdout
    assert said.index("fleet preflight dev") < said.index("fleet deploy dev")
