"""Metric math in moto's GetMetricData, as far as a rollout asks it (infra/fleet/release_arms.py).

moto knows of an expression only one that is another query's id, and returns what was not to be returned. A series is
its values by time. As in CloudWatch, FILL fills what has any value at all, what has no value at a time has none after
arithmetic, and a division by zero has none either; SUM of several series takes what is there.
"""

import math
from collections.abc import Callable, Sequence
from datetime import datetime
from typing import Any

from moto.cloudwatch.models import CloudWatchBackend

Series = dict[datetime, float]


def compute_metric_math() -> None:
    """Have moto's server compute expressions."""
    bare = CloudWatchBackend.get_metric_data

    def get_metric_data(
        self: CloudWatchBackend,
        queries: list[dict[str, Any]],
        start_time: datetime,
        end_time: datetime,
        scan_by: str = "TimestampAscending",
    ) -> list[dict[str, Any]]:
        stats = [query | {"ReturnData": True} for query in queries if "MetricStat" in query]
        read = bare(self, stats, start_time, end_time, scan_by)
        known = {each["id"]: dict(zip(each["timestamps"], map(float, each["values"]), strict=True)) for each in read}
        times = sorted({time for series in known.values() for time in series})
        for query in queries:
            if "Expression" in query:
                known[query["Id"]] = computed(query["Expression"], known, times)
        newest_first = scan_by == "TimestampDescending"
        return [
            {
                "id": query["Id"],
                "label": query["Id"],
                "timestamps": sorted(known[query["Id"]], reverse=newest_first),
                "values": [known[query["Id"]][time] for time in sorted(known[query["Id"]], reverse=newest_first)],
                "status_code": "Complete",
            }
            for query in queries
            if query.get("ReturnData", True)
        ]

    CloudWatchBackend.get_metric_data = get_metric_data


def computed(expression: str, known: dict[str, Series], times: Sequence[datetime]) -> Series:
    """Return the series of an expression over others."""

    def fill(series: Series, value: float) -> Series:
        return {time: series.get(time, value) for time in times} if series else {}

    def running(series: Series) -> Series:
        total = 0.0
        return {time: (total := total + series[time]) for time in sorted(series)}

    functions: dict[str, Callable[..., Any]] = {"FILL": fill, "RUNNING_SUM": running, "SUM": _sum}
    if any(f"{name}(" in expression for name in functions):
        times_zero = expression.endswith(" * 0")
        made: Series = eval(expression.removesuffix(" * 0"), {**functions, **known})
        return dict.fromkeys(made, 0.0) if times_zero else made
    return {time: value for time in times if (value := at_once(expression, known, time)) is not None}


def at_once(expression: str, known: dict[str, Series], time: datetime) -> float | None:
    """Return what arithmetic gives at a time; None where it gives nothing."""
    values = {name: series[time] for name, series in known.items() if time in series}
    python = expression.replace(" AND ", " and ").replace("IF(", "choose(")
    functions = {"choose": lambda condition, then, other: then if condition else other, "LOG": math.log}
    try:
        return float(eval(python, {**functions, **values}))
    except (NameError, ZeroDivisionError, ValueError):
        return None


def _sum(series: Sequence[Series]) -> Series:
    return {time: sum(each[time] for each in series if time in each) for each in series for time in each}
