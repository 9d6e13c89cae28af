"""The progress of a fleet's deploy and each cell's past releases, in one SSM parameter that any shell can read.

Each cell's own stack says what the cell runs now; this state says what the deploy intended, and what ran before.
"""

from __future__ import annotations

from enum import StrEnum
from typing import Any

from botocore.exceptions import ClientError
from pydantic import BaseModel, ConfigDict, Field

from infra.fleet.settings import FleetSettings

KEPT = 5  # releases kept for each cell, and rejected releases; a standard parameter holds 4 kB


class Step(StrEnum):
    """The progress of a deploy in one cell."""

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
        """Return the state of one cell, which is created at its first mention."""
        return self.cells.setdefault(name, CellState())

    def begin(self, release: str, assembly: str, commit: str) -> None:
        """Start a deploy of `release` to every cell."""
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
        """Return the release that a cell ran before the one that it was last sent to."""
        releases = self.cell(name).releases
        return releases[-2] if len(releases) > 1 else None

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
    """The SSM parameter that stores a fleet's state."""

    def __init__(self, settings: FleetSettings, ssm: Any) -> None:
        self.name = f"/peakplan/{settings.name}/deployment"
        self.ssm = ssm

    def load(self) -> DeploymentState:
        """Return the state, or a new one before the first deploy. Raise botocore's errors if the read fails."""
        try:
            value = self.ssm.get_parameter(Name=self.name)["Parameter"]["Value"]
        except ClientError as error:
            if error.response["Error"]["Code"] != "ParameterNotFound":
                raise
            return DeploymentState()
        return DeploymentState.model_validate_json(value)

    def save(self, state: DeploymentState) -> None:
        """Store the state. Raise botocore's errors if the write fails."""
        value = state.model_dump_json(exclude_defaults=True)
        self.ssm.put_parameter(Name=self.name, Value=value, Type="String", Overwrite=True, Tier="Intelligent-Tiering")
