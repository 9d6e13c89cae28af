"""One fleet's settings, read from one YAML file in infra/fleets; unsafe or impossible values are refused in words."""

import json
from pathlib import Path
from typing import Any, Self

import yaml
from pydantic import ValidationError, model_validator

from infra.fleet import rules
from infra.fleet.description import FleetDescription

FLEETS = Path(__file__).parents[1] / "fleets"


class FleetFileError(Exception):
    """A fleet file that cannot be used.

    The message names each field, what is wrong and what to do. It is written for operators.
    """


class FleetSettings(FleetDescription):
    """The settings of a fleet: everything that may differ between fleets."""

    @model_validator(mode="after")
    def _obeys_every_rule(self) -> Self:
        broken = [violation for rule in rules.RULES for violation in rule(self)]
        if broken:
            raise ValueError("\n".join(str(violation) for violation in broken))
        return self

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
