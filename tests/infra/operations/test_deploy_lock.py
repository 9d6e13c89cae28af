"""Only one shell changes a fleet at a time, and a dead holder's lock can be taken over; against moto's SSM."""

import json
import threading
from datetime import UTC, datetime, timedelta
from typing import Any

import pytest
from botocore.exceptions import ClientError

from infra.operations.deploy_lock import STALE_AFTER, DeployLock, LockedError, held
from infra.operations.deployed_cell import stack_of
from infra.operations.rollback import main as rollback_main
from infra.operations.rollout import main
from tests.infra.fleet.fleets import dev_fleet
from tests.infra.moto_server import MotoServer
from tests.infra.operations.rollout_account import BEFORE, CELLS, NEXT, Account, ShellDiedError


class Clock:
    """A clock that only the test moves."""

    def __init__(self) -> None:
        self.time = datetime(2026, 11, 22, 12, 0, tzinfo=UTC)

    def __call__(self) -> datetime:
        return self.time


def content(account: Account) -> dict[str, Any] | None:
    """The lock as it lies in the account."""
    try:
        found = account.client("ssm").get_parameter(Name=f"/peakplan/{account.settings.name}/deploy-lock")
    except ClientError:
        return None
    read: dict[str, Any] = json.loads(found["Parameter"]["Value"])
    return read


def test_a_second_deploy_is_refused_and_told_whose_the_first_is(account: Account) -> None:
    with held(account.lock("deploy")):
        mine = content(account)
        assert mine is not None
        with pytest.raises(LockedError, match=r"a deploy runs: arn:aws:.* on .*, process [0-9]+, since .*Wait for it"):
            account.deploy(NEXT)
        assert account.calls == []
        assert content(account) == mine
    assert content(account) is None, "given back"


def test_the_lock_is_given_back_however_the_deploy_ends(account: Account) -> None:
    for end in (ShellDiedError, KeyboardInterrupt, SystemExit):
        with pytest.raises(end), held(account.lock("deploy")):
            raise end
        assert content(account) is None


def test_a_dead_holder_s_lock_is_taken_over_when_a_person_says_so(account: Account) -> None:
    clock = Clock()
    dead = account.lock("deploy", now=clock)
    dead.acquire()  # and no word since: its machine lost power
    clock.time += STALE_AFTER - timedelta(seconds=20)
    with pytest.raises(LockedError, match="in 20 seconds"):
        account.lock("deploy", now=clock).acquire(take_over=True)
    clock.time += timedelta(seconds=30)
    with pytest.raises(LockedError, match=r"did not end.*TAKE_OVER=1"):
        account.lock("deploy", now=clock).acquire()
    heir = account.lock("deploy", now=clock)
    heir.acquire(take_over=True)
    heir.check()
    for late in (dead.check, dead.renew):
        with pytest.raises(LockedError, match="This deploy stops here"):
            late()
    dead.release()
    heir.check()  # the dead one gave nothing away that was not its own


def test_a_renewed_lock_is_not_stale(account: Account) -> None:
    clock = Clock()
    lock = account.lock("deploy", now=clock)
    lock.acquire()
    for _ in range(10):
        clock.time += STALE_AFTER - timedelta(seconds=1)
        lock.renew()
    with pytest.raises(LockedError, match="a deploy runs"):
        account.lock("deploy", now=clock).acquire(take_over=True)


def test_a_holder_renews_by_itself_while_it_works(account: Account) -> None:
    renewed = threading.Event()
    lock = account.lock("deploy")
    renew = lock.renew

    def renew_and_tell() -> None:
        renew()
        renewed.set()

    lock.renew = renew_and_tell  # type: ignore[method-assign]
    with held(lock, seconds=0.01):
        assert renewed.wait(timeout=60)
        found = content(account)
        assert found is not None
        assert found["renewed"] > found["began"]


def test_of_two_that_take_over_at_once_one_has_it(account: Account) -> None:
    clock = Clock()
    account.lock("deploy", now=clock).acquire()
    clock.time += 2 * STALE_AFTER
    quick = account.lock("deploy", now=clock)
    ssm = account.client("ssm")

    class Slow:
        """SSM of one who reads the lock, and writes only after the other has taken it."""

        def __getattr__(self, name: str) -> Any:
            if name != "get_parameter":
                return getattr(ssm, name)

            def read_and_dawdle(**asked: Any) -> Any:
                found = ssm.get_parameter(**asked)
                quick.acquire(take_over=True)
                return found

            return read_and_dawdle

    with pytest.raises(LockedError, match="at this moment"):
        account.lock("deploy", now=clock, ssm=Slow()).acquire(take_over=True)


@pytest.mark.parametrize("missing", [[], ["cell-2"]])
def test_a_rollback_breaks_off_a_deploy_in_another_shell(account: Account, missing: list[str]) -> None:
    """Before the state machine has it: the CDK creates what is missing."""
    assert account.deploy(BEFORE) == 0
    for cell in missing:
        account.client("cloudformation").delete_stack(StackName=stack_of(account.settings, cell))

    def somebody_rolls_back(line: list[str]) -> int:
        if "Network" in line:
            account.roll_back(BEFORE)
        return 0

    account.on_call = somebody_rolls_back
    with pytest.raises(LockedError, match="This deploy stops here"):
        account.deploy(NEXT)
    standing = {cell: BEFORE for cell in CELLS if cell not in missing}
    assert account.running() == standing, "it creates and changes nothing"
    assert account.state().release is None, "nor does it write its own state over the rollback's"
    assert content(account) is None


def test_a_rollback_waits_for_a_rollback_and_not_for_a_dead_one(account: Account) -> None:
    clock = Clock()
    account.lock("rollback", now=clock).acquire()
    with pytest.raises(LockedError, match=r"a rollback runs: .* make rollback in 300 seconds"):
        account.lock("rollback", now=clock).acquire()
    clock.time += STALE_AFTER
    account.lock("rollback", now=clock).acquire()


def test_the_commands_say_who_holds_the_lock(
    moto_server: MotoServer, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    for name, value in moto_server.environment().items():
        monkeypatch.setenv(name, value)
    monkeypatch.setattr("infra.operations.rollout.rehearsal", lambda *_: ["true"])
    clients = {"ssm": moto_server.client("ssm"), "sts": moto_server.client("sts")}
    with held(DeployLock(dev_fleet(), "rollback", **clients)):
        assert main(["dev", "--take-over", "--", "true"]) == 3
        assert "a rollback runs: arn:aws:" in capsys.readouterr().err
        assert rollback_main(["dev"]) == 3
        assert "a rollback runs: arn:aws:" in capsys.readouterr().err
