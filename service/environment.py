"""Settings from environment variables with flat, readable names, independent of the settings' groups.

A field `wait_ms` of a group with the prefix "CACHE_" is PEAKPLAN_CACHE_WAIT_MS. It knows no setting by name, only how
fields and groups become variables, and which variables other programs use.
"""

import difflib
import os
import types
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any, Union, get_args, get_origin

from pydantic import BaseModel, SecretStr, ValidationError
from pydantic.fields import FieldInfo
from pydantic_settings import BaseSettings, PydanticBaseSettingsSource

PREFIX = "PEAKPLAN_"
# Variables of our programs beside the service: the host's scripts in ami/, the client, the tests and the benchmarks.
OTHERS = frozenset(
    PREFIX + name
    for name in (
        "AGENT_CONTROL AGENT_FOLDER AGENT_TEMPLATES API_KEY AUTO_SCALING_GROUP COMMIT CONFIGURATION DATA "
        "DEVICE_RIGHTS DEVICES HOME IMAGE LAUNCH_HOOK LOG_GROUP METADATA_URL NEURON_LS NEURON_PINS "
        "NXDI_SOURCE OUTCOMES_KEY_PARAMETER "
        "PAUSE_SECONDS REGION ROOT SERVICE_URL TERMINATE_HOOK TUTORIALS"
    ).split()
)


@dataclass(frozen=True, slots=True)
class Prefix:
    """The prefix of a group's variables, after PEAKPLAN_: `Annotated[CacheSettings, Prefix("CACHE_")]`."""

    text: str = ""


@dataclass(frozen=True, slots=True)
class Named:
    """Variables of a field that does not follow the rule: the first one set wins, the last one is documented."""

    names: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class Variable:
    """A leaf of the settings: its variables by precedence, and the field that it fills."""

    names: tuple[str, ...]
    path: tuple[str, ...]
    field: FieldInfo

    @property
    def name(self) -> str:
        return self.names[-1]

    @property
    def is_secret(self) -> bool:
        return SecretStr in _alternatives(self.field.annotation)

    def set_names(self, environment: Mapping[str, str]) -> list[str]:
        return [name for name in self.names if name in environment]


def variables(settings: type[BaseModel], path: tuple[str, ...] = (), prefix: str = "") -> Iterator[Variable]:
    """Yield every variable of the settings, in the order of their fields."""
    for name, field in settings.model_fields.items():
        if isinstance(field.annotation, type) and issubclass(field.annotation, BaseModel):
            group = next((item for item in field.metadata if isinstance(item, Prefix)), Prefix())
            yield from variables(field.annotation, (*path, name), group.text)
            continue
        named = next((item for item in field.metadata if isinstance(item, Named)), None)
        yield Variable(named.names if named else (f"{PREFIX}{prefix}{name.upper()}",), (*path, name), field)


class FlatEnvironment(PydanticBaseSettingsSource):
    """The source of nested settings: each leaf from its own variable, in upper or lower case."""

    def __init__(self, settings_cls: type[BaseSettings], environment: Mapping[str, str] | None = None) -> None:
        super().__init__(settings_cls)
        given = os.environ if environment is None else environment
        self._environment = {name.upper(): value for name, value in given.items()}

    def get_field_value(self, field: FieldInfo, field_name: str) -> tuple[Any, str, bool]:
        raise NotImplementedError("fields are read all at once")

    def __call__(self) -> dict[str, Any]:
        values: dict[str, Any] = {}
        for variable in variables(self.settings_cls):
            if names := variable.set_names(self._environment):
                *groups, leaf = variable.path
                place = values
                for group in groups:
                    place = place.setdefault(group, {})
                place[leaf] = self._environment[names[0]]
        return values


def warnings_of(settings: type[BaseModel], environment: Mapping[str, str]) -> list[str]:
    """Return a warning for each variable that has no effect; values are never quoted."""
    given = {name.upper() for name in environment}
    known = {name for variable in variables(settings) for name in variable.names}
    told = []
    for name in sorted(given):
        if not name.startswith(PREFIX) or name in known or name in OTHERS:
            continue
        bare = {each.removeprefix(PREFIX): each for each in known}
        near = difflib.get_close_matches(name.removeprefix(PREFIX), bare, n=1)
        told.append(f"{name} is no setting" + (f": did you mean {bare[near[0]]}?" if near else ""))
    return told


def problems_of(error: ValidationError, settings: type[BaseModel]) -> str:
    """Describe invalid settings on one line: each variable, its value unless secret, and the reason."""
    by_path = {variable.path: variable for variable in variables(settings)}
    given = {name.upper() for name in os.environ}
    told = []
    for item in error.errors():
        reason = item["msg"].removeprefix("Value error, ")
        path = tuple(str(part) for part in item["loc"])
        variable = next((by_path[path[:end]] for end in range(len(path), 0, -1) if path[:end] in by_path), None)
        if variable is None:
            told.append(" ".join([*path, reason]))
            continue
        name = next((each for each in variable.set_names(dict.fromkeys(given, ""))), variable.name)
        told.append(f"{name} {reason}" if variable.is_secret else f"{name}={item['input']} {reason}")
    return "; ".join(told)


def _alternatives(annotation: Any) -> tuple[Any, ...]:
    return get_args(annotation) if get_origin(annotation) in (Union, types.UnionType) else (annotation,)
