"""`make event-load`: planned within its bounds, started where nothing is wrong, ended by harm or an operator.

The shipped state machine is interpreted by moto, without workers: moto runs no function. Not run in a real account.
"""

import json
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any
from uuid import uuid4

import pytest

from infra.fleet.alarms import alarm_name
from infra.fleet.event_load import EventLoad, EventLoadError
from infra.fleet.event_load_machine import HARMED, definition
from infra.operations import event_load
from infra.operations.event_load import main, start, stop
from tests.infra.moto_server import ACCOUNT, REGION
from tests.infra.operations.rollout_account import Account
from tests.processes import eventually

NOW = datetime(2027, 1, 4, 9, 0, tzinfo=UTC)
NETWORK = ("--vpc", "vpc-0a1b2c3d4e5f67890", "--subnets", "subnet-0a1b2c3d4e5f67890,subnet-1a1b2c3d4e5f67890")


class Loaded:
    """A fleet in moto whose load test is deployed."""

    def __init__(self, account: Account) -> None:
        self.account = account
        self.load = EventLoad(account.settings, multiplier=2, minutes=3)
        self.states = account.client("stepfunctions")
        function = f"arn:aws:lambda:{REGION}:{ACCOUNT}:function:{self.load.name}"
        self.machine = self.states.create_state_machine(
            name=self.load.name,
            definition=json.dumps(definition(self.load, function)),
            roleArn=f"arn:aws:iam::{ACCOUNT}:role/load",
        )["stateMachineArn"]

    def run(self) -> dict[str, Any]:
        """An execution whose minutes are all over, without a worker."""
        given = self.load.input(NOW - timedelta(days=365)) | {"workers": []}
        execution = self.states.start_execution(
            stateMachineArn=self.machine, name=uuid4().hex, input=json.dumps(given)
        )["executionArn"]
        eventually(lambda: self.status(execution) != "RUNNING", "the machine goes on for ever")
        found: dict[str, Any] = self.states.describe_execution(executionArn=execution)
        return found

    def clear(self, cell: str, key: str) -> None:
        """Take an alarm away: moto gives an alarm that it is asked for by name in whatever state it is."""
        self.account.client("cloudwatch").delete_alarms(AlarmNames=[alarm_name(self.load.settings.name, cell, key)])

    def status(self, execution: str) -> str:
        return str(self.states.describe_execution(executionArn=execution)["status"])


@pytest.fixture
def loaded(account: Account) -> Loaded:
    return Loaded(account)


def test_every_minute_passes_where_nothing_is_wrong_and_none_where_harm_is(loaded: Loaded) -> None:
    assert loaded.run()["status"] == "SUCCEEDED"

    loaded.account.alarm("cell-3", "ALARM", "fast-burn")
    ended = loaded.run()
    assert (ended["status"], ended["error"]) == ("FAILED", HARMED)
    assert "cell-3-fast-burn" in ended["cause"]

    loaded.clear("cell-3", "fast-burn")
    loaded.account.alarm("cell-3", "ALARM", "saturation")
    assert loaded.run()["status"] == "SUCCEEDED", "a full fleet is what the load is for"


def test_a_load_is_started_once_and_an_operator_ends_it(loaded: Loaded) -> None:
    """moto stops a machine where a state ends, so this one's states are short."""
    clients = loaded.account.client
    loop = {"Wait": {"Type": "Wait", "Seconds": 1, "Next": "On"}, "On": {"Type": "Pass", "Next": "Wait"}}
    loaded.states.update_state_machine(
        stateMachineArn=loaded.machine, definition=json.dumps({"StartAt": "Wait", "States": loop})
    )
    execution = start(loaded.load, clients, datetime.now(UTC))

    assert loaded.status(execution) == "RUNNING"
    with pytest.raises(EventLoadError, match="runs already"):
        start(loaded.load, clients, datetime.now(UTC))
    assert stop(loaded.account.settings, clients) == [execution]
    eventually(lambda: loaded.status(execution) == "ABORTED", "it was not stopped")
    assert stop(loaded.account.settings, clients) == []


def test_no_load_starts_beside_harm_near_an_event_or_before_its_deploy(loaded: Loaded) -> None:
    clients = loaded.account.client
    loaded.account.alarm("cell-1", "ALARM", "mostly-degraded")
    with pytest.raises(EventLoadError, match="cell-1-mostly-degraded is on"):
        start(loaded.load, clients, NOW)
    loaded.clear("cell-1", "mostly-degraded")

    fleet = loaded.account.settings.model_dump(mode="json")
    event = {"name": "sale", "start": NOW + timedelta(hours=5), "end": NOW + timedelta(hours=9), "multiplier": 2}
    soon = type(loaded.account.settings).model_validate({**fleet, "events": [event]})
    with pytest.raises(EventLoadError, match="sale begins"):
        start(replace(loaded.load, settings=soon), clients, NOW)

    loaded.states.delete_state_machine(stateMachineArn=loaded.machine)
    with pytest.raises(EventLoadError, match="DO=deploy"):
        start(loaded.load, clients, NOW)


def test_a_plan_is_written_with_its_bounds_and_dearer_ones_are_refused(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(event_load, "FOLDER", tmp_path)
    lines: list[list[str]] = []

    def call(line: list[str]) -> int:
        lines.append(line)
        return 0

    assert main(["dev", "plan", "--minutes", "5", *NETWORK], call) == 0
    said = capsys.readouterr().out
    assert "dollars" in said
    assert "fast-burn" in said
    assert f"load={tmp_path / 'dev' / 'load.json'}" in lines[0]
    assert main(["dev", "deploy"], call) == 0
    assert lines[1][-1] == "Load"

    assert main(["dev", "plan", "--dollars", "0", *NETWORK], call) == 1
    assert "DOLLARS=" in capsys.readouterr().err
    assert main(["prime-day", "plan", *NETWORK], call) == 1
    assert "IDENTITY" in capsys.readouterr().err
    assert main(["dev", "plan", "--event", "christmas", *NETWORK], call) == 1
    assert "no event of dev" in capsys.readouterr().err
    assert len(lines) == 2
