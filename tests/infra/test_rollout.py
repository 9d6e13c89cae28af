"""A release goes from cell to cell, goes on after its shell died, stops at the canary, and comes back.

Against moto's CloudFormation and SSM; the CDK CLI's place is taken by a deploy that makes one small stack of each cell
(test_deploy.py runs the CLI itself).
"""

import json
import subprocess
import sys
import threading
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from itertools import count
from typing import Any

import pytest

from infra import rollout
from infra.deployed_cell import CellError, DeployedCell
from infra.deployment_state import DeploymentState, StateStore, Step
from infra.fleet.alarms import alarm_name
from infra.fleet.parts import REPOSITORY_ROOT
from infra.fleet.settings import FLEETS, FleetSettings
from infra.release import Release, ReleaseError, newest_release, release_of, release_tags
from infra.rollback import main as rollback_main
from infra.rollback import roll_back
from infra.rollout import CannotGoOnError, Rollout, main, start, synthesis
from tests.infra.fleet.fleets import dev_fleet
from tests.infra.moto_server import MotoServer

BEFORE, NEXT, LATER = "ami-00000001", "ami-00000002", "ami-00000003"
CELLS = ("cell-1", "cell-2", "cell-3", "cell-4")
TEMPLATE = {
    "Parameters": {
        "MachineImageId": {"Type": "String"},
        "RefreshSpeed": {"Type": "String", "Default": "careful"},
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
    on_call: Callable[[list[str]], int] = lambda _: 0

    def client(self, name: str) -> Any:
        return self.server.client(name)

    def state(self) -> DeploymentState:
        return StateStore(self.settings, self.client("ssm")).load()

    def running(self) -> dict[str, str | None]:
        stacks = self.client("cloudformation")
        cells = [DeployedCell(name, f"peakplan-{self.settings.name}-{name}", stacks) for name in CELLS]
        return {cell.name: cell.runs() for cell in cells if cell.exists()}

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
        put = api.update_stack if cell in self.running() else api.create_stack
        put(StackName=name, TemplateBody=json.dumps(TEMPLATE), Parameters=parameters)

    def deploy(self, image: str, *, assembly: str = "templates") -> int:
        """`make deploy` with these templates, where `image` is the newest release."""
        store = StateStore(self.settings, self.client("ssm"))
        state = store.load()
        start(state, known(image), assembly, known)
        store.save(state)
        clients = self.client("cloudwatch"), self.client("cloudformation")
        return Rollout(self.settings, state, store, *clients, ["cdk", "deploy"], self.cdk, 0, 0).run()

    def alarm(self, cell: str, value: str) -> None:
        name = alarm_name(self.settings.name, cell, "deploy-health")
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


def known(image: str) -> Release:
    return Release(image, "0123abcd", "b" * 12, {})


@pytest.fixture
def account(moto_server: MotoServer, monkeypatch: pytest.MonkeyPatch) -> Iterator[Account]:
    for name, value in moto_server.environment().items():
        monkeypatch.setenv(name, value)
    settings = dev_fleet({"cells": len(CELLS), "rollout": {"parallel_cells": 2}, "traffic.plans_per_minute": 9000})
    # A name of its own, so that tests do not meet in the one account.
    account = Account(moto_server, settings.model_copy(update={"name": f"fleet-{next(_fleets)}"}))
    monkeypatch.setattr("infra.rollback.release_of", lambda _, image, __: known(image))
    yield account
    for cell in account.running():
        account.client("cloudformation").delete_stack(StackName=f"peakplan-{account.settings.name}-{cell}")


def everywhere(image: str) -> dict[str, str]:
    return dict.fromkeys(CELLS, image)


def test_the_canary_goes_alone_and_the_others_follow(account: Account) -> None:
    assert account.deploy(BEFORE) == 0
    stacks = [line[line.index("--exclusively") + 1] for line in account.calls]
    assert stacks[:2] == ["Network", "Cell-1"]
    assert sorted(stacks[2:5]) == ["Cell-2", "Cell-3", "Cell-4"]
    assert account.calls[-1][-2:] == ["Edge", "Observability"]
    assert account.running() == everywhere(BEFORE)
    assert account.state().release is None, "the deploy is over"


def test_cells_after_the_canary_roll_as_many_at_a_time_as_the_fleet_file_says(account: Account) -> None:
    both = threading.Barrier(2, timeout=60)

    def wait_for_another(line: list[str]) -> int:
        if any(word in line for word in ("Cell-2", "Cell-3")):
            both.wait()  # would time out if one waited for the other's end
        return 0

    account.on_call = wait_for_another
    assert account.deploy(BEFORE) == 0


@pytest.mark.parametrize("acts_first", [False, True], ids=["before it acted", "after it acted"])
@pytest.mark.parametrize("step", [1, 2, 3, 6], ids=["foundation", "canary", "second cell", "what is over the cells"])
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
    assert account.running() == everywhere(BEFORE) | {"cell-1": NEXT}
    assert "not touched: cell-2, cell-3, cell-4" in capsys.readouterr().err

    with pytest.raises(CannotGoOnError, match="cell-1 was hurt"):
        account.deploy(NEXT)
    assert account.roll_back() == {"cell-1": BEFORE}
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
    assert account.running() == {"cell-1": NEXT, "cell-2": NEXT, "cell-3": BEFORE, "cell-4": BEFORE}
    assert account.roll_back() == {"cell-1": BEFORE, "cell-2": BEFORE}
    assert account.running() == everywhere(BEFORE)


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


def test_a_rollback_of_a_deploy_that_died_returns_only_what_it_moved(account: Account) -> None:
    for image in (BEFORE, NEXT):
        assert account.deploy(image) == 0
    account.calls.clear()
    account.dies_at, account.acts_first = 2, True
    with pytest.raises(ShellDiedError):
        account.deploy(LATER)
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


def test_a_release_is_what_its_image_s_tags_say(account: Account) -> None:
    image, ec2 = account.image(), account.client("ec2")
    account.client("ssm").put_parameter(
        Name=account.settings.machine_image.parameter, Value=image, Type="String", Overwrite=True
    )
    release = newest_release(account.settings, account.client("ssm"), ec2)
    assert (release.image_id, release.commit, release.model_hash) == (image, "0123abcd", "b" * 12)
    assert release.manifest["service"] == "a" * 12
    with pytest.raises(ReleaseError, match="was made for fleet"):
        release_of(dev_fleet(), image, ec2)
    with pytest.raises(ReleaseError, match="has no tag peakplan:fleet"):
        release_of(account.settings, "ami-12c6146b", ec2)
    with pytest.raises(ReleaseError, match="no such machine image"):
        release_of(account.settings, "ami-0123456789abcdef0", ec2)
    with pytest.raises(ReleaseError, match="no machine image yet"):
        newest_release(dev_fleet({"machine_image.parameter": "/imagebuilder/none"}), account.client("ssm"), ec2)


def test_a_state_stays_within_a_parameter() -> None:
    state = DeploymentState()
    for number in range(20):
        state.begin(f"ami-{number:017x}", "0" * 16, "0" * 12)
        for cell in range(1, 16):
            state.sent(f"cell-{cell}", f"ami-{number:017x}")
        state.reject(f"ami-{number:017x}")
    assert len(state.model_dump_json(exclude_defaults=True)) < 4096


def test_a_fleet_is_synthesised_by_this_python_into_one_folder() -> None:
    line = synthesis("my/fleet.yaml", ["cdk", "--no-notices"], "/tmp/assembly")
    assert line[:4] == ["cdk", "--no-notices", "synth", "--quiet"]
    assert line[4:6] == ["--app", f"{sys.executable} app.py"]
    assert line[6:] == ["--context", "fleet=my/fleet.yaml", "--output", "/tmp/assembly"]


def test_what_cannot_be_used_is_refused_in_words(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
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
    assert rollout.UNDER + rollout.OVER == ("Network", "Image", "Edge", "Observability")


def test_make_deploy_asks_the_account_before_it_changes_anything() -> None:
    said = subprocess.run(
        ["make", "--dry-run", "deploy", "FLEET=dev"], cwd=REPOSITORY_ROOT, capture_output=True, text=True, check=True
    ).stdout
    assert said.index("fleet preflight dev") < said.index("fleet deploy dev")
