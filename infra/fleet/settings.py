"""One fleet's settings, read from one YAML file in infra/fleets; unsafe or impossible values are refused in words."""

import json
from pathlib import Path
from typing import Any, Self

import yaml
from pydantic import Field, ValidationError, model_validator

from infra.fleet import rules
from infra.fleet.demand import Event, Name, Part, Surge, Traffic
from infra.fleet.network_parts import Access, Caller, LoadBalancer, NetworkSettings
from infra.fleet.parts import Group, MachineImage, Model, OnCall, Rollout, Slo

FLEETS = Path(__file__).parents[1] / "fleets"


class FleetFileError(Exception):
    """A fleet file that cannot be used.

    The message names each field, what is wrong and what to do. It is written for operators.
    """


class FleetSettings(Part):
    """The settings of a fleet: everything that may differ between fleets."""

    name: Name
    region: str = Field(pattern=r"^[a-z]{2}(-[a-z]+)+-\d$")
    account: str | None = Field(
        default=None, pattern=r"^\d{12}$", description="The account's id. Left out, it is that of whoever deploys."
    )
    availability_zones: tuple[str, ...] = Field(min_length=2, max_length=6)
    cells: int = Field(ge=1, le=64, description="The number of cells. They are alike and stand alone.")
    maximum_cell_instances: int = Field(default=200, ge=1, description="The size that a cell was tested at.")
    groups: tuple[Group, ...] = Field(min_length=1, max_length=2, description="The Auto Scaling groups of every cell.")
    traffic: Traffic
    slo: Slo = Slo()
    surge: Surge = Surge()
    boot_seconds: int = Field(
        default=600, ge=30, le=7200, description="The seconds from a cold launch to proven ready."
    )
    warm_start_seconds: int = Field(
        default=90, ge=5, le=7200, description="The seconds from the warm pool to proven ready."
    )
    drain_seconds: int = Field(default=30, ge=5, le=300, description="The seconds that requests in flight get.")
    events: tuple[Event, ...] = ()
    model: Model
    machine_image: MachineImage = MachineImage()
    network: NetworkSettings = NetworkSettings()
    load_balancer: LoadBalancer = LoadBalancer()
    access: Access = Access()
    rollout: Rollout = Rollout()
    callers: tuple[Caller, ...] = Field(min_length=1, description="Everyone who may call. Nobody else reaches a cell.")
    caller_shard_cells: int = Field(default=2, ge=1, description="The cells that one named caller is spread over.")
    retention_days: int = Field(
        default=30, ge=1, le=3653, description="The days that logs, access logs and flow logs are kept."
    )
    log_key: str | None = Field(
        default=None,
        pattern=r"^arn:aws:kms:[a-z0-9-]+:\d{12}:key/.+$",
        description="Your KMS key for log groups, which logs.<region>.amazonaws.com may use; AWS's own if left out.",
    )
    deletion_protection: bool = Field(
        default=True, description="To be switched off only where losing everything is fine."
    )
    on_call: OnCall = Field(description="The keys page and ticket, or one address for both.")
    runbooks: str = Field(
        default="",
        pattern=r"^(https://.+)?$",
        description="The URL where docs/runbooks can be read. Left out, each is a page of CloudWatch's dashboards.",
    )
    cost_center: str = Field(default="peakplan", description="The tag that bills are split by.")

    @model_validator(mode="after")
    def _obeys_every_rule(self) -> Self:
        broken = [violation for rule in rules.RULES for violation in rule(self)]
        if broken:
            raise ValueError("\n".join(str(violation) for violation in broken))
        return self

    @property
    def cell_names(self) -> tuple[str, ...]:
        """The names of the cells, from cell-1 to cell-n."""
        return tuple(f"cell-{number}" for number in range(1, self.cells + 1))

    @classmethod
    def from_yaml(cls, path: Path) -> Self:
        """Return the settings in `path`.

        Raises:
            FleetFileError: the file is missing, is not YAML, or breaks a rule; the message is for people.
        """
        try:
            content: Any = yaml.safe_load(path.read_text(encoding="utf-8"))
        except OSError as error:
            known = ", ".join(sorted(file.stem for file in FLEETS.glob("*.yaml")))
            raise FleetFileError(f"{path}: cannot be read ({error.strerror}). Fleets that ship: {known}") from error
        except yaml.YAMLError as error:
            raise FleetFileError(f"{path}: not YAML: {error}") from error
        if not isinstance(content, dict):
            raise FleetFileError(f"{path}: expected keys like `name:` and `region:`; see infra/fleets/dev.yaml")
        try:
            return cls.model_validate(content)
        except ValidationError as error:
            raise FleetFileError(_for_people(path, error)) from error


def _for_people(path: Path, error: ValidationError) -> str:
    """Return every finding on a line of its own, with its place in the file and what is wrong there."""
    lines = []
    for finding in error.errors():
        where = ".".join(str(part) for part in finding["loc"])
        what = finding["msg"].removeprefix("Value error, ")
        # A rule over several fields names its field itself.
        lines += [f"{where}: {what}"] if where else what.splitlines()
    return "\n  ".join([f"{path}: {len(lines)} value(s) cannot be used", *lines])


def json_schema() -> str:
    """Return the JSON Schema with which editors complete and check fleet files."""
    schema = FleetSettings.model_json_schema()
    return json.dumps({"$schema": "https://json-schema.org/draft/2020-12/schema"} | schema, indent=1) + "\n"
