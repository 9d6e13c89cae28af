"""Fleet files for tests: the dev fleet with some values changed."""

from copy import deepcopy
from typing import Any

import yaml

from infra.fleet.settings import FLEETS, FleetSettings


def dev_with(changes: dict[str, Any]) -> dict[str, Any]:
    """The content of dev.yaml after `changes`, whose keys are dotted paths like model.sdk or groups.0.minimum."""
    content: Any = yaml.safe_load((FLEETS / "dev.yaml").read_text(encoding="utf-8"))
    for path, value in deepcopy(changes).items():
        *parents, last = (int(part) if part.isdigit() else part for part in path.split("."))
        place = content
        for parent in parents:
            place = place[parent] if isinstance(parent, int) else place.setdefault(parent, {})
        place[last] = value
    assert isinstance(content, dict)
    return content


def dev_fleet(changes: dict[str, Any] | None = None) -> FleetSettings:
    """The settings of dev.yaml after `changes`."""
    return FleetSettings.model_validate(dev_with(changes or {}))
