"""metrics.json is consistent, and a wrong name is an error where it is written."""

import json
import re
from typing import Any

import pytest
from pydantic import ValidationError

from infra.fleet.metrics import FILE, MetricNameError, Metrics, metrics

# Source: CloudWatch API reference, MetricDatum.
UNITS = {"Count", "Percent", "Milliseconds", "Seconds", "Bytes", "None"}
STATISTIC = re.compile(r"Sum|Average|Minimum|Maximum|p\d{1,2}(\.\d+)?")


def document() -> dict[str, Any]:
    content: dict[str, Any] = json.loads(FILE.read_text(encoding="utf-8"))
    return content


def test_units_and_statistics_are_cloudwatchs() -> None:
    for name, metric in metrics().metrics.items():
        assert metric.unit in UNITS, name
        assert STATISTIC.fullmatch(metric.statistic), name
        assert metric.resolution_seconds in (1, 60), name
        assert metric.description.endswith("."), name


def test_our_own_metrics_are_told_apart_by_fleet_and_cell_and_never_by_replica() -> None:
    """A dimension whose values are many is a bill, and a metric that no alarm can name."""
    for name, metric in metrics().metrics.items():
        if metric.source in ("service", "deploy", "neuron"):
            counted_where_planned = {("Fleet",), ("Fleet", "PlannedIn")}  # wherever a shop reports it
            ours = set(metric.dimensions) - (counted_where_planned if name.startswith("Answers") else set())
            assert all(chosen[:2] == ("Fleet", "Cell") for chosen in ours), name
            assert all(len(chosen) <= 3 for chosen in metric.dimensions), name


def test_the_service_publishes_what_operations_need() -> None:
    published = {name for name, metric in metrics().metrics.items() if metric.source == "service"}

    assert published >= {
        "Latency", "QueueTime", "OutstandingPerReplica", "Admitted", "Shed", "Degraded", "CacheHits", "CacheMisses",
        "TokensPerStep", "ForcedShare", "ReplicaRestarts", "ReplicasInService", "SloGood", "SloBad",
    }  # fmt: skip
    assert ("Fleet", "Cell", "Source") in metrics().metric("Latency").dimensions


def test_every_described_dimension_is_used() -> None:
    used = {name for metric in metrics().metrics.values() for chosen in metric.dimensions for name in chosen}

    assert used == set(metrics().dimensions)


@pytest.mark.parametrize(
    ("name", "dimensions", "complaint"),
    [
        ("SlowGood", None, "no metric 'SlowGood'"),
        ("SloGood", ("Fleet", "Cell", "Source"), "SloGood is published under Fleet/Cell, not Fleet/Cell/Source"),
    ],
)
def test_a_wrong_name_says_what_is_known(name: str, dimensions: tuple[str, ...] | None, complaint: str) -> None:
    with pytest.raises(MetricNameError, match=complaint):
        metrics().metric(name, dimensions)


@pytest.mark.parametrize(
    ("key", "value", "complaint"),
    [("source", "rumour", "source 'rumour' is not one of"), ("dimensions", [["Fleet", "Moon"]], r"\['Moon'\]")],
)
def test_an_inconsistent_file_is_refused(key: str, value: object, complaint: str) -> None:
    broken = document()
    broken["metrics"]["SloGood"][key] = value

    with pytest.raises(ValidationError, match=complaint):
        Metrics.model_validate(broken)
