"""One fleet's settings, read from one YAML file in infra/fleets; unsafe or impossible values are refused in words."""

import json
import sys
from collections.abc import Sequence
from datetime import UTC, datetime, timedelta
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
        """Return the settings in `path`. Raise FleetFileError where it is missing, is not YAML, or breaks a rule."""
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
    """Return another fleet's values with this file's keys on top, as for a second region."""
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


SOURCE = "Amazon EC2 Auto Scaling, PutScheduledUpdateGroupAction: StartTime"


def without_past_events(settings: FleetSettings, now: datetime) -> tuple[FleetSettings, list[str]]:
    """Return the settings without events that are over at `now`, and messages about those and the running ones.

    An event that is over is left out instead of refused: a file must not stop deploys the day after its sale. Nothing
    here can break a rule that the settings obeyed, because every rule over events asks for less where there are fewer.
    """
    over = [event for event in settings.events if event.end <= now]
    begun = [
        event for event in settings.events if event.start - timedelta(minutes=event.lead_minutes) <= now < event.end
    ]
    said = [
        f"event {event.name} was over on {event.end:%Y-%m-%d %H:%M} UTC and is left out: take it out of the file, "
        f"or give it its next date [source: {SOURCE}]"
        for event in over
    ]
    said += [
        f"event {event.name} is under way until {event.end:%Y-%m-%d %H:%M} UTC: groups that stand keep its capacity, "
        f"but a group that is created now is refused its scheduled start; raise groups.*.minimum and take the event "
        f"out until then if you must create one [source: {SOURCE}]"
        for event in begun
    ]
    left = tuple(event for event in settings.events if event not in over)
    return settings.model_copy(update={"events": left}), said


def upcoming_events_only(settings: FleetSettings, now: datetime | None = None) -> FleetSettings:
    """Return `without_past_events` at this moment, and print its messages on standard error."""
    left, said = without_past_events(settings, now or datetime.now(UTC))
    for words in said:
        print(f"{settings.name}: {words}", file=sys.stderr)
    return left
