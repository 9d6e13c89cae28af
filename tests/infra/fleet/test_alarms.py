"""The alarms follow from the settings: the arithmetic of burn rates, whom each tells, and what a deploy holds back."""

import json
import math
import re
from pathlib import Path
from typing import Any

import pytest
import yaml
from pydantic import ValidationError

from infra.constructs.names import CellNames, expand_all
from infra.fleet import alarm_table
from infra.fleet.alarm_kinds import Alarm, CompositeAlarm, MetricAlarm, Reading, Severity
from infra.fleet.alarm_table import grafana_dashboard, prometheus_rules, promql, recorded, snake
from infra.fleet.alarms import BY_MODEL, FAST, SLOW, TIMELY, cell_alarms
from infra.fleet.metrics import FILE, MetricNameError, metrics
from infra.fleet.metrics import Metrics as MetricList
from infra.fleet.settings import FLEETS, FleetSettings
from service.telemetry import metrics as service_metrics

# Source: CloudWatch user guide, quotas: metrics in one alarm, characters of an expression.
MOST_METRICS, LONGEST_EXPRESSION = 10, 1024
NAMES = CellNames(
    "cell-1",
    "app/a/1",
    ("targetgroup/a/1", "targetgroup/b/2"),
    ("inf2-group", "trn1-group"),
    network_load_balancer="net/a/1",
    network_target_group="targetgroup/c/3",
    cache_nodes=("cache-001", "cache-002"),
)


def fleet(**slo: Any) -> FleetSettings:
    """The prime-day fleet, with another SLO where one is given."""
    settings = FleetSettings.from_yaml(FLEETS / "prime-day.yaml")
    return settings.model_copy(update={"slo": settings.slo.model_copy(update=slo)})


def by_key(settings: FleetSettings) -> dict[str, Alarm]:
    return {alarm.key: alarm for alarm in cell_alarms(settings)}


def metric_alarm(key: str, **slo: Any) -> MetricAlarm:
    alarm = by_key(fleet(**slo))[key]
    assert isinstance(alarm, MetricAlarm)
    return alarm


def test_lines_follow_the_slo_and_burn_rates_spend_the_stated_share_of_28_days() -> None:
    assert pytest.approx(13.44) == FAST.rate  # 2% of 672 hours in one
    assert pytest.approx(5.6) == SLOW.rate  # 5% of 672 hours in six
    assert FAST.bad_percent(TIMELY.budget(fleet(goal=0.999))) == pytest.approx(1.344)
    assert FAST.bad_percent(TIMELY.budget(fleet(goal=0.99))) == pytest.approx(13.44)
    assert FAST.bad_percent(BY_MODEL.budget(fleet(model_goal=0.99))) == pytest.approx(13.44)
    assert FAST.bad_percent(TIMELY.budget(fleet(goal=0.6))) == 50.0, "a lax goal has a line that an outage reaches"
    assert [metric_alarm("p99", p99_ms=milliseconds).line for milliseconds in (300, 900)] == [0.3, 0.9]
    fast = by_key(fleet())["fast-burn"]
    assert isinstance(fast, CompositeAlarm)
    assert fast.rule(lambda key: key) == 'ALARM("fast-burn-long") AND ALARM("fast-burn-short")'


def test_a_fleet_without_neuron_has_no_alarm_of_it() -> None:
    settings = fleet()
    cpu = settings.groups[0].model_copy(update={"instance_type": "c7a.4xlarge", "engine": "torch"})
    keys = set(by_key(settings.model_copy(update={"groups": (cpu,)})))
    assert not any(key.startswith("neuron") for key in keys)
    assert "saturation" in keys


def test_losing_one_zone_pages_nobody_and_losing_more_does() -> None:
    alarm = metric_alarm("unhealthy-hosts")
    assert 100 / 3 < alarm.line < 200 / 3
    assert alarm.missing == "breaching"


def test_only_the_page_alarm_holds_its_actions_back_and_never_while_shoppers_are_hurt() -> None:
    alarms = by_key(fleet())
    page, quiet = alarms["page"], alarms["quiet"]

    assert isinstance(page, CompositeAlarm)
    assert isinstance(quiet, CompositeAlarm)
    assert page.suppressed_by == "quiet"
    assert set(page.any_of) == {key for key, a in alarms.items() if a.severity is Severity.PAGE and key != "page"}
    assert quiet.all_of == ("deploying",)
    assert {"fast-burn", "model-fast-burn", "mostly-degraded"} <= set(quiet.none_of)
    severities = [alarms[key].severity for key in ("model-fast-burn", "model-slow-burn")]
    assert severities == [Severity.PAGE, Severity.TICKET]


def test_every_expression_is_within_cloudwatchs_limits_and_names_only_its_readings() -> None:
    functions = {"IF", "FILL", "AND"}
    for alarm in cell_alarms(fleet()):
        if isinstance(alarm, MetricAlarm):
            metrics, expression = expand_all(alarm.readings, alarm.expression, "prime-day", NAMES)
            identifiers = {metric.id for metric in metrics}
            assert len(metrics) <= MOST_METRICS, alarm.key
            assert len(expression) <= LONGEST_EXPRESSION, alarm.key
            assert set(re.findall(r"[A-Za-z_]\w*", expression)) - functions == identifiers, alarm.key
            assert all(re.fullmatch(r"[a-z][A-Za-z0-9_]*", each) for each in identifiers), alarm.key
            assert alarm.period_seconds * alarm.periods <= 86_400, alarm.key


def value_of(alarm: Alarm, **readings: float) -> float:
    """The alarm's expression computed as CloudWatch would, for one moment."""
    assert isinstance(alarm, MetricAlarm)
    python = alarm.expression.replace(" AND ", " and ").replace("IF(", "choose(")
    known = dict.fromkeys(alarm.readings, 0.0) | readings
    return float(eval(python, {"choose": lambda condition, then, other: then if condition else other}, known))


@pytest.mark.parametrize("key", ["shoppers-click-less", "shoppers-buy-less"])
def test_a_cell_whose_shoppers_are_lost_is_told_from_chance(key: str) -> None:
    alarm = metric_alarm(key)

    def value(n: float, k: float, others: float, chosen: float) -> float:
        return value_of(alarm, n=n, k=k, n_all=n + others, k_all=k + chosen)

    shares = (0.3 * 0.95, 0.3)  # a planted harm of 5%
    n, others = 50_000, 150_000
    pooled = (shares[0] * n + shares[1] * others) / (n + others)
    z = (shares[1] - shares[0]) / math.sqrt(pooled * (1 - pooled) * (1 / n + 1 / others))
    assert value(n, shares[0] * n, others, shares[1] * others) == pytest.approx(z * z)
    assert z * z > alarm.line
    assert value(n, shares[1] * n, others, shares[0] * others) == 0, "a gain is no harm"
    assert value(n, 15_000, others, 45_300) < alarm.line, "0.7% of difference is chance"
    assert value(200_000, 0, 0, 0) == value(500, 0, others, 45_000) == value(n, 0, 0, 0) == value_of(alarm) == 0


@pytest.mark.parametrize(
    ("key", "readings", "value"),
    [
        ("fast-burn-long", {"good": 990, "late": 5, "refused": 5}, 1.0),
        ("fast-burn-long", {"good": 0, "late": 3}, 0),  # three requests are no share
        ("fast-burn-long", {}, 0),  # nor is a quiet night a division by zero
        ("fast-burn-long", {"good": 60, "late": 40}, 40),
        # Degraded plans count as good answers: in time, and poor. They have a budget of their own.
        ("model-fast-burn-long", {"good": 60, "late": 40, "degraded": 46, "shed": 0}, 46),
        ("unhealthy-hosts", {"healthy": 6, "unhealthy": 3}, 100 / 3),
        ("unhealthy-hosts", {}, 100),
        ("launch-failures", {"wanted": 9, "running": 7}, 2),
        ("degraded-share", {"degraded": 6, "requests": 100}, 6),
        ("neuron-runtime", {"timed_out": 5, "completed": 995}, 0.5),
        ("neuron-runtime", {"timed_out": 1}, 0),
        ("deploy-health", {"good": 100}, 0),
        ("deploy-health", {"restarts": 3}, 1),
        ("deploy-health", {"good": 50, "late": 50}, 1),
        ("deploy-health", {"good": 100, "degraded": 60}, 1),
        ("telemetry-silent", {"passed": 100}, 1),
        ("telemetry-silent", {"passed": 100, "good": 1}, 0),
    ],
)
def test_expressions_compute_what_the_alarms_mean(key: str, readings: dict[str, float], value: float) -> None:
    assert value_of(by_key(fleet())[key], **readings) == pytest.approx(value)


def test_rules_by_choice_that_differ_more_than_expected_are_a_ticket_and_few_checks_say_nothing() -> None:
    alarm = metric_alarm("rules-differ")
    assert alarm.severity is Severity.TICKET
    assert value_of(alarm, checks=400, differing=48, expected=40) < alarm.line
    assert value_of(alarm, checks=400, differing=90, expected=40) > alarm.line
    assert value_of(alarm, checks=400, differing=0, expected=40) < alarm.line
    assert value_of(alarm, checks=99, differing=99, expected=10) == 0
    assert value_of(alarm) == 0


@pytest.mark.parametrize(
    ("evaluation", "words"),
    [((90, 1, 1), "> 2 x over 90 s"), ((60, 2, 3), "> 2 x in 2 min of 3 min"), ((1800, 4, 4), "> 2 x for 2 h")],
)
def test_a_condition_is_told_in_the_largest_unit(evaluation: tuple[int, int, int], words: str) -> None:
    readings = {"late": Reading("SloBad", none_is_zero=False)}
    assert MetricAlarm("x", "x", readings, "late", 2, "x", evaluation, Severity.TICKET).when == words


# Source: CloudWatch API reference, MetricDatum.
UNITS = {"Count", "Percent", "Milliseconds", "Seconds", "Bytes", "None"}
STATISTIC = re.compile(r"Sum|Average|Minimum|Maximum|p\d{1,2}(\.\d+)?")


def test_units_and_statistics_are_cloudwatchs_and_dimensions_are_few() -> None:
    for name, metric in metrics().metrics.items():
        assert metric.unit in UNITS, name
        assert STATISTIC.fullmatch(metric.statistic), name
        assert metric.resolution_seconds in (1, 60), name
        assert metric.description.endswith("."), name
        # A dimension whose values are many is a bill, and a metric that no alarm can name.
        if metric.source in ("service", "deploy", "neuron"):
            counted_where_planned = {("Fleet",), ("Fleet", "PlannedIn")}  # wherever a shop reports it
            ours = set(metric.dimensions) - (counted_where_planned if name.startswith("Answers") else set())
            assert all(chosen[:2] == ("Fleet", "Cell") for chosen in ours), name
            assert all(len(chosen) <= 3 for chosen in metric.dimensions), name
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
    with pytest.raises(ValueError, match="event_type=bit_rot is not among"):
        Reading("hardware_ecc_events_total", ("Fleet", "Cell", "event_type"), (("event_type", "bit_rot"),))


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


def named(alarm: Alarm) -> str:
    return "Peakplan" + "".join(word.capitalize() for word in alarm.key.split("-"))


def test_every_alarm_that_tells_somebody_has_a_row_and_a_rule_with_its_severity_and_runbook() -> None:
    rules = {rule["alert"]: rule for rule in RULES["groups"][1]["rules"]}
    rows = alarm_table.table(ALARMS).splitlines()[2:]
    assert len(rows) == sum(alarm.severity is not Severity.PART for alarm in ALARMS)
    assert all("](runbooks/" in row for row in rows)
    told = [alarm for alarm in ALARMS if alarm.severity is not Severity.PART and alarm.key != "page"]
    assert set(rules) == {named(alarm) for alarm in told}
    for alarm in told:
        assert rules[named(alarm)]["labels"]["severity"] == alarm.severity
        assert rules[named(alarm)]["annotations"]["runbook_url"] == f"https://runbooks/{alarm.runbook}.md"


def test_rules_use_only_what_is_recorded_and_records_only_what_is_published() -> None:
    records = {rule["record"]: rule["expr"] for rule in RULES["groups"][0]["rules"]}
    used = {name for rule in RULES["groups"][1]["rules"] for name in re.findall(r"cell:\w+:\d+s", rule["expr"])}
    assert used <= set(records)
    exposed = set(
        re.findall(
            r"^# TYPE (\w+)", service_metrics.Metrics(service_metrics.Reading, 300).exposition().decode(), re.MULTILINE
        )
    )
    for expression in records.values():
        for name in re.findall(r"\bpeakplan_\w+", expression):
            assert name in exposed, name


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


def test_the_board_has_a_graph_with_its_line_for_every_alarm_on_metrics() -> None:
    board = json.loads(grafana_dashboard(ALARMS, "https://runbooks"))
    panels = {panel["title"]: panel for panel in board["panels"]}
    metric_alarms = [alarm for alarm in ALARMS if isinstance(alarm, MetricAlarm) and alarm.key != "deploying"]
    assert set(panels) == {alarm.key for alarm in metric_alarms}
    shown = {key: panel["fieldConfig"]["defaults"] for key, panel in panels.items()}
    assert all(shown[alarm.key]["thresholds"]["steps"][1]["value"] == alarm.line for alarm in metric_alarms)
    units = {"p99": "s", "saturation": "percentunit", "privatelink": "bool_yes_no", "reservations": "short"}
    assert {key: shown[key]["unit"] for key in (*units, "degraded-share")} == units | {"degraded-share": "percent"}
    places = {(panel["gridPos"]["x"], panel["gridPos"]["y"]) for panel in board["panels"]}
    assert len(places) == len(panels)


def test_names_are_spelt_as_the_cloudwatch_exporter_spells_them_and_unknown_math_is_refused() -> None:
    assert snake("HTTPCode_ELB_5XX_Count") == "httpcode_elb_5_xx_count"
    assert snake("GroupInServiceInstances") == "group_in_service_instances"
    with pytest.raises(ValueError, match="do not know"):
        promql("SEARCH(a)", {}, 60)
