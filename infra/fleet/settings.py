"""One fleet's settings, read from one YAML file in infra/fleets; unsafe or impossible values are refused in words."""

import json
from collections.abc import Sequence
from difflib import get_close_matches
from pathlib import Path
from typing import Any, Self

import yaml
from pydantic import ValidationError, model_validator
from pydantic_core import ErrorDetails

from infra.fleet import rules
from infra.fleet.description import FleetDescription

FLEETS = Path(__file__).parents[1] / "fleets"
LIKE = "like"  # the key of a fleet file that changes another's keys instead of repeating them


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
        content = _content(path)
        if LIKE in content:
            content = _other(path, content)
        try:
            return cls.model_validate(content)
        except ValidationError as error:
            raise FleetFileError(_for_people(path, error)) from error


def _content(path: Path) -> dict[str, Any]:
    try:
        content: Any = yaml.safe_load(path.read_text(encoding="utf-8"))
    except OSError as error:
        known = ", ".join(sorted(file.stem for file in FLEETS.glob("*.yaml")))
        raise FleetFileError(f"{path}: cannot be read ({error.strerror}). Fleets that ship: {known}") from error
    except yaml.YAMLError as error:
        raise FleetFileError(f"{path}: not YAML: {error}") from error
    if not isinstance(content, dict):
        raise FleetFileError(f"{path}: expected keys like `name:` and `region:`; see infra/fleets/dev.yaml")
    return content


def _other(path: Path, content: dict[str, Any]) -> dict[str, Any]:
    """Return a fleet that is like another but for its own keys: the same one in a second region, above all."""
    named = content[LIKE]
    if not isinstance(named, str):
        raise FleetFileError(f"{path}: {LIKE}: {named!r} is no file; name the fleet file that this one is like")
    other = _content(path.parent / named)
    if LIKE in other:
        raise FleetFileError(f"{path}: {LIKE}: {named} is itself like another; name {other[LIKE]} instead")
    if content.get("name", other.get("name")) == other.get("name"):
        raise FleetFileError(f"{path}: name: {named} has the same; bills and budgets would not tell the two apart")
    return other | {key: value for key, value in content.items() if key != LIKE}


def _for_people(path: Path, error: ValidationError) -> str:
    """Return every finding on a line of its own, with its place in the file and what is wrong there."""
    lines = []
    findings = error.errors()
    unknown = [finding["loc"] for finding in findings if finding["type"] == "extra_forbidden"]
    meant = {place: near for place in unknown if (near := _near(place, findings))}
    follows = {(*place[:-1], near) for place, near in meant.items()}  # what a misspelt key means is not missing besides
    for finding in findings:
        if finding["type"] == "missing" and finding["loc"] in follows:
            continue
        where = ".".join(str(part) for part in finding["loc"])
        what = finding["msg"].removeprefix("Value error, ")
        if finding["type"] == "extra_forbidden":
            near = meant.get(finding["loc"])
            what = "is no key of a fleet file" + (f": did you mean `{near}`?" if near else "")
        # A rule over several fields names its field itself.
        lines += [f"{where}: {what}"] if where else what.splitlines()
    return "\n  ".join([f"{path}: {len(lines)} value(s) cannot be used", *lines])


def _near(place: tuple[int | str, ...], findings: Sequence[ErrorDetails]) -> str | None:
    """Return the key that a misspelt one may mean: rather one that is missing beside it than any other."""
    *parent, key = place
    absent = [each["loc"] for each in findings if each["type"] == "missing" and each["loc"][:-1] == tuple(parent)]
    schema = FleetSettings.model_json_schema()
    objects = [schema, *schema["$defs"].values()]
    known = {name for each in objects for name in each.get("properties", {})}
    return next(
        iter(
            [
                *get_close_matches(str(key), [str(each[-1]) for each in absent]),
                *get_close_matches(str(key), sorted(known)),
            ]
        ),
        None,
    )


def json_schema() -> str:
    """Return the JSON Schema with which editors complete and check fleet files."""
    schema = FleetSettings.model_json_schema()
    schema["properties"][LIKE] = {
        "type": "string",
        "description": "A fleet file beside this one, whose keys hold unless this one has them.",
    }
    schema["anyOf"] = [{"required": schema.pop("required")}, {"required": [LIKE, "name"]}]
    return json.dumps({"$schema": "https://json-schema.org/draft/2020-12/schema"} | schema, indent=1) + "\n"
