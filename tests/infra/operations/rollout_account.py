"""A fleet of four cells in moto, of one small stack each, with the shipped state machine that moto interprets.

A stand-in for the CDK CLI creates the stacks; test_deploy.py runs the CLI itself.
"""

import contextlib
import json
import re
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from datetime import UTC, datetime
from itertools import count
from pathlib import Path
from typing import Any

import pytest

from infra.fleet.alarms import alarm_name
from infra.fleet.images import release_tags
from infra.fleet.rollout_machine import definition
from infra.fleet.rollout_states import machine_name
from infra.fleet.settings import FleetSettings
from infra.operations import rollout, teardown
from infra.operations.command import OVER, UNDER
from infra.operations.deploy_lock import Action, DeployLock, LockedError
from infra.operations.deployed_cell import DeployedCell, described, stack_of
from infra.operations.deployment_state import DeploymentState, StateStore
from infra.operations.handover import stop_executions
from infra.operations.release import Release
from infra.operations.rollback import roll_back
from tests.infra.fleet.fleets import dev_fleet
from tests.infra.moto_server import ACCOUNT, REGION, MotoServer
from tests.processes import eventually

BEFORE, NEXT, LATER = "ami-00000001", "ami-00000002", "ami-00000003"
CELLS = ("cell-1", "cell-2", "cell-3", "cell-4")
TEMPLATE: dict[str, Any] = {
    "Parameters": {
        "MachineImageId": {"Type": "String"},
        "RefreshSpeed": {"Type": "String", "Default": "fast"},
        "Certificate": {"Type": "String", "Default": "arn"},
    },
    "Resources": {"Topic": {"Type": "AWS::SNS::Topic", "Properties": {"DisplayName": {"Ref": "MachineImageId"}}}},
}
OVER_CELLS: dict[str, Any] = {"Resources": {"Topic": {"Type": "AWS::SNS::Topic"}}}
BUCKET = f"cdk-hnb659fds-assets-{ACCOUNT}-{REGION}"
A_LONG_BAKE = 8 * 60.0  # minutes; the emulator's waits are short, and it still bakes longer than any test waits
_fleets = count(1)


class ShellDiedError(BaseException):
    """What Ctrl-C and a closed laptop look like from inside."""


@dataclass
class Account:
    """A fleet of four cells in moto, with releases to deploy; `calls` is what was asked of the CDK CLI, in order."""

    server: MotoServer
    settings: FleetSettings
    folder: Path
    calls: list[list[str]] = field(default_factory=list)
    dies_at: int | None = None  # the call during which the shell dies, after it acts if `acts_first`
    acts_first: bool = False
    on_call: Callable[[list[str]], int] = lambda _: 0
    template: dict[str, Any] = field(default_factory=lambda: TEMPLATE)  # of a cell
    now: Callable[[], datetime] = lambda: datetime.now(UTC)

    def client(self, name: str) -> Any:
        return self.server.client(name)

    def state(self) -> DeploymentState:
        return StateStore(self.settings, self.client("ssm")).load()

    def running(self) -> dict[str, str | None]:
        stacks = self.client("cloudformation")
        cells = [DeployedCell(name, stack_of(self.settings, name), stacks) for name in CELLS]
        return {cell.name: cell.runs() for cell in cells if cell.exists()}

    def parameters(self, cell: str) -> dict[str, str]:
        """The parameters of a cell's stack."""
        found = described(stack_of(self.settings, cell), self.client("cloudformation"))
        assert found is not None
        return {each["ParameterKey"]: each["ParameterValue"] for each in found["Parameters"]}

    def cdk(self, line: list[str]) -> int:
        """Stand in for `cdk deploy`: create the stacks that the line names, except those under the cells."""
        self.calls.append(line)
        dies = self.dies_at == len(self.calls)
        if dies and not self.acts_first:
            raise ShellDiedError
        for stack in asked(line):
            if stack not in UNDER:
                self._create(stack, dict(word.split("=") for word in line if "=" in word))
        if dies:
            raise ShellDiedError
        return self.on_call(line)

    def _create(self, stack: str, given: dict[str, str]) -> None:
        api, name = self.client("cloudformation"), stack_of(self.settings, stack.lower())
        parameters = [{"ParameterKey": key, "ParameterValue": value} for key, value in given.items()]
        api.delete_stack(StackName=name)  # as the CLI does with what never ran
        body = json.dumps(self.template if stack.startswith("Cell") else OVER_CELLS)
        api.create_stack(StackName=name, TemplateBody=body, Parameters=parameters)

    def deploy(self, image: str, *options: str, note: str = "one", minutes: tuple[float, float] = (0, 0)) -> int:
        """`make deploy` without its rehearsal, of templates that `note` makes other ones."""
        folder = self.folder / f"{note}-{len(self.calls)}"
        given = rollout._parser().parse_intermixed_args(
            ["dev", "--release", image, "--bake", *map(str, minutes), *options, "--", "cdk"]
        )
        return rollout._deploy(given, self.settings, self.client, assembly_of(folder, note, self.template))

    def hand_over(self, image: str, *options: str, note: str = "one", bakes: bool = False) -> str:
        """`make release` with these templates; with `bakes` the first cell is watched for long."""
        minutes = (A_LONG_BAKE, 0.0) if bakes else (0.0, 0.0)
        assert self.deploy(image, "--detach", *options, note=note, minutes=minutes) == 0
        machine = f"arn:aws:states:{REGION}:{ACCOUNT}:stateMachine:{machine_name(self.settings)}"
        found = self.client("stepfunctions").list_executions(stateMachineArn=machine)["executions"]
        rollouts = [each for each in found if re.fullmatch(r"ami-\w+-\w{8}", each["name"])]
        return str(max(rollouts, key=lambda each: each["startDate"])["executionArn"])

    def described(self, execution: str) -> dict[str, Any]:
        found: dict[str, Any] = self.client("stepfunctions").describe_execution(executionArn=execution)
        return found

    def stop(self) -> None:
        """Stop the rollout with what it started: Step Functions does both, moto lets the latter renew the lock on."""
        assert stop_executions(self.settings, self.client, "a test")

    def take_over(self, image: str, *options: str) -> str:
        """`make release TAKE_OVER=1`, once the emulator has ended the last call of what was stopped."""
        begun: list[str] = []

        def takes_over() -> bool:
            with contextlib.suppress(LockedError):
                begun.append(self.hand_over(image, *options, "--take-over"))
            return bool(begun)

        eventually(takes_over, "the lock of a stopped execution is never free")
        return begun[0]

    def ended(self, execution: str) -> dict[str, Any]:
        """The execution once nothing of it runs any more, and the emulator has told why: it sets the status first."""

        def is_told() -> bool:
            found = self.described(execution)
            return found["status"] != "RUNNING" and (found["status"] != "FAILED" or "cause" in found)

        eventually(is_told, "the machine goes on for ever")
        return self.described(execution)

    def changes(self, stack: str) -> list[datetime]:
        """When the updates of a stack began, the oldest first; a cell's is called as the cell."""
        events = self.client("cloudformation").describe_stack_events(StackName=stack_of(self.settings, stack))
        began = [each for each in events["StackEvents"] if each["ResourceStatus"] == "UPDATE_IN_PROGRESS"]
        return sorted(each["Timestamp"] for each in began if each["ResourceType"] == "AWS::CloudFormation::Stack")

    def begun(self) -> list[str]:
        """The cells in the order in which the last rollout began them; it changes each twice."""
        return sorted(CELLS, key=lambda cell: self.changes(cell)[-2])

    def lock(self, action: Action, **given: Any) -> DeployLock:
        """A shell's hold on this fleet's lock."""
        return DeployLock(self.settings, action, **{"ssm": self.client("ssm"), "sts": self.client("sts")} | given)

    def alarm(self, cell: str, value: str, key: str = "deploy-health") -> None:
        name = alarm_name(self.settings.name, cell, key)
        watching = self.client("cloudwatch")
        watching.put_metric_alarm(
            AlarmName=name, ComparisonOperator="GreaterThanThreshold", EvaluationPeriods=1, Threshold=0,
            Namespace="Peakplan", MetricName="SloBad", Period=60, Statistic="Sum",
        )  # fmt: skip
        watching.set_alarm_state(AlarmName=name, StateValue=value, StateReason="a test", StateReasonData="{}")

    def image(self) -> str:
        """A machine image that the pipeline made for this fleet."""
        tags = release_tags(self.settings, {"service": "a" * 64, "model": "b" * 64, "host": "c" * 64}, "0123abcd")
        ec2 = self.client("ec2")
        made: str = ec2.register_image(Name=f"image-{next(_fleets)}", RootDeviceName="/dev/sda1")["ImageId"]
        ec2.create_tags(Resources=[made], Tags=[{"Key": key, "Value": value} for key, value in tags.items()])
        return made

    def roll_back(self, release: str | None = None) -> dict[str, str]:
        return roll_back(self.settings, release, self.client, sleep=lambda _: None)


def asked(line: list[str]) -> list[str]:
    """The stacks that a line of the CDK CLI deploys."""
    words = line[line.index("--exclusively") + 1 :]
    return words[: words.index("--parameters")] if "--parameters" in words else words


def assembly_of(folder: Path, note: str, cell_template: dict[str, Any]) -> Path:
    """What a synthesis leaves, with the account's small templates; `note` makes it another one."""
    folder.mkdir(exist_ok=True)
    stacks = {**{cell.capitalize(): cell_template for cell in CELLS}, **dict.fromkeys(OVER, OVER_CELLS)}
    for stack, template in stacks.items():
        (folder / f"{stack}.template.json").write_text(json.dumps({**template, "Description": note}), encoding="utf-8")
        place = {"bucketName": "cdk-hnb659fds-assets-${AWS::AccountId}-" + REGION, "objectKey": f"{note}-{stack}.json"}
        asset = {"source": {"path": f"{stack}.template.json"}, "destinations": {"current": place}}
        (folder / f"{stack}.assets.json").write_text(json.dumps({"files": {"hash": asset}}), encoding="utf-8")
    artifacts = {stack: {"properties": {"tags": {"peakplan:part": stack.lower()}}} for stack in stacks}
    (folder / "manifest.json").write_text(json.dumps({"artifacts": artifacts}), encoding="utf-8")
    return folder


def known(image: str) -> Release:
    return Release(image, "0123abcd", "b" * 12, {})


@pytest.fixture
def account(moto_server: MotoServer, monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Iterator[Account]:
    for name, value in moto_server.environment().items():
        monkeypatch.setenv(name, value)
    settings = dev_fleet({"cells": len(CELLS), "rollout": {"parallel_cells": 2}, "traffic.plans_per_minute": 9000})
    # A name of its own, so that tests do not meet in the one account.
    account = Account(moto_server, settings.model_copy(update={"name": f"fleet-{next(_fleets)}"}), tmp_path)
    monkeypatch.setattr("infra.operations.rollback.release_of", lambda _, image, __: known(image))
    monkeypatch.setattr(rollout, "release_of", lambda _, image, __: known(image))
    monkeypatch.setattr(rollout, "call", account.cdk)
    monkeypatch.setattr(rollout, "DeployLock", lambda *of, **given: DeployLock(*of, **given, now=account.now))
    monkeypatch.setattr(rollout, "POLL_SECONDS", 0.2)
    monkeypatch.setattr(teardown, "CALLERS_LEAVE_SECONDS", 0.0)
    s3 = account.client("s3")
    if BUCKET not in [each["Name"] for each in s3.list_buckets()["Buckets"]]:
        s3.create_bucket(Bucket=BUCKET)
    account.client("stepfunctions").create_state_machine(
        name=machine_name(account.settings),
        definition=json.dumps(definition(account.settings)),
        roleArn=f"arn:aws:iam::{ACCOUNT}:role/rollout",
    )
    yield account
    for stack in (*CELLS, *OVER):
        account.client("cloudformation").delete_stack(StackName=stack_of(account.settings, stack.lower()))


def everywhere(image: str) -> dict[str, str]:
    return dict.fromkeys(CELLS, image)
