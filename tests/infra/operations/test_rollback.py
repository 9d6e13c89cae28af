"""Every cell goes back to the release before, by one parameter of its stack, whatever state it is found in."""

from collections.abc import Callable
from typing import Any

import pytest

from infra.operations.deployed_cell import CellError, DeployedCell
from tests.infra.operations.rollout_account import BEFORE, LATER, NEXT, Account, everywhere
from tests.processes import eventually


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


def test_a_rollback_of_a_deploy_that_was_broken_off_returns_only_what_it_moved(account: Account) -> None:
    for image in (BEFORE, NEXT):
        assert account.deploy(image) == 0
    execution = account.hand_over(LATER, bakes=True)
    eventually(lambda: account.running()["cell-1"] == LATER, "the canary was not changed")
    account.client("stepfunctions").stop_execution(executionArn=execution, cause="a test")
    assert account.roll_back() == {"cell-1": NEXT}
    assert account.running() == everywhere(NEXT)


class Scripted:
    """CloudFormation as a stack that is found in the middle of things, one status an ask."""

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
