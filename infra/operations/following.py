"""A shell's view of a rollout that runs in the account: each cell's step, and how it ended."""

from __future__ import annotations

import json
import sys
import time
from collections.abc import Iterator, Sequence
from typing import Any

from infra.operations.deployed_cell import Sleep

POLL_SECONDS = 15.0
BACK = "back-"  # the executions that send a cell back are named so, after the lock's token (rollout_machine.py)
# What the phases of the machine's states mean (rollout_states.py).
STEPS = {"move": "begins", "moved": "changes", "bake": "is watched", "rest": "comes to rest"}
ENDS = {"SUCCEEDED": "has it", "FAILED": "failed", "ABORTED": "was stopped", "TIMED_OUT": "took too long"}


def follow(api: Any, execution: str, cells: Sequence[str], sleep: Sleep = time.sleep) -> int:
    """Print each stack's steps until the rollout ends, and return 0 where it succeeded, else 1.

    `api` is a client of Step Functions, `execution` the ARN of the rollout. The rollout goes on without this.
    """
    told: dict[str, str] = {}
    while True:
        rollout = api.describe_execution(executionArn=execution)
        for name, step in _steps(api, str(rollout["stateMachineArn"]), str(rollout["name"])):
            if told.get(name) != step:
                _tell(name, step, is_new=name not in told)
                told[name] = step
        if rollout["status"] != "RUNNING":
            break
        sleep(POLL_SECONDS)
    if rollout["status"] == "SUCCEEDED":
        return 0
    stopped = [name for name, step in told.items() if step != ENDS["SUCCEEDED"] and not name.startswith(BACK)]
    left = [cell for cell in cells if cell not in told]
    print(f"{rollout.get('error', rollout['status'])}: {rollout.get('cause', 'no reason given')}", file=sys.stderr)
    print(
        f"Stopped at {', '.join(stopped) or 'its beginning'}; not touched: {', '.join(left) or 'no cell'}. "
        "Go on: make deploy FLEET=...; go back: make rollback FLEET=...",
        file=sys.stderr,
    )
    return 1


def _tell(name: str, step: str, *, is_new: bool) -> None:
    if not name.startswith(BACK):
        print(f"{name} {step}", flush=True)
    elif is_new:
        print(f"Going back by itself: {name.removeprefix(BACK)}", file=sys.stderr, flush=True)


def _steps(api: Any, machine: str, rollout: str) -> Iterator[tuple[str, str]]:
    """Yield the name and the step of each execution that a rollout started, the oldest first."""
    newest = api.list_executions(stateMachineArn=machine)["executions"]  # 100, and a rollout starts fewer than 50
    for each in reversed(newest):
        if each["name"].startswith(f"{rollout}-"):
            step = (
                _phase(api, each["executionArn"])
                if each["status"] == "RUNNING"
                else ENDS.get(each["status"], each["status"])
            )
            yield each["name"].removeprefix(f"{rollout}-"), step


def _phase(api: Any, execution: str) -> str:
    """Return what an execution that runs is at: every state is handed the phase that it is in."""
    events = api.get_execution_history(executionArn=execution, reverseOrder=True, maxResults=20)["events"]
    entered = [each for each in events if "stateEnteredEventDetails" in each]
    if not entered:
        return STEPS["move"]
    newest = max(entered, key=lambda each: int(each["id"]))
    handed = json.loads(newest["stateEnteredEventDetails"].get("input", "{}"))
    return STEPS.get(handed.get("phase", "move"), STEPS["move"])
