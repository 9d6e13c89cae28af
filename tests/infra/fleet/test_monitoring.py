"""What is published, alarmed, shown and written down agrees: metrics, docs/alarms.md, runbooks, Prometheus, Grafana."""

import json
import re
from pathlib import Path
from typing import Any

import pytest
import yaml
from pydantic import ValidationError

from infra.fleet import alarm_table
from infra.fleet.alarm_kinds import Alarm, MetricAlarm, Severity
from infra.fleet.alarm_table import grafana_dashboard, prometheus_rules, promql, recorded, snake
from infra.fleet.alarms import cell_alarms
from infra.fleet.metrics import FILE, MetricNameError, metrics
from infra.fleet.metrics import Metrics as MetricList
from infra.fleet.settings import FLEETS, FleetSettings
from service.telemetry.metrics import Metrics, Reading
from tests.infra.fleet.test_alarms import value_of

# Source: CloudWatch API reference, MetricDatum.
UNITS = {"Count", "Percent", "Milliseconds", "Seconds", "Bytes", "None"}
STATISTIC = re.compile(r"Sum|Average|Minimum|Maximum|p\d{1,2}(\.\d+)?")


def test_units_and_statistics_are_cloudwatchs() -> None:
    for name, metric in metrics().metrics.items():
        assert metric.unit in UNITS, name
        assert STATISTIC.fullmatch(metric.statistic), name
        assert metric.resolution_seconds in (1, 60), name
        assert metric.description.endswith("."), name
    used = {name for metric in metrics().metrics.values() for chosen in metric.dimensions for name in chosen}
    assert used == set(metrics().dimensions)


def test_our_own_metrics_are_told_apart_by_fleet_and_cell_and_never_by_replica() -> None:
    """A dimension whose values are many is a bill, and a metric that no alarm can name."""
    for name, metric in metrics().metrics.items():
        if metric.source in ("service", "deploy", "neuron"):
            counted_where_planned = {("Fleet",), ("Fleet", "PlannedIn")}  # wherever a shop reports it
            ours = set(metric.dimensions) - (counted_where_planned if name.startswith("Answers") else set())
            assert all(chosen[:2] == ("Fleet", "Cell") for chosen in ours), name
            assert all(len(chosen) <= 3 for chosen in metric.dimensions), name


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
    broken = json.loads(FILE.read_text(encoding="utf-8"))
    broken["metrics"]["SloGood"][key] = value
    with pytest.raises(ValidationError, match=complaint):
        MetricList.model_validate(broken)


ALARMS = cell_alarms(FleetSettings.from_yaml(FLEETS / "prime-day.yaml"))
RULES: dict[str, Any] = yaml.safe_load(prometheus_rules(ALARMS, "https://runbooks"))
RUNBOOK = "# x\n\n## Symptom\n\n## First look\n\n## Mitigation\n\n## Follow-up\n"


def test_what_the_project_ships_is_up_to_date(capsys: pytest.CaptureFixture[str]) -> None:
    assert alarm_table.main(["--check"]) == 0, capsys.readouterr().err


def test_the_table_shows_everything_that_tells_somebody() -> None:
    lines = alarm_table.listed(ALARMS).splitlines()
    assert len(lines) == sum(alarm.severity is not Severity.PART for alarm in ALARMS)
    assert all("](runbooks/" in line for line in lines)


@pytest.mark.parametrize(
    ("page", "text", "complaint"),
    [
        ("page", RUNBOOK, ""),
        ("p99", None, "p99.md does not exist"),
        ("moon-phase", RUNBOOK, "moon-phase.md belongs to no alarm"),
        ("page", RUNBOOK.replace("## Mitigation\n", ""), "its parts are Symptom, First look, Follow-up"),
        ("page", RUNBOOK + "See [that](nowhere.md).", "its link to nowhere.md leads nowhere"),
    ],
)
def test_what_is_wrong_with_runbooks_is_named(tmp_path: Path, page: str, text: str | None, complaint: str) -> None:
    for name in {*(alarm.runbook for alarm in ALARMS), page}:
        (tmp_path / f"{name}.md").write_text(RUNBOOK if name != page else text or "")
    if text is None:
        (tmp_path / f"{page}.md").unlink()
    found = list(alarm_table.complaints(ALARMS, tmp_path))
    assert len(found) == bool(complaint), found
    assert complaint in "".join(found)


def test_stale_files_fail_the_check_and_the_command_mends_them(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(alarm_table, "DOCS", tmp_path)
    (tmp_path / "alarms.md").write_text("old")

    assert alarm_table.main(["--check"]) == 1
    assert capsys.readouterr().err.count("run `python -m infra.fleet.alarm_table`") == 3
    assert (tmp_path / "alarms.md").read_text() == "old", "a check changes nothing"
    assert alarm_table.main([]) == 0
    assert alarm_table.main(["--check"]) == 0
    assert (tmp_path / "alarms.md").read_text().startswith("# Alarms\n")


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
        if not isinstance(alarm, MetricAlarm) or (empty and alarm.key == "saturation"):
            continue  # a division by no replicas: missing in both
        values = {name: 0.0 if empty else 7.0 * number + 30 for number, name in enumerate(alarm.readings)}
        by_record = {recorded(alarm.readings[name], alarm.period_seconds): value for name, value in values.items()}
        query = promql(alarm.expression, alarm.readings, alarm.period_seconds)
        assert arithmetic(query, by_record) == pytest.approx(value_of(alarm, **values)), alarm.key


# What is no percentage; "short" is a number.
UNITS_SHOWN = {
    "s": {"p99"},
    "percentunit": {"saturation"},
    "bool_yes_no": {"privatelink", "shared-cache-full", "synthetic-plans", "telemetry-silent"},
    "short": {
        *("launch-failures", "shoppers-click-less", "shoppers-buy-less", "reservations", "stand-in"),
        *("neuron-hardware", "deploy-health"),
    },
}


def test_the_board_has_a_graph_with_its_line_for_every_alarm_on_metrics() -> None:
    board = json.loads(grafana_dashboard(ALARMS, "https://runbooks"))
    panels = {panel["title"]: panel for panel in board["panels"]}
    metric_alarms = [alarm for alarm in ALARMS if isinstance(alarm, MetricAlarm) and alarm.key != "deploying"]
    assert set(panels) == {alarm.key for alarm in metric_alarms}
    units = {key: unit for unit, keys in UNITS_SHOWN.items() for key in keys}
    for alarm in metric_alarms:
        shown = panels[alarm.key]["fieldConfig"]["defaults"]
        assert shown["thresholds"]["steps"][1]["value"] == alarm.line
        assert shown["unit"] == units.get(alarm.key, "percent"), alarm.key
    places = {(panel["gridPos"]["x"], panel["gridPos"]["y"]) for panel in board["panels"]}
    assert len(places) == len(panels)


def test_names_are_spelt_as_the_cloudwatch_exporter_spells_them_and_unknown_math_is_refused() -> None:
    assert snake("HTTPCode_ELB_5XX_Count") == "httpcode_elb_5_xx_count"
    assert snake("GroupInServiceInstances") == "group_in_service_instances"
    with pytest.raises(ValueError, match="do not know"):
        promql("SEARCH(a)", {}, 60)
