"""A cell as it stands in the account: which release its stack runs, and its way back to one. No CDK."""

from __future__ import annotations

import time
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from botocore.exceptions import ClientError

from infra.fleet.settings import FleetSettings

LIMIT_SECONDS = 6 * 3600.0  # a careful refresh of a full cell takes hours
Sleep = Callable[[float], None]
SETTLED_WELL = ("CREATE_COMPLETE", "UPDATE_COMPLETE", "UPDATE_ROLLBACK_COMPLETE")


class CellError(Exception):
    """A cell that does not do what it was asked; the message says why and what to do. For people."""


def stack_of(settings: FleetSettings, cell: str) -> str:
    """What CloudFormation calls the stack of a cell."""
    return f"peakplan-{settings.name}-{cell}"


@dataclass(frozen=True)
class DeployedCell:
    """One cell's stack, as far as going back to a release needs it."""

    name: str
    stack: str
    cloudformation: Any
    sleep: Sleep = time.sleep

    def exists(self) -> bool:
        """Whether the cell was deployed at all."""
        try:
            self._described()
        except ClientError as error:
            if "does not exist" in str(error):
                return False
            raise
        return True

    def runs(self) -> str | None:
        """The release that its stack has now; None before the first."""
        parameters = {each["ParameterKey"]: each["ParameterValue"] for each in self._described().get("Parameters", [])}
        return parameters.get("MachineImageId")

    def return_to(self, release: str) -> None:
        """Bring the stack to `release`. Raises CellError."""
        status = str(self._described()["StackStatus"])
        if status == "UPDATE_IN_PROGRESS":
            self.cloudformation.cancel_update_stack(StackName=self.stack)
            status = self.settled()
        if status == "UPDATE_ROLLBACK_FAILED":
            self.cloudformation.continue_update_rollback(StackName=self.stack)
            status = self.settled()
        status = self.settled()
        if status not in SETTLED_WELL:
            raise CellError(f"{self.name}: {self.stack} is {status}; see its events in CloudFormation")
        if self.runs() == release:
            return
        self._update(release)
        if (status := self.settled()) != "UPDATE_COMPLETE":
            raise CellError(f"{self.name}: {self.stack} is {status} after the change to {release}")

    def _update(self, release: str) -> None:
        given = {"MachineImageId": release, "RefreshSpeed": "fast"}
        kept = [each["ParameterKey"] for each in self._described()["Parameters"] if each["ParameterKey"] not in given]
        self.cloudformation.update_stack(
            StackName=self.stack,
            UsePreviousTemplate=True,
            Parameters=[
                *({"ParameterKey": name, "ParameterValue": value} for name, value in given.items()),
                *({"ParameterKey": name, "UsePreviousValue": True} for name in kept),
            ],
            Capabilities=["CAPABILITY_IAM", "CAPABILITY_NAMED_IAM"],
        )

    def is_settled(self) -> bool:
        """Whether nothing is changing in its stack."""
        return not str(self._described()["StackStatus"]).endswith("_IN_PROGRESS")

    def settled(self) -> str:
        """The stack's status once nothing is in progress. Raises CellError when that takes too long."""
        end = time.monotonic() + LIMIT_SECONDS
        while (status := str(self._described()["StackStatus"])).endswith("_IN_PROGRESS"):
            if time.monotonic() > end:
                raise CellError(f"{self.name}: {self.stack} is {status} for hours; see its events in CloudFormation")
            self.sleep(10)
        return status

    def _described(self) -> dict[str, Any]:
        found: dict[str, Any] = self.cloudformation.describe_stacks(StackName=self.stack)["Stacks"][0]
        return found
