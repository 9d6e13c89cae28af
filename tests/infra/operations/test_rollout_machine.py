"""A release goes from cell to cell inside the account: the shipped state machine, interpreted by moto.

Waves, gates, harm, interruption and resumption, and a lock that somebody takes. Not run in a real account.
"""

from datetime import UTC, datetime, timedelta

import pytest

from infra.fleet.rollout_machine import HARM
from infra.fleet.rollout_states import FAILED, LOST, done_parameter
from infra.operations.deploy_lock import LockedError
from infra.operations.deployment_state import Step
from infra.operations.handover import waves_of
from infra.operations.rollout import CannotGoOnError
from tests.infra.operations.rollout_account import BEFORE, CELLS, LATER, NEXT, TEMPLATE, Account, everywhere
from tests.processes import eventually


def lock_of(account: Account) -> str | None:
    ssm, name = account.client("ssm"), f"/peakplan/{account.settings.name}/deploy-lock"
    try:
        return str(ssm.get_parameter(Name=name)["Parameter"]["Value"])
    except ssm.exceptions.ParameterNotFound:
        return None


def test_the_canary_goes_first_and_the_others_in_waves(account: Account) -> None:
    assert waves_of(account.settings) == [("cell-1",), ("cell-2", "cell-3"), ("cell-4",)]
    for image in (BEFORE, NEXT):  # the first execution makes the stacks, the second changes them
        ended = account.ended(account.hand_over(image))
        assert ended["status"] == "SUCCEEDED", f"{ended.get('error')}: {ended.get('cause')}"
        assert account.running() == everywhere(image)
    begun = account.begun()
    assert (begun[0], set(begun[1:3]), begun[3]) == ("cell-1", {"cell-2", "cell-3"}, "cell-4")
    assert {account.parameters(cell)["RefreshSpeed"] for cell in CELLS} == {"fast"}, "where stacks rest"
    state = account.state()
    assert (state.release, state.before("cell-4")) == (None, BEFORE)
    assert lock_of(account) is None


def test_a_failed_gate_stops_every_later_wave(account: Account) -> None:
    key = "shoppers-buy-less"  # test_rollout.py has deploy-health's
    account.ended(account.hand_over(BEFORE))
    account.alarm("cell-1", "ALARM", key)
    ended = account.ended(account.hand_over(NEXT))
    assert (ended["status"], ended["error"]) == ("FAILED", HARM)
    assert key in ended["cause"]
    assert "every cell is back at the release before" in ended["cause"]
    assert account.running() == everywhere(BEFORE)
    assert account.parameters("cell-1") == account.parameters("cell-4")
    state = account.state()
    assert (state.release, state.cell("cell-1").releases, state.rejected) == (None, [BEFORE], [NEXT])
    assert lock_of(account) is None, "a person may act at once"
    with pytest.raises(CannotGoOnError, match="has hurt a cell"):
        account.hand_over(NEXT)
    account.alarm("cell-1", "OK", key)
    ended = account.ended(account.hand_over(LATER))
    assert ended["status"] == "SUCCEEDED", f"{ended.get('error')}: {ended.get('cause')}"
    assert account.running() == everywhere(LATER)


def test_harm_of_a_first_release_leaves_it_where_it_is(account: Account) -> None:
    account.alarm("cell-1", "ALARM")
    assert account.ended(account.hand_over(BEFORE))["error"] == HARM
    assert account.running() == everywhere(BEFORE), "where they were created"
    assert account.state().cell("cell-1").step is Step.HURT
    with pytest.raises(CannotGoOnError, match="cell-1 was hurt"):
        account.hand_over(LATER)


def test_a_later_wave_is_gated_too(account: Account) -> None:
    account.ended(account.hand_over(BEFORE))
    account.alarm("cell-3", "ALARM")
    assert account.ended(account.hand_over(NEXT))["error"] == HARM
    assert account.running() == everywhere(BEFORE), "cells that had baked go back, too"
    parameter = account.client("ssm").get_parameter(Name=done_parameter(account.settings, "cell-1"))
    assert parameter["Parameter"]["Value"] == f"back at {BEFORE}", "tried again, it would not be skipped"


def test_what_was_interrupted_goes_on_where_it_was(account: Account) -> None:
    account.ended(account.hand_over(BEFORE))
    first = account.hand_over(NEXT, bakes=True)  # it bakes its canary until somebody stops it
    eventually(lambda: account.running()["cell-1"] == NEXT, "the canary was not changed")
    with pytest.raises(LockedError, match="a deploy runs"):
        account.hand_over(NEXT)
    account.stop()
    assert account.ended(first)["status"] in ("ABORTED", "FAILED")  # moto's worker may write the latter over it
    later = datetime.now(UTC) + timedelta(minutes=6)
    assert account.running() == everywhere(BEFORE) | {"cell-1": NEXT}
    account.now = lambda: later
    again = account.take_over(LATER)
    assert account.ended(again)["status"] == "SUCCEEDED"
    assert account.running() == everywhere(NEXT), "every cell gets the release that the deploy began with"


def test_what_a_deploy_has_behind_it_is_skipped(account: Account) -> None:
    account.ended(account.hand_over(BEFORE))
    ssm = account.client("ssm")
    for cell in CELLS[:3]:
        name = done_parameter(account.settings, cell)
        image, templates = ssm.get_parameter(Name=name)["Parameter"]["Value"].split()
        assert image == BEFORE
        ssm.put_parameter(Name=name, Value=f"{NEXT} {templates}", Overwrite=True)
    assert account.ended(account.hand_over(NEXT))["status"] == "SUCCEEDED"
    assert account.running() == everywhere(BEFORE) | {"cell-4": NEXT}


@pytest.mark.slow
def test_a_mark_whose_stack_is_gone_is_not_trusted(account: Account) -> None:
    account.ended(account.hand_over(BEFORE))
    account.client("cloudformation").delete_stack(StackName=f"peakplan-{account.settings.name}-cell-2")
    assert "cell-2" not in account.running()
    assert account.ended(account.hand_over(BEFORE))["status"] == "SUCCEEDED"
    assert account.running() == everywhere(BEFORE)


def test_it_stops_where_a_rollback_takes_the_lock(account: Account) -> None:
    account.ended(account.hand_over(BEFORE))
    execution = account.hand_over(NEXT, bakes=True)
    eventually(lambda: account.running()["cell-1"] == NEXT, "the canary was not changed")
    taken = account.lock("rollback")
    taken.acquire()

    def has_stopped() -> bool:
        """The machine may renew once more the lock that it read before: the rollback is then run again, as it says."""
        nonlocal taken
        try:
            taken.check()
        except LockedError:
            taken = account.lock("rollback")
            taken.acquire()
        return account.described(execution)["status"] != "RUNNING"

    eventually(has_stopped, "the machine goes on without the lock")
    ended = account.ended(execution)
    assert (ended["status"], ended["error"]) == ("FAILED", LOST)
    taken.check()  # and it is still the rollback's
    taken.release()


def test_a_rollback_stops_the_machine_itself(account: Account) -> None:
    account.ended(account.hand_over(BEFORE))
    execution = account.hand_over(NEXT, bakes=True)
    eventually(lambda: account.running()["cell-1"] == NEXT, "the canary was not changed")
    assert account.roll_back() == {"cell-1": BEFORE}
    assert account.ended(execution)["status"] in ("ABORTED", "FAILED")
    assert account.running() == everywhere(BEFORE)


@pytest.mark.slow
def test_what_was_rolled_back_by_hand_is_not_skipped_when_it_is_deployed_again(account: Account) -> None:
    for image in (BEFORE, NEXT):
        assert account.ended(account.hand_over(image))["status"] == "SUCCEEDED"
    assert account.roll_back() == everywhere(BEFORE)
    assert account.ended(account.hand_over(NEXT, "--again"))["status"] == "SUCCEEDED"
    assert account.running() == everywhere(NEXT), "what succeeded is there"


@pytest.mark.slow
def test_what_a_broken_off_deploy_changed_is_not_skipped(account: Account) -> None:
    """The mark of the deploy before it is true no more."""
    account.ended(account.hand_over(BEFORE))
    first = account.hand_over(NEXT, bakes=True)
    eventually(lambda: account.running()["cell-1"] == NEXT, "the canary was not changed")
    account.stop()
    account.ended(first)
    later = datetime.now(UTC) + timedelta(minutes=6)
    account.now = lambda: later
    again = account.take_over(BEFORE, "--again")
    assert account.ended(again)["status"] == "SUCCEEDED"
    assert account.running() == everywhere(BEFORE)


def test_a_cell_that_is_not_there_is_made_and_one_that_cannot_be_changed_ends_it(account: Account) -> None:
    account.ended(account.hand_over(BEFORE))
    account.client("cloudformation").delete_stack(StackName=f"peakplan-{account.settings.name}-cell-2")
    assert account.ended(account.hand_over(NEXT))["status"] == "SUCCEEDED"
    assert account.running() == everywhere(NEXT)
    nowhere = {"AutoScalingGroupName": "nowhere", "MinSize": 3, "StartTime": "2020-01-01T00:00:00Z"}
    impossible = {"Type": "AWS::AutoScaling::ScheduledAction", "DependsOn": ["Topic"], "Properties": nowhere}
    account.template = {**TEMPLATE, "Resources": {**TEMPLATE["Resources"], "Impossible": impossible}}
    ended = account.ended(account.hand_over(LATER, note="unchangeable"))
    assert (ended["status"], ended["error"]) == ("FAILED", FAILED)
    running = account.running()
    assert (running["cell-2"], running["cell-4"]) == (NEXT, NEXT), "no further cell is begun"
    assert lock_of(account) is None
