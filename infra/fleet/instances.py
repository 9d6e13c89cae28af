"""The instance types a fleet may run on; instances.json is their only source."""

import json
from functools import cache
from pathlib import Path
from typing import Literal

from pydantic import BaseModel, ConfigDict, Field

Chip = Literal["inf2", "trn1", "trn2", "cpu"]
Architecture = Literal["x86_64", "arm64"]

_CATALOGUE = Path(__file__).with_name("instances.json")


class InstanceType(BaseModel):
    """The properties of one instance type."""

    model_config = ConfigDict(frozen=True, extra="forbid")

    cores: int = Field(description="NeuronCores; physical cores where it has no Neuron chip")
    device_gib: int
    host_gib: int
    vcpus: int
    architecture: Architecture = Field(default="x86_64", description="of its machine image (images.py)")


class Processor(BaseModel):
    """A socket of a family of instances that have no Neuron chip, and what its memory gives at most."""

    model_config = ConfigDict(frozen=True, extra="forbid")

    name: str
    cores: int
    channels: int = Field(description="of memory")
    megatransfers: int = Field(description="that a channel does a second, of 8 bytes each")
    date: str = Field(description="on which the sources were read")
    source: str
    plan_p50_ms: float | None = Field(default=None, description="a plan's median on one thread, where it was timed")
    plan_source: str = ""

    @property
    def gigabytes_per_second(self) -> float:
        """What the memory of the socket gives at most."""
        return self.channels * self.megatransfers * 8 * 1e-3


class Catalogue(BaseModel):
    """Every known instance type, and the source of its numbers."""

    model_config = ConfigDict(frozen=True, extra="forbid")

    source: str
    date: str
    tensor_parallel: dict[Chip, tuple[int, ...]]
    cores_per_chip: dict[Chip, int] = Field(description="logical NeuronCores: on trn2 two physical ones each")
    processors: dict[str, Processor] = Field(description="by the family that an instance type's name begins with")
    cache_nodes: dict[str, float] = Field(description="GiB of memory by ElastiCache's node type")
    types: dict[str, InstanceType]


def processor(kind: str) -> Processor:
    """Return the processor of an instance type without Neuron chips. Raises KeyError for another."""
    return catalogue().processors[kind.partition(".")[0]]


@cache
def catalogue() -> Catalogue:
    return Catalogue.model_validate(json.loads(_CATALOGUE.read_text(encoding="utf-8")))
