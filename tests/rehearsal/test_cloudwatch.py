"""CloudWatch's evaluation as its guide's tables show it, and the fleet's own alarms under late and missing data."""

from typing import Any

import pytest

from rehearsal.cloudwatch import MetricStore, Missing, State, SynthesisedAlarm, compute, next_state
from tests.infra.synthesis import resources, templates

TREATMENTS: tuple[Missing, ...] = ("missing", "ignore", "breaching", "notBreaching")
KEPT: State = "OK"


def points(text: str) -> list[bool | None]:
    return [{"0": False, "X": True, "-": None}[point] for point in text.split()]


@pytest.mark.parametrize(
    ("text", "breaching", "states"),
    [
        # Datapoints to Alarm and Evaluation Periods both 3.
        ("0 - X - X", 3, ["OK", "OK", "OK", "OK"]),
        ("- - - - 0", 3, ["OK", "OK", "OK", "OK"]),
        ("- - - - -", 3, ["INSUFFICIENT_DATA", KEPT, "ALARM", "OK"]),
        ("0 X X - X", 3, ["ALARM", "ALARM", "ALARM", "ALARM"]),
        ("- - X - -", 3, ["ALARM", KEPT, "ALARM", "OK"]),
        # 2 out of 3.
        ("0 - X - X", 2, ["ALARM", "ALARM", "ALARM", "ALARM"]),
        ("0 0 X 0 X", 2, ["ALARM", "ALARM", "ALARM", "ALARM"]),
        ("0 - X - -", 2, ["OK", "OK", "ALARM", "OK"]),
        ("- - - - 0", 2, ["OK", "OK", "ALARM", "OK"]),
        ("- - - X -", 2, ["ALARM", KEPT, "ALARM", "OK"]),
    ],
)
def test_the_tables_of_the_guide(text: str, breaching: int, states: list[State]) -> None:
    assert [next_state(points(text), 3, breaching, missing, KEPT) for missing in TREATMENTS] == states


@pytest.mark.parametrize(
    ("expression", "values", "result"),
    [
        ("IF(a > 1 AND b < 2, 3, 4)", {"a": 2, "b": 1}, 3),
        ("IF(a > 1 OR b < 2, 3, 4)", {"a": 0, "b": 5}, 4),
        ("a / b", {"a": 1, "b": 0}, None),
        ("a + b", {"a": 1, "b": None}, None),
        ("FILL(a, 0) + b", {"a": None, "b": 2}, 2),
        ("100 * (a + b) / 4", {"a": 1, "b": 1}, 50),
    ],
)
def test_metric_math(expression: str, values: dict[str, float | None], result: float | None) -> None:
    assert compute(expression, values) == result
    with pytest.raises(ValueError, match="not known here"):
        compute("ANOMALY_DETECTION_BAND(a)", {"a": 1})


# The scaling alarms as they stand in the template.


def alarms(group: str = "inf2") -> dict[str, dict[str, Any]]:
    """The properties of a group's scaling alarms in prime-day's first cell, by policy."""
    prefix = f"peakplan-prime-day-cell-1-{group}-scale-"
    found = resources(templates("prime-day")["Cell-1"], "AWS::CloudWatch::Alarm").values()
    named = {each["Properties"]["AlarmName"]: each["Properties"] for each in found}
    return {name.removeprefix(prefix): each for name, each in named.items() if name.startswith(prefix)}


HOSTS, MEAN = 36, 0.02


def report(
    store: MetricStore, time: float, work: float, *, delay: float, by_rule: float = 0.0, p99: float = 80
) -> None:
    """What the group's hosts say of the ten seconds before `time`."""
    store.put("OfferedWork", time - 1, work * HOSTS * 10, delay)
    store.put("ReplicaSeconds", time - 1, HOSTS * 10, delay)
    requests = work * HOSTS * 10 / MEAN
    store.put("Requests", time - 1, requests, delay)
    store.put("Degraded", time - 1, by_rule * requests, delay)
    store.put("ModelLatency", time - 1, p99, delay)
    store.put("QueueTime", time - 1, 5, delay)


def course(name: str, work: list[float], *, delay: float = 0, **said: Any) -> list[State]:
    """An alarm's states, every ten seconds, under a course of offered work (None is left out by a negative value)."""
    store, alarm = MetricStore(), SynthesisedAlarm(alarms()[name])
    states = []
    for number, now in enumerate(range(10, 10 * len(work) + 1, 10)):
        if work[number] >= 0:
            report(store, now, work[number], delay=delay, **said)
        if now % alarm.period == 0:
            states.append(alarm.evaluate(store, now))
    return states


pytestmark = pytest.mark.slow  # a fleet through Node, once


def test_no_scaling_alarm_fills_in_what_is_missing_or_needs_every_point() -> None:
    found = alarms()
    assert {"surge-1", "surge-5", "pressed", "latency", "queue", "by-rule", "removal"} <= set(found)
    for name, alarm in found.items():
        text = " ".join(query.get("Expression", "") for query in alarm["Metrics"])
        assert "FILL" not in text, name
        if name == "removal":
            assert alarm["TreatMissingData"] == "notBreaching", "calm is its alarm: silence must not be"
        else:
            assert alarm["DatapointsToAlarm"] < alarm["EvaluationPeriods"], name
            assert alarm["TreatMissingData"] == "missing", name
            seconds = 60 if name.startswith("refresh-stop-") else 10
            assert {query["MetricStat"]["Period"] for query in alarm["Metrics"] if "MetricStat" in query} == {seconds}


CALM = [0.3] * 6


@pytest.mark.parametrize(
    ("name", "work", "said", "first", "last"),
    [
        *(
            ("surge-3", CALM + [2.0] * 8, {"delay": delay}, 6, 13) for delay in (0, 5, 15, 25)
        ),  # however late its data is
        ("surge-1", [0.3, 0.3, 1.0, -1, 1.0, 1.0, -1, 1.0, 1.0], {}, 0, 4),  # a lost point delays nothing for long
        ("surge-1", [0.3] * 5 + [1.2] + [0.3] * 10, {}, None, None),  # one odd reading is no surge
        ("pressed", [0.55] * 10, {"p99": 80}, None, None),
        ("pressed", [0.55] * 10, {"p99": 190}, 0, 9),
        ("latency", [0.3] * 10, {"p99": 260}, 0, 9),
        ("by-rule", [0.5] * 6, {"by_rule": 0.005, "delay": 15}, None, None),
        ("by-rule", [0.5] * 6, {"by_rule": 0.02}, 0, 2),
        ("by-rule", [0.5] * 6, {"by_rule": 0.02, "delay": 15}, 0, 3),
    ],
)
def test_an_alarm_goes_off_in_time_or_not_at_all(
    name: str, work: list[float], said: dict[str, float], first: int | None, last: int | None
) -> None:
    states = course(name, work, **said)
    assert ("ALARM" in states) == (last is not None)
    if first is not None and last is not None:
        assert first <= states.index("ALARM") <= last
        assert "OK" not in states[states.index("ALARM") :]


def test_silence_adds_nothing_and_removes_nothing() -> None:
    silent = [-1.0] * 360
    for name in alarms():
        assert "ALARM" not in course(name, silent), name
    calm = course("removal", [0.05] * 6 * 20)
    assert calm[-1] == "ALARM", "a calm that is heard does remove"
    after = course("removal", [0.55] * 6 * 20 + silent)
    assert "ALARM" not in after, "an hour of silence is not calm"
    ends = course("removal", [0.05] * 6 * 20 + silent)
    assert "ALARM" not in ends[20 + 3 :], "and calm is over as soon as nobody says so"


def test_every_alarm_of_the_observability_stack_fires_with_its_newest_minute_missing() -> None:
    """The documented trap of FILL: an alarm that needs every period never fires where the newest is always late."""
    found = resources(templates("prime-day")["Observability"], "AWS::CloudWatch::Alarm").values()
    for alarm in (each["Properties"] for each in found):
        filled = any("FILL" in query.get("Expression", "") for query in alarm["Metrics"])
        (period,) = {query["MetricStat"]["Period"] for query in alarm["Metrics"] if "MetricStat" in query}
        if filled and period < 300:
            assert alarm["DatapointsToAlarm"] < alarm["EvaluationPeriods"], alarm["AlarmName"]


def paged(times: float, minutes: int, *, delay: float = 0) -> bool:
    """Whether the saturation page fires at so many times the capacity; at 1.5 the reader plans 46%, as in reality."""
    found = resources(templates("prime-day")["Observability"], "AWS::CloudWatch::Alarm").values()
    named = {each["Properties"]["AlarmName"]: each["Properties"] for each in found}
    store, alarm = MetricStore(), SynthesisedAlarm(named["peakplan-prime-day-cell-1-saturation"])
    states = []
    for now in range(10, 60 * minutes + 1, 10):
        report(store, now, times, delay=delay, by_rule=max(0.0, 1 - 0.81 / times), p99=87)
        if now % alarm.period == 0:
            states.append(alarm.evaluate(store, now))
    return "ALARM" in states


@pytest.mark.parametrize("delay", [0, 20])
def test_past_capacity_pages_a_person_and_below_it_nobody(delay: float) -> None:
    assert not paged(0.95, 30, delay=delay)
    assert not paged(1.05, 30, delay=delay)
    for times in (1.15, 1.3, 1.5, 1.6, 3.0):
        assert paged(times, 10, delay=delay), times
    assert not paged(3.0, 2, delay=delay), "a surge that the fleet recovers from by itself wakes nobody"
