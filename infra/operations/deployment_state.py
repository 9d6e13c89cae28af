"""The progress of a fleet's deploy and each cell's past releases, in one SSM parameter that any shell can read.

Each cell's own stack says what the cell runs now; this state says what the deploy intended, and what ran before. Beside
it are the marks by which a deploy skips what was done, which the state machine writes, and the key of shoppers' events.
"""

import secrets
from collections.abc import Iterable
from contextlib import suppress
from dataclasses import dataclass
from enum import StrEnum
from typing import Any

from pydantic import BaseModel, ConfigDict, Field

from infra.fleet.rollout_states import back_at, done_parameter
from infra.fleet.settings import FleetSettings
from infra.fleet.shopper_events import key_parameter
from infra.operations.command import parameter

KEPT = 5  # releases kept for each cell, and rejected releases; a standard parameter holds 4 kB


class Step(StrEnum):
    PENDING = "pending"
    MOVING = "moving"  # its stack may be changing
    DONE = "done"  # deployed, and baked
    HURT = "hurt"  # its alarm fired while it baked


class CellState(BaseModel):
    """One cell in the running deploy, and its releases from oldest to newest.

    The last one is the release that it was sent to.
    """

    model_config = ConfigDict(extra="forbid")

    step: Step = Step.PENDING
    releases: list[str] = []


class DeploymentState(BaseModel):
    """A fleet's deploy, which is unfinished while `release` is set."""

    model_config = ConfigDict(extra="forbid")

    release: str | None = Field(default=None, description="the image that every cell of the deploy gets")
    assembly: str | None = Field(default=None, description="digest of the templates that the deploy began with")
    commit: str | None = None
    cells: dict[str, CellState] = {}
    brings_image: bool = Field(default=False, description="whether the release is another than a cell had before")
    rejected: list[str] = Field(default=[], description="releases that hurt a cell, or were rolled back")

    def cell(self, name: str) -> CellState:
        return self.cells.setdefault(name, CellState())

    def begin(self, release: str, assembly: str, commit: str) -> None:
        self.release, self.assembly, self.commit = release, assembly, commit
        self.brings_image = any(cell.releases[-1:] != [release] for cell in self.cells.values())
        for cell in self.cells.values():
            cell.step = Step.PENDING

    def finish(self) -> None:
        """Mark the deploy as over, whether it succeeded or was rolled back."""
        self.release = self.assembly = self.commit = None
        self.brings_image = False

    def sent(self, name: str, release: str) -> None:
        """Record that a cell goes to `release`; what it ran so far becomes the previous release."""
        cell = self.cell(name)
        cell.step = Step.MOVING
        if not cell.releases or cell.releases[-1] != release:
            cell.releases = [*cell.releases, release][-KEPT:]

    def returned(self, name: str, release: str) -> None:
        """Record that a cell went back to `release`; later releases are no longer candidates for a rollback."""
        cell = self.cell(name)
        cell.step = Step.DONE
        kept = cell.releases[: cell.releases.index(release) + 1] if release in cell.releases else []
        cell.releases = kept or [release]

    def before(self, name: str) -> str | None:
        """Return the release that a cell ran before the one that it was last sent to, unless that release did harm.

        A deploy creates missing cells before its canary is watched, so one may have begun with a harmful release.
        """
        before = [each for each in self.cell(name).releases[:-1] if each not in self.rejected]
        return before[-1] if before else None

    def to_return(self) -> dict[str, str]:
        """Return the release to which each cell goes back by itself where the running deploy does harm.

        None goes where the deploy changed templates alone: the image before is not to blame.
        """
        if not self.brings_image:
            return {}
        sent = [name for name, cell in self.cells.items() if cell.releases[-1:] == [self.release]]
        return {name: before for name in sent if (before := self.before(name)) is not None}

    def reject(self, release: str) -> None:
        """Remember that a release did harm, so that it is not deployed again automatically."""
        self.rejected = [*(each for each in self.rejected if each != release), release][-KEPT:]


class StateStore:
    def __init__(self, settings: FleetSettings, ssm: Any) -> None:
        self.name = f"/peakplan/{settings.name}/deployment"
        self.ssm = ssm

    def load(self) -> DeploymentState:
        """Return the state, or a new one before the first deploy. Raise botocore's errors if the read fails."""
        found = parameter(self.ssm, self.name)
        return DeploymentState.model_validate_json(found["Value"]) if found else DeploymentState()

    def save(self, state: DeploymentState) -> None:
        """Store the state. Raise botocore's errors if the write fails."""
        value = state.model_dump_json(exclude_defaults=True)
        self.ssm.put_parameter(Name=self.name, Value=value, Type="String", Overwrite=True, Tier="Intelligent-Tiering")


@dataclass(frozen=True)
class RolloutMarks:
    """The marks of a fleet's stacks, which are called as in the CDK CLI or by the cell's name; `ssm` is a client."""

    settings: FleetSettings
    ssm: Any

    def has(self, stack: str, state: DeploymentState) -> bool:
        """Return whether a stack has the running deploy behind it."""
        found = parameter(self.ssm, self._name(stack))
        return found is not None and bool(found["Value"] == mark_of(state))

    def begin(self, stack: str, state: DeploymentState) -> None:
        """Say that a stack is about to change: from now on it has no deploy behind it."""
        self._put(stack, f"going to {state.release}")

    def went_back(self, cell: str, release: str) -> None:
        """Say that a cell goes back. The machine writes the same words (infra/fleet/rollout_machine.py)."""
        self._put(cell, back_at(release))

    def delete(self, stacks: Iterable[str]) -> None:
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
    return f"{state.release} {state.assembly}"


_BYTES = 32


def make_key(settings: FleetSettings, ssm: Any) -> bool:
    """Make the key where the fleet keeps events and has none: CloudFormation makes no SecureString.

    Return whether it was made.
    """
    if not settings.shopper_events.enabled:
        return False
    try:
        ssm.put_parameter(
            Name=key_parameter(settings.name),
            Value=secrets.token_hex(_BYTES),
            Type="SecureString",
            Description=f"The key that the hosts of {settings.name} share for shoppers' events",
            Overwrite=False,
        )
    except ssm.exceptions.ParameterAlreadyExists:
        return False
    print(f"Made {key_parameter(settings.name)}, the key that hosts share for shoppers' events", flush=True)
    return True


def delete_key(settings: FleetSettings, ssm: Any) -> None:
    """Delete the key, without which no hash of a shopper can be made anew."""
    with suppress(ssm.exceptions.ParameterNotFound):
        ssm.delete_parameter(Name=key_parameter(settings.name))
