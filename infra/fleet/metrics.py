"""The metrics of a fleet: names, namespaces, dimensions and units, read from metrics.json beside this file.

The data file is the one source: alarms, dashboard and scaling policies take their names from here, and the service's
emitter ships a copy of the same file (docs/decisions/0008-metric-names.md). A name that the file does not hold is an
error at synth, not an alarm that waits for ever.
"""

from functools import cache
from pathlib import Path
from typing import Self

from pydantic import BaseModel, ConfigDict, Field, model_validator

FILE = Path(__file__).with_name("metrics.json")


class MetricNameError(Exception):
    """A metric, or a set of its dimensions, that metrics.json does not hold. The message is written for operators."""


class Source(BaseModel):
    """The publisher of a metric, and the document that says so."""

    model_config = ConfigDict(frozen=True, extra="forbid")

    namespace: str
    publisher: str
    document: str


class Metric(BaseModel):
    """One metric. Each of its sets of dimensions is a metric of its own to CloudWatch, which never sums over them."""

    model_config = ConfigDict(frozen=True, extra="forbid")

    source: str
    name: str = Field(default="", description="the publisher's name, where two publish metrics of one name")
    unit: str = Field(description="CloudWatch's unit; None where the publisher gives none")
    statistic: str = Field(description="the statistic that makes sense of it: Sum, Average, Minimum, Maximum or pNN")
    dimensions: tuple[tuple[str, ...], ...] = Field(min_length=1)
    values: dict[str, tuple[str, ...]] = Field(
        default={}, description="the values of dimensions that its publisher owns"
    )
    resolution_seconds: int = Field(default=60, description="1 where policies look every 10 seconds")
    description: str


class Metrics(BaseModel):
    """The content of metrics.json, checked for consistency."""

    model_config = ConfigDict(frozen=True, extra="forbid")

    sources: dict[str, Source]
    dimensions: dict[str, str]
    answer_sources: tuple[str, ...]
    properties: dict[str, str]
    metrics: dict[str, Metric]

    @model_validator(mode="after")
    def _names_are_known(self) -> Self:
        for name, metric in self.metrics.items():
            if metric.source not in self.sources:
                raise ValueError(f"{name}: source {metric.source!r} is not one of {', '.join(self.sources)}")
            unknown = {part for chosen in metric.dimensions for part in chosen} - set(self.dimensions)
            if unknown:
                raise ValueError(f"{name}: dimensions {sorted(unknown)} are not described under `dimensions`")
        return self

    def metric(self, name: str, dimensions: tuple[str, ...] | None = None) -> Metric:
        """Return the metric of that name. Raise MetricNameError if it is not published under these dimensions."""
        if name not in self.metrics:
            raise MetricNameError(f"no metric {name!r} in {FILE.name}; known: {', '.join(self.metrics)}")
        metric = self.metrics[name]
        if dimensions is not None and dimensions not in metric.dimensions:
            known = " or ".join("/".join(chosen) for chosen in metric.dimensions)
            raise MetricNameError(f"{name} is published under {known}, not {'/'.join(dimensions)} ({FILE.name})")
        return metric

    def published_name(self, name: str) -> str:
        return self.metric(name).name or name

    def namespace(self, name: str) -> str:
        return self.sources[self.metric(name).source].namespace


@cache
def metrics() -> Metrics:
    return Metrics.model_validate_json(FILE.read_text(encoding="utf-8"))
