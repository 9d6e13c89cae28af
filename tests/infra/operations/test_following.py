"""A shell that follows a rollout tells each cell's steps once, and ends as the state machine ended."""

import json
from typing import Any

import pytest

from infra.operations.following import follow

ROLLOUT = "ami-1-abcd"
MACHINE = "arn:aws:states:us-east-1:123456789012:stateMachine:peakplan-dev-rollout"


class StepFunctions:
    """What three looks find: the rollout's status, and each execution's status or its phase."""

    def __init__(self, *looks: tuple[str, dict[str, str]]) -> None:
        self._looks = list(looks)
        self._children: dict[str, str] = {}

    def describe_execution(self, *, executionArn: str) -> dict[str, str]:  # noqa: N803
        assert executionArn == ROLLOUT
        status, self._children = self._looks.pop(0)
        found = {"name": ROLLOUT, "status": status, "stateMachineArn": MACHINE}
        return found | ({"error": "HarmSeen", "cause": "an alarm fired"} if status == "FAILED" else {})

    def list_executions(self, *, stateMachineArn: str) -> dict[str, Any]:  # noqa: N803
        assert stateMachineArn == MACHINE
        ours = {f"{ROLLOUT}-{name}": status for name, status in self._children.items()}
        known = ours | {ROLLOUT: "RUNNING", "ami-0-before-cell-1": "SUCCEEDED"}
        newest = reversed(list(known.items()))
        return {
            "executions": [
                {"name": name, "executionArn": name, "status": status if status.isupper() else "RUNNING"}
                for name, status in newest
            ]
        }

    def get_execution_history(self, *, executionArn: str, **_: object) -> dict[str, Any]:  # noqa: N803
        phase = self._children[executionArn.removeprefix(f"{ROLLOUT}-")]
        entered = [
            {"id": number, "stateEnteredEventDetails": {"name": "Look", "input": json.dumps({"phase": each})}}
            for number, each in ((7, phase), (3, "move"))
        ]
        return {"events": [*entered, {"id": 8, "type": "TaskScheduled"}]}


def test_every_step_is_told_once(capsys: pytest.CaptureFixture[str]) -> None:
    api = StepFunctions(
        ("RUNNING", {"cell-1": "moved"}),
        ("RUNNING", {"cell-1": "bake"}),
        ("RUNNING", {"cell-1": "bake"}),
        ("SUCCEEDED", {"cell-1": "SUCCEEDED", "edge": "SUCCEEDED"}),
    )
    slept: list[float] = []
    assert follow(api, ROLLOUT, ["cell-1"], sleep=slept.append) == 0
    steps = ["cell-1 changes", "cell-1 is watched", "cell-1 has it", "edge has it"]
    assert capsys.readouterr().out.splitlines() == steps
    assert len(slept) == 3


def test_a_failure_says_why_where_and_which_cells_are_untouched(capsys: pytest.CaptureFixture[str]) -> None:
    back = {"cell-1": "FAILED", "back-cell-1": "returned"}
    api = StepFunctions(("RUNNING", back), ("FAILED", back | {"back-cell-1": "SUCCEEDED"}))
    assert follow(api, ROLLOUT, ["cell-1", "cell-2"], sleep=lambda _: None) == 1
    said = capsys.readouterr().err.splitlines()
    assert said[:2] == ["Going back by itself: cell-1", "HarmSeen: an alarm fired"]
    assert said[2].startswith("Stopped at cell-1; not touched: cell-2. Go on: make deploy")
