"""The Prometheus rules and the Grafana board say what the alarms say, with names that exist."""

import json
import re
from typing import Any

import pytest
import yaml

from infra.fleet.alarm_kinds import Alarm, MetricAlarm, Severity
from infra.fleet.alarms import cell_alarms
from infra.fleet.monitoring import grafana_dashboard, prometheus_rules, promql, recorded, snake
from infra.fleet.settings import FLEETS, FleetSettings
from service.telemetry.metrics import Metrics, Reading

ALARMS = cell_alarms(FleetSettings.from_yaml(FLEETS / "prime-day.yaml"))
RULES: dict[str, Any] = yaml.safe_load(prometheus_rules(ALARMS, "https://runbooks"))


def named(alarm: Alarm) -> str:
    return "Peakplan" + "".join(word.capitalize() for word in alarm.key.split("-"))


def test_every_alarm_that_tells_somebody_has_a_rule_with_its_severity_and_runbook() -> None:
    rules = {rule["alert"]: rule for rule in RULES["groups"][1]["rules"]}
    told = [alarm for alarm in ALARMS if alarm.severity is not Severity.PART and alarm.key != "page"]
    assert set(rules) == {named(alarm) for alarm in told}
    for alarm in told:
        assert rules[named(alarm)]["labels"]["severity"] == alarm.severity
        assert rules[named(alarm)]["annotations"]["runbook_url"] == f"https://runbooks/{alarm.runbook}.md"


def test_rules_use_only_what_is_recorded_and_records_only_what_is_published() -> None:
    records = {rule["record"]: rule["expr"] for rule in RULES["groups"][0]["rules"]}
    used = {name for rule in RULES["groups"][1]["rules"] for name in re.findall(r"cell:\w+:\d+s", rule["expr"])}
    assert used <= set(records)
    exposed = set(re.findall(r"^# TYPE (\w+)", Metrics(Reading, 300).exposition().decode(), re.MULTILINE))
    for expression in records.values():
        for name in re.findall(r"\bpeakplan_\w+", expression):
            assert name in exposed, name


def test_m_of_n_and_the_line_are_the_alarm_s() -> None:
    (rule,) = [rule for rule in RULES["groups"][1]["rules"] if rule["alert"] == "PeakplanSaturation"]
    assert rule["expr"].endswith("> 1.1)[300s:60s]) >= 3")
    (burn,) = [rule for rule in RULES["groups"][1]["rules"] if rule["alert"] == "PeakplanModelFastBurn"]
    assert burn["expr"].count("> 13.44") == 2
    assert " and on (fleet, cell) " in burn["expr"]


def arithmetic(expression: str, values: dict[str, float]) -> float:
    """The PromQL of one cell computed: conditions are 0 or 1, and clamp_min is the larger."""
    plain = re.sub(r"cell:\w+:\d+s", lambda match: f"values[{match.group()!r}]", expression.replace(" bool ", " "))
    return float(eval(plain, {"values": values, "clamp_min": max}))


@pytest.mark.parametrize("empty", [True, False])
def test_the_math_gives_what_metric_math_gives(empty: bool) -> None:
    """On numbers of no meaning: both are computed by their own rules."""
    for alarm in ALARMS:
        if not isinstance(alarm, MetricAlarm):
            continue
        values = {name: 0.0 if empty else 7.0 * number + 30 for number, name in enumerate(alarm.readings)}
        if empty and alarm.key == "saturation":
            continue  # a division by no replicas: missing in both
        python = alarm.expression.replace(" AND ", " and ").replace("IF(", "choose(")
        expected = float(
            eval(python, {"choose": lambda condition, then, other: then if condition else other}, dict(values))
        )
        by_record = {recorded(alarm.readings[name], alarm.period_seconds): value for name, value in values.items()}
        query = promql(alarm.expression, alarm.readings, alarm.period_seconds)
        assert arithmetic(query, by_record) == pytest.approx(expected), alarm.key


def test_the_board_has_a_graph_with_its_line_for_every_alarm_on_metrics() -> None:
    board = json.loads(grafana_dashboard(ALARMS, "https://runbooks"))
    panels = {panel["title"]: panel for panel in board["panels"]}
    metric_alarms = [alarm for alarm in ALARMS if isinstance(alarm, MetricAlarm) and alarm.key != "deploying"]
    assert set(panels) == {alarm.key for alarm in metric_alarms}
    for alarm in metric_alarms:
        assert panels[alarm.key]["fieldConfig"]["defaults"]["thresholds"]["steps"][1]["value"] == alarm.line
    places = {(panel["gridPos"]["x"], panel["gridPos"]["y"]) for panel in board["panels"]}
    assert len(places) == len(panels)


@pytest.mark.parametrize(
    ("name", "spelt"),
    [
        ("HTTPCode_ELB_5XX_Count", "httpcode_elb_5_xx_count"),
        ("RequestCount", "request_count"),
        ("GroupInServiceInstances", "group_in_service_instances"),
    ],
)
def test_names_are_spelt_as_the_cloudwatch_exporter_spells_them(name: str, spelt: str) -> None:
    assert snake(name) == spelt


def test_unknown_math_is_refused() -> None:
    with pytest.raises(ValueError, match="do not know"):
        promql("SEARCH(a)", {}, 60)
