"""The lock of a fleet: one deploy or rollback changes it at a time, from whatever shell.

An SSM parameter that AWS lets only one caller create. Its holder renews it every minute and deletes it at the end. A
holder that died stops renewing: after five minutes a person may take the lock over. A rollback does so unasked, and
takes a deploy's lock at once, whether it lives or not. A process that lost the lock
notices before its next change, and stops.
"""

import os
import socket
import sys
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from datetime import UTC, datetime, timedelta
from typing import Any, Literal
from uuid import uuid4

from botocore.exceptions import BotoCoreError, ClientError
from pydantic import BaseModel, ConfigDict

from infra.fleet.settings import FleetSettings
from infra.operations.command import parameter

RENEWED_SECONDS = 60.0
STALE_AFTER = timedelta(minutes=5)
Action = Literal["deploy", "rollback"]


class LockedError(Exception):
    """A fleet that somebody else changes, or a lock that was lost. The message is written for operators."""


class Holder(BaseModel):
    """The content of the lock: who does what, since when, and when it was last renewed."""

    model_config = ConfigDict(frozen=True, extra="forbid")

    token: str
    action: Action
    who: str
    host: str
    process: int
    began: datetime
    renewed: datetime

    def __str__(self) -> str:
        return f"{self.who} on {self.host}, process {self.process}, since {self.began:%Y-%m-%d %H:%M} UTC"


class DeployLock:
    """One process's hold on the lock of one fleet. `ssm` and `sts` are boto3 clients."""

    def __init__(
        self,
        settings: FleetSettings,
        action: Action,
        *,
        ssm: Any,
        sts: Any,
        now: Callable[[], datetime] = lambda: datetime.now(UTC),
    ) -> None:
        self.name = f"/peakplan/{settings.name}/deploy-lock"
        self._ssm, self._now = ssm, now
        who, began = sts.get_caller_identity()["Arn"], now()
        host, process = socket.gethostname(), os.getpid()
        self._mine = Holder(
            token=uuid4().hex, action=action, who=who, host=host, process=process, began=began, renewed=began
        )
        self._version = 0
        self._lost = self._handed_over = False

    def acquire(self, *, take_over: bool = False) -> None:
        """Take the lock; `take_over` also takes one whose holder has not renewed it for five minutes.

        Raise LockedError where somebody else holds it.
        """
        try:
            self._put(overwrite=False)
        except ClientError as error:
            if error.response["Error"]["Code"] != "ParameterAlreadyExists":
                raise
        else:
            return
        held = self._held()
        if held is None:
            raise LockedError("the lock was given back this moment: try again")
        holder, self._version = held
        self._may_replace(holder, take_over=take_over)
        print(f"Taking over from {holder}", file=sys.stderr)
        self._replace()

    def _may_replace(self, holder: Holder, *, take_over: bool) -> None:
        rolls_back = self._mine.action == "rollback"
        if rolls_back and holder.action == "deploy":
            return
        command = "make rollback" if rolls_back else "make deploy TAKE_OVER=1"
        silent = self._now() - holder.renewed
        if silent < STALE_AFTER:
            left = f"{(STALE_AFTER - silent).total_seconds():.0f} seconds"
            raise LockedError(f"a {holder.action} runs: {holder}. Wait for it; if it is dead, {command} in {left}")
        if not (take_over or rolls_back):
            raise LockedError(
                f"a {holder.action} did not end: {holder}; silent since {holder.renewed:%Y-%m-%d %H:%M} UTC. "
                f"See that it runs no more, then {command}"
            )

    def check(self) -> None:
        """Raise LockedError where the lock was lost: nothing may be changed any more."""
        held = self._held()
        if self._lost or held is None or held[0].token != self._mine.token:
            self._lost = True
            whose = f"a {held[0].action}: {held[0]}" if held else "nobody"
            raise LockedError(f"the fleet's lock was taken by {whose}. This {self._mine.action} stops here")

    def renew(self) -> None:
        """Show that this process lives, unless it handed the lock over. Raise LockedError where the lock was lost."""
        if self._handed_over:
            return
        self.check()
        self._mine = self._mine.model_copy(update={"renewed": self._now()})
        self._replace()

    def hand_over(self, token: str, *, who: str) -> None:
        """Make the lock another's, who goes on with this deploy. Raise LockedError where it was lost."""
        self.check()
        update = {"token": token, "who": who, "host": "AWS Step Functions", "process": 0, "renewed": self._now()}
        self._mine = self._mine.model_copy(update=update)
        self._replace()
        self._handed_over = True

    def release(self) -> None:
        """Release the lock, unless another process has taken it."""
        if self._handed_over:
            return
        held = self._held()
        if held is not None and held[0].token == self._mine.token:
            self._ssm.delete_parameter(Name=self.name)

    def _replace(self) -> None:
        """Write over the version that was read; of several writers at once, the first one has it."""
        read = self._version
        self._put(overwrite=True)
        if self._version != read + 1:
            self._lost = True
            raise LockedError("somebody else took the lock at this moment: see who, and try again")

    def _put(self, *, overwrite: bool) -> None:
        value = self._mine.model_dump_json()
        written = self._ssm.put_parameter(Name=self.name, Value=value, Type="String", Overwrite=overwrite)
        self._version = int(written["Version"])

    def _held(self) -> tuple[Holder, int] | None:
        found = parameter(self._ssm, self.name)
        return (Holder.model_validate_json(found["Value"]), int(found["Version"])) if found else None


@contextmanager
def held(lock: DeployLock, *, take_over: bool = False, seconds: float = RENEWED_SECONDS) -> Iterator[DeployLock]:
    """Hold the lock and renew it every `seconds` until the block ends, however it ends. Raise LockedError."""
    lock.acquire(take_over=take_over)

    def renew() -> bool:
        try:
            lock.renew()
        except LockedError as error:
            print(error, file=sys.stderr)
            return False  # the holder stops before its next change
        except (BotoCoreError, ClientError) as error:
            print(f"the lock could not be renewed: {error}", file=sys.stderr)
        return True

    try:
        with repeated(renew, seconds):
            yield lock
    finally:
        try:
            lock.release()
        except (BotoCoreError, ClientError) as error:
            print(f"the lock could not be given back: {error}", file=sys.stderr)


@contextmanager
def repeated(act: Callable[[], bool], seconds: float) -> Iterator[None]:
    """Call `act` every `seconds` until the block ends, however it ends, or `act` returns False.

    `act` runs in a thread of its own, so it must not raise.
    """
    over = threading.Event()

    def go_on() -> None:
        while not over.wait(seconds) and act():
            pass

    thread = threading.Thread(target=go_on, daemon=True)
    thread.start()
    try:
        yield
    finally:
        over.set()
        thread.join()
