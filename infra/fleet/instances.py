"""The instance types a fleet may run on; instances.json is their only source."""

import json
from functools import cache
from pathlib import Path
from typing import Literal

from pydantic import BaseModel, ConfigDict, Field

Chip = Literal["inf2", "trn1", "cpu"]

_CATALOGUE = Path(__file__).with_name("instances.json")


class InstanceType(BaseModel):
    """The properties of one instance type."""

    model_config = ConfigDict(frozen=True, extra="forbid")

    cores: int = Field(description="NeuronCores; physical cores where it has no Neuron chip")
    device_gib: int
    vcpus: int
    architecture: Literal["x86_64", "arm64"] = Field(
        default="x86_64", description="machine images are for x86_64 alone"
    )


class Catalogue(BaseModel):
    """Every known instance type, and the source of its numbers."""

    model_config = ConfigDict(frozen=True, extra="forbid")

    source: str
    date: str
    tensor_parallel: dict[Chip, tuple[int, ...]]
    cores_per_chip: int
    types: dict[str, InstanceType]


@cache
def catalogue() -> Catalogue:
    """Return the catalogue of instances.json."""
    return Catalogue.model_validate(json.loads(_CATALOGUE.read_text(encoding="utf-8")))
