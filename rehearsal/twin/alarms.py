"""Which of the fleet's alarms would fire in a course, when, and whom they tell, by CloudWatch's own rules."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from infra.fleet.alarm_kinds import Alarm, CompositeAlarm, MetricAlarm, Reading, Severity
from infra.fleet.alarms import cell_alarms
from infra.fleet.settings import FleetSettings
from rehearsal.cloudwatch import EXTRA_PERIODS, Value, compute, next_state
from rehearsal.twin.scenarios import Course, Scenario
from rehearsal.twin.simulation import SILENT_SECONDS, TELEMETRY_SECONDS

_MINUTE = 60
_WINDOWS = 6  # of ten seconds in a minute
BEFORE = 6 * 60  # minutes of calm that are taken to lie before the course, for the longest windows
# Metrics that hosts report; the others are the balancer's and Auto Scaling's.
OF_STAND_INS = "ReplicaSeconds of groups that stand in"
_OF_HOSTS = (
    "SloGood", "SloBad", "Degraded", "Shed", "Requests", "OfferedWork", "ReplicaSeconds", OF_STAND_INS,
    "SharedCacheDown",
)  # fmt: skip


@dataclass(frozen=True)
class Fired:
    """An alarm that went off: seconds from the beginning of the course, and from the fault where there is one."""

    key: str
    severity: Severity
    at: float
    after_fault: float | None
    tells: str


def fired(course: Course, scenario: Scenario, settings: FleetSettings) -> list[Fired]:
    """Return the alarms that page somebody or write a ticket, in the order in which they go off, each once."""
    states = states_of(_minutes(course, scenario), settings)
    found = []
    for alarm in cell_alarms(settings):
        if alarm.severity is Severity.PART or True not in states[alarm.key]:
            continue
        at = (states[alarm.key].index(True) + 1) * _MINUTE + TELEMETRY_SECONDS
        since = None if course.fault is None else at - course.fault
        tells = settings.on_call.page if alarm.severity is Severity.PAGE else settings.on_call.ticket
        found.append(Fired(alarm.key, alarm.severity, at, since, tells))
    return sorted(found, key=lambda each: (each.at, each.key))


def states_of(minutes: dict[str, list[Value]], settings: FleetSettings) -> dict[str, list[bool]]:
    """Return for each alarm whether it is in ALARM at the end of each minute that follows the first BEFORE ones."""
    count = len(next(iter(minutes.values()))) - BEFORE
    states: dict[str, list[bool]] = {}
    for alarm in cell_alarms(settings):
        states[alarm.key] = _states(alarm, minutes, count, states)
    return states


def _states(alarm: Alarm, minutes: dict[str, list[Value]], count: int, known: dict[str, list[bool]]) -> list[bool]:
    """Return whether the alarm is in ALARM at the end of each minute of the course."""
    if isinstance(alarm, CompositeAlarm):
        return [
            all(known[key][minute] for key in alarm.all_of)
            and (not alarm.any_of or any(known[key][minute] for key in alarm.any_of))
            and not any(known[key][minute] for key in alarm.none_of)
            and not (alarm.suppressed_by and known[alarm.suppressed_by][minute])
            for minute in range(count)
        ]
    span, states, state = alarm.period_seconds // _MINUTE, [], "OK"
    values: dict[int, Value] = {}
    for minute in range(count):
        points: list[bool | None] = []
        for back in range(alarm.periods + EXTRA_PERIODS - 1, -1, -1):
            end = BEFORE + minute + 1 - back * span
            if end not in values:
                values[end] = _value(alarm, minutes, max(end - span, 0), max(end, 1))
            value = values[end]
            points.append(None if value is None else _breaches(alarm, value))
        state = next_state(points, alarm.periods, alarm.breaching, alarm.missing, state)  # type: ignore[arg-type]
        states.append(state == "ALARM")
    return states


def _breaches(alarm: MetricAlarm, value: float) -> bool:
    return value > alarm.line if alarm.comparison == "GreaterThanThreshold" else value >= alarm.line


def _value(alarm: MetricAlarm, minutes: dict[str, list[Value]], begin: int, end: int) -> Value:
    readings = {name: _statistic(reading, minutes, begin, end) for name, reading in alarm.readings.items()}
    return compute(alarm.expression, readings)


def _statistic(reading: Reading, minutes: dict[str, list[Value]], begin: int, end: int) -> Value:
    """Return the reading's statistic over the minutes; metrics that the twin does not know are 0."""
    known = minutes.get(_named(reading))
    values = [0.0] if known is None else [value for value in known[begin:end] if value is not None]
    if not values:
        return 0.0 if reading.none_is_zero else None
    statistic = reading.asked or reading.statistic
    return sum(values) if statistic == "Sum" else sum(values) / len(values) if statistic == "Average" else max(values)


def _named(reading: Reading) -> str:
    """Return the name of a reading here: what one group alone reports has a name of its own."""
    return OF_STAND_INS if ("Group" in dict(reading.fixed)) else reading.metric


def _minutes(course: Course, scenario: Scenario) -> dict[str, list[Value]]:
    """Return each metric by minute, after `BEFORE` minutes like the course's first one."""
    count = max(len(course.values) // _WINDOWS, 1)

    def summed(name: str) -> np.ndarray:
        sums: np.ndarray = course.column(name)[: count * _WINDOWS].reshape(count, -1).sum(axis=1)
        return sums

    def last(name: str) -> np.ndarray:
        return course.column(name)[: count * _WINDOWS].reshape(count, -1)[:, -1]

    refused = scenario.fault in ("refuse", "fail-fast")  # 502; a client that gives up is the balancer's 460
    healthy, in_service = last("healthy"), last("in_service")
    found = {
        "SloGood": summed("answered"),
        "SloBad": np.zeros(count),
        "Degraded": summed("degraded"),
        "Shed": summed("reported_shed"),
        "Requests": summed("answered") + summed("reported_shed"),
        "RequestCount": summed("requests"),
        "HTTPCode_ELB_5XX_Count": summed("failed") * refused,
        "OfferedWork": summed("offered"),
        "ReplicaSeconds": summed("replica_seconds"),
        OF_STAND_INS: summed("stand_in_seconds"),
        "TargetResponseTime": course.column("p99_ms")[: count * _WINDOWS].reshape(count, -1).max(axis=1) / 1000,
        "HealthyHostCount": healthy,
        "UnHealthyHostCount": np.maximum(in_service - healthy, 0),
        "GroupDesiredCapacity": last("desired"),
        "GroupInServiceInstances": in_service,
        "FrontHealthyHostCount": (healthy > 0).astype(float),
        "SharedCacheDown": _since(course, count) * (scenario.fault == "lost-cache"),
        "TargetErrorCount": np.ones(count) * (scenario.fault == "lost-reservation"),  # tried again until the event
        # The canary's plan fares as most of the minute's do.
        "SuccessPercent": 100.0 * (summed("answered") - summed("degraded") >= 0.5 * summed("requests")),
        "DeployInProgress": _since(course, count) * scenario.fault.endswith("release"),
    }
    lists: dict[str, list[Value]] = {}
    for name, values in found.items():
        lists[name] = [*[float(values[0])] * BEFORE, *map(float, values)]
    if scenario.fault == "silence" and course.fault is not None:
        begin = BEFORE + int(course.fault // _MINUTE)
        for name in _OF_HOSTS:
            silent = range(begin, min(begin + SILENT_SECONDS // _MINUTE, len(lists[name])))
            lists[name] = [None if index in silent else value for index, value in enumerate(lists[name])]
    return lists


def _since(course: Course, count: int) -> np.ndarray:
    fault = np.inf if course.fault is None else course.fault
    return (np.arange(1, count + 1) * _MINUTE > fault).astype(float)
