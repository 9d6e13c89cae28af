"""CloudWatch's evaluation of an alarm as AWS documents it, on alarms as they were synthesised.

Knows metric math, M of N, the four treatments of missing data, and points that arrive late; knows nothing of fleets.
Sources, all of the Amazon CloudWatch user guide: Using Amazon CloudWatch alarms (evaluation, missing data and its two
tables, avoiding premature transitions), Use metric math (FILL and its warning for alarms on late metrics).
"""

from __future__ import annotations

import ast
import re
from collections import defaultdict
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Literal

State = Literal["OK", "ALARM", "INSUFFICIENT_DATA"]
Missing = Literal["breaching", "notBreaching", "ignore", "missing"]
Value = float | None  # None: missing

# CloudWatch looks at more periods than it evaluates; the tables of its guide show two more.
EXTRA_PERIODS = 2


def next_state(points: Sequence[bool | None], periods: int, breaching: int, missing: Missing, before: State) -> State:
    """Return the state of an alarm for its evaluation range.

    Args:
        points: whether each period breaches, oldest first; None where there is no data.
        periods: N, how many points are evaluated.
        breaching: M, how many of them must breach.
        missing: what a missing point counts as, where fewer than N are there.
        before: the state until now.
    """
    real = [point for point in points if point is not None]
    if len(real) >= periods:
        return "ALARM" if sum(real[-periods:]) >= breaching else "OK"
    if not real:
        none: dict[Missing, State] = {
            "breaching": "ALARM",
            "notBreaching": "OK",
            "ignore": before,
            "missing": "INSUFFICIENT_DATA",
        }
        return none[missing]
    filled = periods - len(real) if missing == "breaching" else 0
    if sum(real) + filled >= breaching:
        return "ALARM"
    if missing in ("missing", "ignore") and all(real):
        # "Premature": nothing but breaches is known, and the oldest is as old as M periods.
        oldest = next(age for age, point in enumerate(points) if point is not None)
        if len(points) - oldest >= breaching:
            return before if missing == "ignore" else "ALARM"
    return "OK"


def compute(expression: str, values: Mapping[str, Value]) -> Value:
    """Compute metric math over one period's values. Missing operands make it missing, unless FILL replaces them.

    Raises ValueError for anything outside this subset: numbers, names, + - * /, comparisons, AND, OR, IF, FILL.
    """
    python = re.sub(r"\bAND\b", "and", re.sub(r"\bOR\b", "or", expression))
    return _compute(ast.parse(python, mode="eval").body, values)


_BINARY: dict[type[ast.operator], Callable[[float, float], float]] = {
    ast.Add: lambda a, b: a + b,
    ast.Sub: lambda a, b: a - b,
    ast.Mult: lambda a, b: a * b,
    ast.Div: lambda a, b: a / b,
}
_COMPARE: dict[type[ast.cmpop], Callable[[float, float], bool]] = {
    ast.Gt: lambda a, b: a > b,
    ast.GtE: lambda a, b: a >= b,
    ast.Lt: lambda a, b: a < b,
    ast.LtE: lambda a, b: a <= b,
    ast.Eq: lambda a, b: a == b,
}


def _compute(node: ast.expr, values: Mapping[str, Value]) -> Value:
    if isinstance(node, ast.Constant) and isinstance(node.value, int | float):
        return float(node.value)
    if isinstance(node, ast.Name):
        return values[node.id]
    if isinstance(node, ast.BinOp):
        left, right = _compute(node.left, values), _compute(node.right, values)
        if left is None or right is None or (isinstance(node.op, ast.Div) and right == 0):
            return None
        return _BINARY[type(node.op)](left, right)
    if isinstance(node, ast.Compare) and len(node.ops) == 1:
        left, right = _compute(node.left, values), _compute(node.comparators[0], values)
        return None if left is None or right is None else float(_COMPARE[type(node.ops[0])](left, right))
    if isinstance(node, ast.BoolOp):
        parts = [_compute(each, values) for each in node.values]
        if any(part is None for part in parts):
            return None
        return float(all(parts) if isinstance(node.op, ast.And) else any(parts))
    if isinstance(node, ast.Call) and isinstance(node.func, ast.Name):
        return _call(node.func.id, node.args, values)
    raise ValueError(f"metric math that is not known here: {ast.unparse(node)}")


def _call(name: str, arguments: Sequence[ast.expr], values: Mapping[str, Value]) -> Value:
    if name == "IF":
        condition, then, otherwise = arguments
        chosen = _compute(condition, values)
        return None if chosen is None else _compute(then if chosen else otherwise, values)
    if name == "FILL":
        value = _compute(arguments[0], values)
        return _compute(arguments[1], values) if value is None else value
    raise ValueError(f"a function of metric math that is not known here: {name}")


@dataclass(frozen=True)
class Point:
    """One value of a metric: when it was true, and when CloudWatch has it (seconds)."""

    time: float
    value: float
    arrives: float


@dataclass
class MetricStore:
    """Points by metric name, those that have arrived."""

    points: dict[str, list[Point]] = field(default_factory=lambda: defaultdict(list))

    def put(self, metric: str, time: float, value: float, delay: float = 0.0) -> None:
        """Add a value of `time` that arrives `delay` seconds later."""
        self.points[metric].append(Point(time, value, time + delay))

    def statistic(self, metric: str, name: str, begins: float, seconds: float, now: float) -> Value:
        """Return Sum, Average, Minimum, Maximum or pNN of a period, from the points that arrived by `now`."""
        found = sorted(
            point.value
            for point in self.points[metric]
            if begins <= point.time < begins + seconds and point.arrives <= now
        )
        if not found:
            return None
        if name.startswith("p"):
            return found[min(len(found) - 1, int(float(name[1:]) / 100 * len(found)))]
        known = {"Sum": sum(found), "Minimum": found[0], "Maximum": found[-1], "Average": sum(found) / len(found)}
        return float(known[name])


@dataclass
class SynthesisedAlarm:
    """An AWS::CloudWatch::Alarm of a template, evaluated over time against a store of metrics."""

    properties: Mapping[str, Any]
    state: State = "INSUFFICIENT_DATA"

    @property
    def period(self) -> int:
        """The period in seconds; metric math requires the same one for all metrics."""
        (period,) = {query["MetricStat"]["Period"] for query in self.properties["Metrics"] if "MetricStat" in query}
        return int(period)

    def value(self, store: MetricStore, begins: float, now: float) -> Value:
        """Return the value that the alarm compares with its threshold for the period that begins then."""
        values: dict[str, Value] = {}
        queries = self.properties["Metrics"]
        for query in queries:
            if "MetricStat" in query:
                stat = query["MetricStat"]
                name = str(stat["Metric"]["MetricName"])
                values[query["Id"]] = store.statistic(name, stat["Stat"], begins, self.period, now)
        for query in queries:
            if "Expression" in query:
                values[query["Id"]] = compute(query["Expression"], values)
        (returned,) = (query["Id"] for query in queries if query.get("ReturnData", True))
        return values[returned]

    def evaluate(self, store: MetricStore, now: float) -> State:
        """Return the state at `now`, a multiple of the period: complete periods count, where their data is there."""
        periods = int(self.properties["EvaluationPeriods"])
        breaching = int(self.properties.get("DatapointsToAlarm", periods))
        compare = _COMPARE[ast.GtE if "OrEqual" in self.properties["ComparisonOperator"] else ast.Gt]
        points: list[bool | None] = []
        for back in range(periods + EXTRA_PERIODS, 0, -1):
            value = self.value(store, now - back * self.period, now)
            points.append(None if value is None else compare(value, float(self.properties["Threshold"])))
        missing = self.properties.get("TreatMissingData", "missing")
        self.state = next_state(points, periods, breaching, missing, self.state)
        return self.state
