"""The metrics that the service publishes, read from metrics.json beside this file: a copy of the fleet's own list.

The fleet's alarms and policies wait for exactly these names, so nothing is published that the file does not hold.
"""

import json
from dataclasses import dataclass, field
from functools import cache
from pathlib import Path
from typing import Any, Literal

FILE = Path(__file__).with_name("metrics.json")
_SOURCE = "service"

# Why the reader's plan stands in: the model needs longer than the deadline leaves, the load exceeds what all replicas
# can do, the model cannot read or write so much, no replica is up or gave a valid answer, or our own code failed at
# this question. Answers and metrics say it in the same words; the fleet's list names them under Fallbacks.
DegradedReason = Literal["deadline", "capacity", "too_long", "engine", "fault"]


@dataclass(frozen=True, slots=True)
class MetricName:
    """One metric: its name, CloudWatch's unit and statistic, its sets of dimensions, its resolution in seconds."""

    name: str
    unit: str
    statistic: str
    dimensions: tuple[tuple[str, ...], ...]
    resolution: int
    description: str
    values: dict[str, tuple[str, ...]] = field(default_factory=dict)  # of dimensions that the service owns


@cache
def namespace() -> str:
    return str(_document()["sources"][_SOURCE]["namespace"])


@cache
def metric_names() -> dict[str, MetricName]:
    return {
        name: MetricName(
            name=name,
            unit=metric["unit"],
            statistic=metric["statistic"],
            dimensions=tuple(map(tuple, metric["dimensions"])),
            resolution=metric.get("resolution_seconds", 60),
            description=metric["description"],
            values={name: tuple(known) for name, known in metric.get("values", {}).items()},
        )
        for name, metric in _document()["metrics"].items()
        if metric["source"] == _SOURCE
    }


@cache
def answer_sources() -> tuple[str, ...]:
    """Return what may answer a request (the `source` of its answer), best first."""
    return tuple(_document()["answer_sources"])


@cache
def _document() -> dict[str, Any]:
    document: dict[str, Any] = json.loads(FILE.read_text(encoding="utf-8"))
    return document
