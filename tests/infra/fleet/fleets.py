"""Fleet files for tests: the dev fleet with some values changed."""

from copy import deepcopy
from typing import Any

import yaml

from infra.fleet.settings import FLEETS, FleetSettings

# A group of Graviton beside the dev fleet's chips, which takes over where chips lack.
GRAVITON: dict[str, Any] = {
    "groups.2": {
        "instance_type": "c8g.4xlarge",
        "engine": "torch",
        "service_time": {"mean_ms": 64, "p99_ms": 170, "source": "stated: docs/cost.md"},
        "minimum": 3,
        "maximum": 6,
        "stands_in": True,
    },
    "maximum_cell_instances": 20,
}
# Processors that do so, and boot the same image as the chips' hosts.
PROCESSORS = GRAVITON | {"groups.2": GRAVITON["groups.2"] | {"instance_type": "c7a.4xlarge"}}


def dev_with(changes: dict[str, Any]) -> dict[str, Any]:
    """The content of dev.yaml after `changes`."""
    return fleet_with("dev", changes)


def fleet_with(fleet: str, changes: dict[str, Any]) -> dict[str, Any]:
    """The content of a fleet's file after `changes`, whose keys are dotted paths like model.sdk or groups.0.minimum.

    The number after a list's last adds to it.
    """
    content: Any = yaml.safe_load((FLEETS / f"{fleet}.yaml").read_text(encoding="utf-8"))
    for path, value in deepcopy(changes).items():
        *parents, last = (int(part) if part.isdigit() else part for part in path.split("."))
        place = content
        for parent in parents:
            place = place[parent] if isinstance(parent, int) else place.setdefault(parent, {})
        if isinstance(place, list) and last == len(place):
            place.append(value)
        else:
            place[last] = value
    assert isinstance(content, dict)
    return content


def dev_fleet(changes: dict[str, Any] | None = None) -> FleetSettings:
    """The settings of dev.yaml after `changes`."""
    return FleetSettings.model_validate(dev_with(changes or {}))
