"""The runbooks' queries ask for fields that the hosts really write: no empty table at night.

test_runbooks_run.py types their commands. Neuron's fields are those of the CloudWatch agent's EMF, labels beside
values, and of neuron-monitor-prometheus.py's labels; the service's own code makes the others. Not run in an account.
"""

import json
import logging
import re
from functools import cache
from pathlib import Path
from typing import Any

import pytest

from infra.fleet.metrics import metrics
from service.api.observation import Observer
from service.telemetry.logs import JsonFormatter
from service.telemetry.metrics import EmfCollector, Metrics, Outcome, Reading

RUNBOOKS = sorted(Path("docs/runbooks").glob("*.md"))


def test_on_call_finds_every_reason_of_a_plan_by_the_reader() -> None:
    runbook = Path("docs/runbooks/degraded-share.md").read_text(encoding="utf-8")

    told = re.findall(r"^\| `(\w+)` \|", runbook, re.MULTILINE)
    assert sorted(told) == sorted(metrics().metric("Fallbacks").values["Reason"])


SYSTEM_FIELDS = {"@logStream", "@timestamp", "@message", "@log", "@ingestionTime"}
LANGUAGE = set(
    "filter stats sort limit fields by as desc asc and or not like in ispresent sum pct count avg max min".split()
)
# Labels of every metric of neuron-monitor-prometheus.py, and of its hardware counters.
NEURON_LABELS = set("instance_id instance_type availability_zone runtime_tag neuroncore neuron_device_index".split())


def queries(text: str) -> list[str]:
    """The Logs Insights queries of a runbook."""
    return re.findall(r"--query-string\s*\\?\s*'([^']*)'", text)


def filter_fields(text: str) -> set[str]:
    """The fields of its JSON filter patterns."""
    return {
        field
        for pattern in re.findall(r"--filter-pattern '\{(.*?)\}'", text)
        for field in re.findall(r"\$\.(\w+)", pattern)
    }


def fields(query: str) -> set[str]:
    """The names in a query that are not the language's own, a value, or a name that the query itself gives."""
    bare = re.sub(r'"[^"]*"|/[^/]*/', " ", query)
    given = set(re.findall(r"\bas (\w+)", bare))
    return set(re.findall(r"@?[A-Za-z_]\w*", bare)) - LANGUAGE - given


@cache
def emf_events() -> tuple[dict[str, Any], ...]:
    """What the service writes of two requests: values that are counted are numbers, all others lists."""
    collecting = Metrics(
        lambda: Reading(totals={"CacheHits": 1, "ReplicaRestarts": 1}, replicas=1, model_version="m"),
        300,
        EmfCollector({"Fleet": "dev", "Cell": "cell-1", "Group": "inf2"}),
    )
    for milliseconds in (10.0, 400.0):
        collecting.arrived()
        collecting.planned(
            Outcome(source="model", milliseconds=milliseconds, degraded=True, queue_milliseconds=milliseconds)
        )
    collecting.shed()
    return tuple(json.loads(line) for line in collecting.lines())


class Keeping(logging.Handler):
    """Keeps records as they come."""

    def __init__(self) -> None:
        super().__init__()
        self.records: list[logging.LogRecord] = []

    def emit(self, record: logging.LogRecord) -> None:
        self.records.append(record)


@cache
def log_events() -> tuple[dict[str, Any], ...]:
    """What the service logs of a request, and of an error."""
    handler = Keeping()
    api = logging.getLogger("service.api")
    level = api.level
    api.addHandler(handler)
    api.setLevel(logging.INFO)
    try:
        state = {"request_id": "r", "route": "/plan", "log": {}}
        scope = {"type": "http", "method": "POST", "path": "/plan", "state": state}
        Observer(Metrics(Reading, 300)).ended(scope, 200, 0.05)
        api.error("a request failed", extra={"exception": "routes.py:1 plan > ValueError"})
    finally:
        api.removeHandler(handler)
        api.setLevel(level)
    return tuple(json.loads(JsonFormatter().format(record)) for record in handler.records)


def written() -> set[str]:
    """Every field that holds one value queries can compute with: of a list, Logs Insights makes Latency.0 and so on."""
    own = {
        name
        for event in (*emf_events(), *log_events())
        for name, value in event.items()
        if not isinstance(value, list | dict)
    }
    neuron = {name: metric for name, metric in metrics().metrics.items() if metric.source == "neuron"}
    labels = {label for metric in neuron.values() for label in metric.values}
    return own | set(neuron) | labels | NEURON_LABELS | SYSTEM_FIELDS


@pytest.mark.parametrize("path", RUNBOOKS, ids=lambda path: path.stem)
def test_every_field_of_every_query_is_written(path: Path) -> None:
    text = path.read_text(encoding="utf-8")
    for query in queries(text):
        assert fields(query) <= written(), query
    assert filter_fields(text) <= {name for event in log_events() for name in event}


@pytest.mark.parametrize("path", RUNBOOKS, ids=lambda path: path.stem)
def test_every_text_that_a_query_compares_with_occurs(path: Path) -> None:
    values: dict[str, set[str]] = {}
    for event in log_events():
        for name, value in event.items():
            values.setdefault(name, set()).add(str(value))
    for metric in metrics().metrics.values():
        for name, known in metric.values.items():
            values.setdefault(name, set()).update(known)
    text = path.read_text(encoding="utf-8")
    compared = [pair for query in queries(text) for pair in re.findall(r'(\w+) = "([^"]*)"', query)]
    compared += re.findall(r'\$\.(\w+) = "([^"]*)"', text)
    for name, value in compared:
        assert value in values[name], f"{name} is never {value!r}"


def test_queries_are_found_and_a_dreamt_field_is_seen() -> None:
    assert sum(len(queries(path.read_text(encoding="utf-8"))) for path in RUNBOOKS) >= 3
    assert fields(
        'filter Latency > 0 and kind = "x y" | stats pct(Latency, 99) as p99 by @logStream | sort p99 desc'
    ) == {"Latency", "kind", "@logStream"}
    assert "Latency" not in written(), "a list"
    assert {"SloBad", "milliseconds", "event", "@logStream"} <= written()


def test_the_properties_of_the_list_are_those_that_the_service_writes() -> None:
    known = set(metrics().metrics) | set(metrics().dimensions) | {"_aws"}
    assert {name for event in emf_events() for name in event} - known == set(metrics().properties)
