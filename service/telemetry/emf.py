"""CloudWatch's embedded metric format: JSON lines that CloudWatch turns into metrics.

Values are collected and written every few seconds, not for each request: under load a line for each request would cost
more than a cached plan. AWS, "Specification: Embedded metric format".
"""

import json
import time
from collections import defaultdict
from collections.abc import Iterator, Mapping
from typing import Any

from service.telemetry.names import MetricName, metric_names, namespace

_MOST_VALUES = 100  # of one metric in one line

Series = dict[str, list[float]]  # values by metric name
Label = tuple[str, str]  # a dimension that belongs to a value, and not to the host: ("Source", "model")


class EmfCollector:
    """Collects values until `lines` returns them: a few lines for each label, and one for what has none."""

    def __init__(self, dimensions: Mapping[str, str]) -> None:
        """Take `dimensions`: Fleet, Cell and, where there are, Group and Release; sets that need more are left out."""
        self._dimensions = {name: value for name, value in dimensions.items() if value}
        self._series: dict[Label | None, Series] = defaultdict(lambda: defaultdict(list))

    def add(self, name: str, value: float, label: Label | None = None) -> None:
        """Record one value. Raises KeyError for a metric that the fleet's list does not contain."""
        self._series[label][metric_names()[name].name].append(round(value, 3))

    def lines(self, properties: Mapping[str, str] | None = None) -> list[str]:
        """Return the lines collected since the last call. `properties` are in every line; they are no dimensions."""
        collected, self._series = self._series, defaultdict(lambda: defaultdict(list))
        now = int(time.time() * 1000)
        return [
            json.dumps(self._document(now, label, piece, properties or {}), separators=(",", ":"))
            for label, series in collected.items()
            for piece in _pieces(_sums(series))
        ]

    def _document(
        self, now: int, label: Label | None, series: Series, properties: Mapping[str, str]
    ) -> dict[str, object]:
        known = self._dimensions | dict([label] if label else [])
        directives = []
        by_sets: dict[tuple[tuple[str, ...], ...], list[MetricName]] = defaultdict(list)
        for name in series:
            metric = metric_names()[name]
            by_sets[tuple(chosen for chosen in metric.dimensions if set(chosen) <= set(known))].append(metric)
        for sets, metrics in by_sets.items():
            definitions = [_definition(metric) for metric in metrics]
            directives.append({"Namespace": namespace(), "Dimensions": sets, "Metrics": definitions})
        values = {name: numbers[0] if len(numbers) == 1 else numbers for name, numbers in series.items()}
        return {"_aws": {"Timestamp": now, "CloudWatchMetrics": directives}, **known, **properties, **values}


def _definition(metric: MetricName) -> dict[str, Any]:
    high = {"StorageResolution": 1} if metric.resolution == 1 else {}
    return {"Name": metric.name, "Unit": metric.unit, **high}


def _sums(series: Series) -> Series:
    """Reduce counts to their sum; of times and shares every value is kept for the percentiles."""
    return {
        name: [sum(values)] if metric_names()[name].statistic == "Sum" else values for name, values in series.items()
    }


def _pieces(series: Series) -> Iterator[Series]:
    """Cut series into lines with no more values than a line may hold."""
    longest = max((len(values) for values in series.values()), default=0)
    for start in range(0, longest, _MOST_VALUES):
        yield {name: piece for name, values in series.items() if (piece := values[start : start + _MOST_VALUES])}
