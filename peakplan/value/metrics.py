"""The report as CloudWatch metrics: lines of the embedded metric format, which the CloudWatch agent or Lambda ships.

AWS, "Specification: Embedded metric format". Shares are percent; what is not known is left out.
"""

import json
import time
from collections.abc import Iterator, Mapping
from typing import Any

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
