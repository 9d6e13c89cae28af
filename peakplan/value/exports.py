"""Export plans and their report to other systems: CloudWatch's metrics, OpenSearch's User Behavior Insights.

A report becomes lines of AWS's embedded metric format (shares are percent; what is not known is left out). Plans go
into `ubi_queries` and events into `ubi_events`, each with an id of its own, so that what is sent again is there once;
ids of shoppers stay the hashes that the files have, and words are there only where the files have them. Source:
opensearch-project/user-behavior-insights, src/main/resources/queries-mapping.json and events-mapping.json.
"""

import gzip
import json
import time
from collections.abc import Iterator, Mapping, Sequence
from datetime import UTC, datetime
from pathlib import Path
from typing import IO, Any

NAMESPACE = "Peakplan/Value"
# What is told of a release and of an arm: the report's name, the metric's, its unit.
_PARTS = (
    ("plans_shown", "PlansShown", "Count"),
    ("without_result", "WithoutResult", "Percent"),
    ("click_in_first_three", "ClickInFirstThree", "Percent"),
    ("cart_in_first_three", "CartInFirstThree", "Percent"),
    ("bought", "Bought", "Percent"),
    ("came_back", "CameBack", "Percent"),
    ("basket", "Basket", "None"),
)
_OVER_TIME = {"fades": -1, "no change known": 0, "grows": 1}


def lines(told: Mapping[str, Any], now: float | None = None) -> list[str]:
    """Return a line for each release and arm, and for each comparison of an experiment."""
    at = int((time.time() if now is None else now) * 1000)
    return [json.dumps(each, separators=(",", ":")) for each in _documents(told, at)]


def _documents(told: Mapping[str, Any], at: int) -> Iterator[dict[str, Any]]:
    for dimension, rows in (("Release", told["releases"]), ("Arm", told["arms"])):
        for row in rows:
            values = {
                f"FirstAnswer{name.upper()}": (row["first_answer_ms"][name], "Milliseconds") for name in ("p50", "p99")
            }
            for key, name, unit in _PARTS:
                value = row[key]
                values[name] = (value * 100 if unit == "Percent" and value is not None else value, unit)
            yield from _document({dimension: row["name"]}, values, at)
    for experiment in told["experiments"]:
        mismatch = {"SampleRatioMismatch": (int(experiment["sample_ratio_mismatch"]), "Count")}
        yield from _document({"Experiment": experiment["name"]}, mismatch, at)
        for compared in experiment["comparisons"]:
            low, high = compared["interval"]
            found = {"Lift": compared["lift"], "LiftLow": low, "LiftHigh": high}
            values = {name: (None if value is None else value * 100, "Percent") for name, value in found.items()}
            values["Novelty"] = (_OVER_TIME[compared["over_time"]], "None")
            values["MoreShoppersNeeded"] = (compared.get("more_shoppers_needed"), "Count")
            who = {"Experiment": experiment["name"], "Arm": compared["arm"], "Measure": compared["measure"]}
            yield from _document(who, values, at)
    for each in told["interleavings"]:
        if "preference" in each:
            low, high = each["interval"]
            found = {"Preference": each["preference"]["mean"], "PreferenceLow": low, "PreferenceHigh": high}
            values = {name: (value * 100, "Percent") for name, value in found.items()}
            values["MoreShoppersNeeded"] = (each.get("more_shoppers_needed"), "Count")
            yield from _document({"Experiment": each["name"], "Team": each["preference"]["for"]}, values, at)


def _document(
    dimensions: Mapping[str, str], values: Mapping[str, tuple[float | None, str]], at: int
) -> Iterator[dict[str, Any]]:
    known = {name: (round(value, 6), unit) for name, (value, unit) in values.items() if value is not None}
    if known:
        metrics = [{"Name": name, "Unit": unit} for name, (_, unit) in known.items()]
        directive = {"Namespace": NAMESPACE, "Dimensions": [list(dimensions)], "Metrics": metrics}
        numbers = {name: value for name, (value, _) in known.items()}
        yield {"_aws": {"Timestamp": at, "CloudWatchMetrics": [directive]}, **dimensions, **numbers}


QUERIES, EVENTS = "ubi_queries", "ubi_events"
APPLICATION = "peakplan"
_OF_PLANS = ("experiment", "arm", "missed", "release", "model", "shop", "source", "mode", "intent", "vertical")
_OURS = {"record", "caller", "time", "event_id", "timestamp"}


def bulk_lines(files: Sequence[Path]) -> Iterator[str]:
    """Yield an action and a document for every plan and event of these files, gzipped or not, as JSON."""
    for path in files:
        with _opened(path) as lines:
            for line in lines:
                record = json.loads(line)
                if record.get("record") == "plan":
                    yield from _pair(QUERIES, f"{record['caller']}/{record['request_id']}", _query(record))
                elif record.get("record") == "event":
                    name = f"{record['caller']}/{record['query_id']}/{record['event_id']}"
                    yield from _pair(EVENTS, name, _event(record))


def _opened(path: Path) -> IO[str]:
    return gzip.open(path, "rt", encoding="utf-8") if path.suffix == ".gz" else path.open(encoding="utf-8")


def _pair(index: str, name: str, document: Mapping[str, Any]) -> tuple[str, str]:
    action = {"index": {"_index": index, "_id": name}}
    return json.dumps(action, ensure_ascii=False), json.dumps(document, ensure_ascii=False, separators=(",", ":"))


def _query(plan: Mapping[str, Any]) -> dict[str, Any]:
    document: dict[str, Any] = {"query_id": plan["request_id"], "timestamp": _utc(plan["time"])}
    document["application"] = APPLICATION
    if "question" in plan:
        document["user_query"] = plan["question"]
    if "client_id" in plan:
        document["client_id"] = plan["client_id"]
    # A map of strings in OpenSearch's own Java.
    document["query_attributes"] = {name: _said(plan[name]) for name in _OF_PLANS if plan.get(name) is not None}
    return document


def _said(value: Any) -> str:
    return value if isinstance(value, str) else json.dumps(value)


def _event(event: Mapping[str, Any]) -> dict[str, Any]:
    document = {name: value for name, value in event.items() if name not in _OURS}
    return {"application": APPLICATION, **document, "timestamp": _utc(event.get("timestamp") or event["time"])}


def _utc(given: str | float) -> str:
    """Return a time as `strict_date_time` has it; what a shop gave without a zone is read as UTC."""
    at = datetime.fromisoformat(given) if isinstance(given, str) else datetime.fromtimestamp(given, UTC)
    at = at.replace(tzinfo=UTC) if at.tzinfo is None else at.astimezone(UTC)
    return at.isoformat(timespec="milliseconds").replace("+00:00", "Z")
