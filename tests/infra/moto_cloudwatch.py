"""CloudWatch in the emulator: metric math, and composite alarms that follow their children.

moto knows of an expression only one that is another query's id, and returns what was not to be returned. A series is
its values by time. As in CloudWatch, FILL fills what has any value at all, what has no value at a time has none after
arithmetic, and a division by zero has none either; SUM of several series takes what is there.

moto stores composites' rules and no more. As AWS documents it (PutCompositeAlarm), a rule is evaluated when a child
changes its state, so that a composite which was set by hand stays as it is until then. While its suppressor is in ALARM
it changes state and sends no notification; the wait before that is left out.
"""

import ast
import json
import math
import re
from collections.abc import Callable, Sequence
from datetime import datetime
from typing import Any

from moto.cloudwatch.models import CloudWatchBackend
from moto.sns.models import sns_backends

from tests.infra.moto_forwarding import instead

Series = dict[datetime, float]


@instead(CloudWatchBackend, "get_metric_data")
def _get_metric_data(
    bare: Any, self: Any, queries: list[dict[str, Any]], start_time: datetime, end_time: datetime,
    scan_by: str = "TimestampAscending",
) -> list[dict[str, Any]]:  # fmt: skip
    stats = [query | {"ReturnData": True} for query in queries if "MetricStat" in query]
    read = bare(self, stats, start_time, end_time, scan_by)
    known = {each["id"]: dict(zip(each["timestamps"], map(float, each["values"]), strict=True)) for each in read}
    times = sorted({time for series in known.values() for time in series})
    for query in queries:
        if "Expression" in query:
            known[query["Id"]] = computed(query["Expression"], known, times)
    newest_first, found = scan_by == "TimestampDescending", []
    for name in (query["Id"] for query in queries if query.get("ReturnData", True)):
        ordered = sorted(known[name], reverse=newest_first)
        values = [known[name][time] for time in ordered]
        found.append({"id": name, "label": name, "timestamps": ordered, "values": values, "status_code": "Complete"})
    return found


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


def _fires(rule: str, states: dict[str, str]) -> bool:
    """Return what a rule over other alarms says: ALARM(...) and OK(...) with AND, OR, NOT and brackets."""

    def state(found: re.Match[str]) -> str:
        wanted, name = found.groups()
        return str(states.get(name.rpartition(":alarm:")[2]) == wanted)

    said = re.sub(r'(ALARM|OK|INSUFFICIENT_DATA)\("?([^")]+)"?\)', state, rule)
    for word in ("AND", "OR", "NOT"):
        said = re.sub(rf"\b{word}\b", word.lower(), said)
    tree = ast.parse(said.replace("TRUE", "True").replace("FALSE", "False"), mode="eval")
    allowed = (ast.Expression, ast.BoolOp, ast.UnaryOp, ast.And, ast.Or, ast.Not, ast.Constant)
    assert all(isinstance(node, allowed) for node in ast.walk(tree)), said
    return bool(eval(compile(tree, "rule", "eval")))  # nothing but truth values is left


def _follow(backend: CloudWatchBackend) -> None:
    alarms = backend.alarms
    composites = [alarm for alarm in alarms.values() if alarm.rule is not None]
    for _ in composites:  # a composite may be another's child
        for composite in composites:
            states = {name: alarm.state_value for name, alarm in alarms.items()}
            now = "ALARM" if _fires(str(composite.rule), states) else "OK"
            if now != composite.state_value:
                composite.update_state(f"its rule is {now}", "{}", now)
                _tell(backend, composite, now, states)


def _tell(backend: CloudWatchBackend, composite: Any, state: str, states: dict[str, str]) -> None:
    suppressor = str(getattr(composite, "ActionsSuppressor", None) or "").rpartition(":alarm:")[2]
    if states.get(suppressor) == "ALARM":
        return
    topics = sns_backends[backend.account_id][backend.region_name]
    for topic in composite.alarm_actions if state == "ALARM" else composite.ok_actions:
        said = {"AlarmName": composite.name, "NewStateValue": state, "AlarmDescription": composite.description}
        topics.publish(message=json.dumps(said), arn=topic)


@instead(CloudWatchBackend, "set_alarm_state")
def _changed(set_state: Any, self: Any, alarm_name: str, reason: str, reason_data: str, state_value: str) -> None:
    set_state(self, alarm_name, reason, reason_data, state_value)
    if self.alarms[alarm_name].rule is None:  # a composite that was set by hand waits for its children
        _follow(self)
