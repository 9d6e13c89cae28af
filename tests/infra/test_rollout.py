"""A release goes from cell to cell, goes on after its shell died, and stops at the canary where it does harm.

Against moto's CloudFormation and SSM, by a stand-in for the CDK CLI.
"""

import subprocess
import sys
import threading

import pytest

from infra import rollout
from infra.deployment_state import Step
from infra.fleet.parts import REPOSITORY_ROOT
from infra.fleet.settings import FLEETS, FleetSettings
from infra.rollback import main as rollback_main
from infra.rollout import CannotGoOnError, main, synthesis
from tests.infra.rollout_account import BEFORE, LATER, NEXT, Account, ShellDiedError, everywhere


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
