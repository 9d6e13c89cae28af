"""The marks of which deploy each stack has behind it, in the account, by which a deploy skips what was done.

The state machine of infra/fleet/rollout_machine.py writes them. What starts it, and a rollback, take back those that
become untrue.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from typing import Any

from botocore.exceptions import ClientError

from infra.fleet.rollout_states import back_at, done_parameter
from infra.fleet.settings import FleetSettings
from infra.operations.deployment_state import DeploymentState


@dataclass(frozen=True)
class RolloutMarks:
    """The marks of a fleet's stacks, which are called as in the CDK CLI or by the cell's name; `ssm` is a client."""

    settings: FleetSettings
    ssm: Any

    def has(self, stack: str, state: DeploymentState) -> bool:
        """Return whether a stack has the running deploy behind it."""
        try:
            value = self.ssm.get_parameter(Name=self._name(stack))["Parameter"]["Value"]
        except ClientError as error:
            if error.response["Error"]["Code"] != "ParameterNotFound":
                raise
            return False
        return bool(value == mark_of(state))

    def begin(self, stack: str, state: DeploymentState) -> None:
        """Say that a stack is about to change: from now on it has no deploy behind it."""
        self._put(stack, f"going to {state.release}")

    def went_back(self, cell: str, release: str) -> None:
        """Say that a cell goes back. The machine writes the same words (infra/fleet/rollout_return.py)."""
        self._put(cell, back_at(release))

    def delete(self, stacks: Iterable[str]) -> None:
        """Forget stacks that are gone."""
        names = [self._name(stack) for stack in stacks]
        for first in range(0, len(names), 10):  # as many as DeleteParameters takes
            self.ssm.delete_parameters(Names=names[first : first + 10])

    def _name(self, stack: str) -> str:
        return done_parameter(self.settings, stack.lower())

    def _put(self, stack: str, value: str) -> None:
        self.ssm.put_parameter(
            Name=self._name(stack), Value=value, Type="String", Overwrite=True, Tier="Intelligent-Tiering"
        )


def mark_of(state: DeploymentState) -> str:
    """Return the running deploy's mark: its release and its templates."""
    return f"{state.release} {state.assembly}"
