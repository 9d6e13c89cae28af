"""A fleet of four cells in moto, deployed by a stand-in for the CDK CLI that makes one small stack of each cell.

test_deploy.py runs the CLI itself.
"""

import json
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from itertools import count
from typing import Any

import pytest

from infra.fleet.alarms import alarm_name
from infra.fleet.release_tags import release_tags
from infra.fleet.settings import FleetSettings
from infra.operations.deploy_lock import Action, DeployLock, held
from infra.operations.deployed_cell import DeployedCell
from infra.operations.deployment_state import DeploymentState, StateStore
from infra.operations.release import Release
from infra.operations.rollback import roll_back, roll_back_alone
from infra.operations.rollout import start
from infra.operations.rollout_steps import Rollout
from tests.infra.fleet.fleets import dev_fleet
from tests.infra.moto_server import MotoServer

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
_fleets = count(1)


class ShellDiedError(BaseException):
    """What Ctrl-C and a closed laptop look like from inside."""


@dataclass
class Account:
    """A fleet of four cells in moto, with releases to deploy; `calls` is what was asked of the CDK CLI, in order."""

    server: MotoServer
    settings: FleetSettings
    calls: list[list[str]] = field(default_factory=list)
    dies_at: int | None = None  # in the middle of which call the shell dies: before it acts, or after, by `acts_first`
    acts_first: bool = False
    dies_at_write: int | None = None  # likewise, of the writes of its progress
    writes: int = 0
    retire: Callable[[], None] = lambda: None
    on_call: Callable[[list[str]], int] = lambda _: 0

    def client(self, name: str) -> Any:
        return self.server.client(name)

    def state(self) -> DeploymentState:
        return StateStore(self.settings, self.client("ssm")).load()

    def running(self) -> dict[str, str | None]:
        stacks = self.client("cloudformation")
        cells = [DeployedCell(name, f"peakplan-{self.settings.name}-{name}", stacks) for name in CELLS]
        return {cell.name: cell.runs() for cell in cells if cell.exists()}

    def parameters(self, cell: str) -> dict[str, str]:
        """The parameters of a cell's stack."""
        found = self.client("cloudformation").describe_stacks(StackName=f"peakplan-{self.settings.name}-{cell}")
        return {each["ParameterKey"]: each["ParameterValue"] for each in found["Stacks"][0]["Parameters"]}

    def cdk(self, line: list[str]) -> int:
        """What `cdk deploy` does: makes or changes the stacks that the line names."""
        self.calls.append(line)
        dies = self.dies_at == len(self.calls)
        if dies and not self.acts_first:
            raise ShellDiedError
        words = line[line.index("--exclusively") + 1 :]
        stacks = words[: words.index("--parameters")] if "--parameters" in words else words
        given = dict(word.split("=") for word in words if "=" in word)
        for stack in stacks:
            if stack.startswith("Cell-"):
                self._put(stack.lower(), given)
        if dies:
            raise ShellDiedError
        return self.on_call(line)

    def _put(self, cell: str, given: dict[str, str]) -> None:
        api, name = self.client("cloudformation"), f"peakplan-{self.settings.name}-{cell}"
        parameters = [{"ParameterKey": key, "ParameterValue": value} for key, value in given.items()]
        if cell in self.running():
            put = api.update_stack
        else:
            put = api.create_stack
            api.delete_stack(StackName=name)  # as the CLI does with what never ran
        put(StackName=name, TemplateBody=json.dumps(TEMPLATE), Parameters=parameters)

    def deploy(self, image: str, *, assembly: str = "templates", again: bool = False, minutes: float = 0) -> int:
        """`make deploy` with these templates, where `image` is the newest release."""
        store, lock = _MortalStore(self), self.lock("deploy")
        with held(lock):
            state = store.load()
            if again:
                state.finish()
            start(state, known(image), assembly, known)
            store.save(state)
            clients = self.client("cloudwatch"), self.client("cloudformation"), self.client("elbv2")
            return Rollout(
                self.settings, state, store, *clients, ["cdk", "deploy"], self.cdk, 0, minutes, self.retire, lock.check,
                lambda: roll_back_alone(self.settings, None, self.client, sleep=lambda _: None),
            ).run()  # fmt: skip

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


class _MortalStore(StateStore):
    """Where a deploy of `account` keeps its progress, in whose writes its shell may die."""

    def __init__(self, account: Account) -> None:
        super().__init__(account.settings, account.client("ssm"))
        self._account = account

    def save(self, state: DeploymentState) -> None:
        self._account.writes += 1
        dies = self._account.dies_at_write == self._account.writes
        if dies and not self._account.acts_first:
            raise ShellDiedError
        super().save(state)
        if dies:
            raise ShellDiedError


def known(image: str) -> Release:
    return Release(image, "0123abcd", "b" * 12, {})


@pytest.fixture
def account(moto_server: MotoServer, monkeypatch: pytest.MonkeyPatch) -> Iterator[Account]:
    for name, value in moto_server.environment().items():
        monkeypatch.setenv(name, value)
    settings = dev_fleet({"cells": len(CELLS), "rollout": {"parallel_cells": 2}, "traffic.plans_per_minute": 9000})
    # A name of its own, so that tests do not meet in the one account.
    account = Account(moto_server, settings.model_copy(update={"name": f"fleet-{next(_fleets)}"}))
    monkeypatch.setattr("infra.operations.rollback.release_of", lambda _, image, __: known(image))
    yield account
    for cell in account.running():
        account.client("cloudformation").delete_stack(StackName=f"peakplan-{account.settings.name}-{cell}")


def everywhere(image: str) -> dict[str, str]:
    return dict.fromkeys(CELLS, image)
