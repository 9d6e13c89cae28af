"""The alarms follow from the settings: the arithmetic of burn rates, whom each tells, and what a deploy holds back."""

import math
import re
from typing import Any

import pytest

from infra.constructs.names import CellNames, expand_all
from infra.fleet.alarm_kinds import Alarm, CompositeAlarm, MetricAlarm, Reading, Severity
from infra.fleet.alarms import BY_MODEL, FAST, PAST_CAPACITY, SLOW, TIMELY, cell_alarms
from infra.fleet.metrics import MetricNameError
from infra.fleet.settings import FLEETS, FleetSettings

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


def test_burn_rates_are_those_that_spend_the_stated_share_of_28_days() -> None:
    assert pytest.approx(13.44) == FAST.rate  # 2% of 672 hours in one
    assert pytest.approx(5.6) == SLOW.rate  # 5% of 672 hours in six
    assert FAST.bad_percent(TIMELY.budget(fleet(goal=0.999))) == pytest.approx(1.344)
    assert FAST.bad_percent(TIMELY.budget(fleet(goal=0.99))) == pytest.approx(13.44)
    assert FAST.bad_percent(BY_MODEL.budget(fleet(model_goal=0.99))) == pytest.approx(13.44)


def test_a_lax_goal_still_has_a_line_that_an_outage_reaches() -> None:
    assert FAST.bad_percent(TIMELY.budget(fleet(goal=0.6))) == 50.0


def test_a_burn_alarm_needs_its_long_and_its_short_window() -> None:
    fast = by_key(fleet())["fast-burn"]

    assert isinstance(fast, CompositeAlarm)
    assert fast.rule(lambda key: key) == 'ALARM("fast-burn-long") AND ALARM("fast-burn-short")'


def test_lines_follow_the_slo() -> None:
    strict, lax = by_key(fleet(p99_ms=300)), by_key(fleet(p99_ms=900))

    assert isinstance(strict["p99"], MetricAlarm)
    assert strict["p99"].line == 0.3
    assert isinstance(lax["p99"], MetricAlarm)
    assert lax["p99"].line == 0.9


def test_plans_without_the_model_have_a_budget_of_their_own() -> None:
    """Degraded plans count as good answers: in time, and poor."""
    alarms = by_key(fleet())
    readings = {"good": 60.0, "late": 40.0, "degraded": 46.0, "shed": 0.0}
    assert value_of(alarms["model-fast-burn-long"], **readings) == 46
    assert value_of(alarms["fast-burn-long"], **{name: readings[name] for name in ("good", "late")}) == 40
    fast, slow = alarms["model-fast-burn"], alarms["model-slow-burn"]
    assert (fast.severity, slow.severity) == (Severity.PAGE, Severity.TICKET)


def test_a_page_comes_between_11_and_16_times_capacity() -> None:
    saturation = by_key(fleet())["saturation"]
    assert isinstance(saturation, MetricAlarm)
    assert saturation.severity is Severity.PAGE
    assert saturation.line == PAST_CAPACITY == 1.1
    for times in (1.11, 1.6):
        assert value_of(saturation, offered=times * 360, replica_seconds=360) > saturation.line
    fast = by_key(fleet())["model-fast-burn-short"]
    assert isinstance(fast, MetricAlarm)
    by_rule_at_16 = 100 * (1 - 1 / 1.6)
    assert fast.line < by_rule_at_16, "and the budget's own page follows within the hour"


def test_an_alarm_that_could_stick_is_refused() -> None:
    """FILL reads calm in the newest minute, whose data may always be late; CloudWatch user guide, Use metric math."""

    def alarm(evaluation: tuple[int, int, int], *, filled: bool) -> MetricAlarm:
        readings = {"late": Reading("SloBad", none_is_zero=filled)}
        return MetricAlarm("x", "x", readings, "late", 1, "", evaluation, Severity.TICKET)

    with pytest.raises(ValueError, match="5 of 5 periods with FILL sticks"):
        alarm((60, 5, 5), filled=True)
    assert alarm((60, 4, 5), filled=True).breaching == 4
    assert alarm((60, 5, 5), filled=False).breaching == 5


def test_a_fleet_without_neuron_has_no_alarm_of_it() -> None:
    settings = fleet()
    cpu = settings.groups[0].model_copy(update={"instance_type": "c7a.4xlarge", "engine": "torch"})
    keys = set(by_key(settings.model_copy(update={"groups": (cpu,)})))
    assert not any(key.startswith("neuron") for key in keys)
    assert "saturation" in keys


def test_losing_one_zone_pages_nobody_and_losing_more_does() -> None:
    alarm = by_key(fleet())["unhealthy-hosts"]

    assert isinstance(alarm, MetricAlarm)
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


def test_parts_come_before_what_is_made_of_them() -> None:
    seen: set[str] = set()
    for alarm in cell_alarms(fleet()):
        assert not isinstance(alarm, CompositeAlarm) or {*alarm.parts, alarm.suppressed_by} <= seen | {""}
        assert alarm.key not in seen
        seen.add(alarm.key)


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
    alarm = by_key(fleet())[key]
    assert isinstance(alarm, MetricAlarm)

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


def test_expressions_compute_what_the_alarms_mean() -> None:
    alarms = by_key(fleet())

    assert value_of(alarms["fast-burn-long"], good=990, late=5, refused=5) == pytest.approx(1.0)
    assert value_of(alarms["fast-burn-long"], good=0, late=3) == 0  # three requests are no share
    assert value_of(alarms["fast-burn-long"]) == 0  # nor is a quiet night a division by zero
    assert value_of(alarms["unhealthy-hosts"], healthy=6, unhealthy=3) == pytest.approx(33.33, abs=0.01)
    assert value_of(alarms["unhealthy-hosts"]) == 100
    assert value_of(alarms["launch-failures"], wanted=9, running=7) == 2
    assert value_of(alarms["degraded-share"], degraded=6, requests=100) == 6
    assert value_of(alarms["neuron-runtime"], timed_out=5, completed=995) == pytest.approx(0.5)
    assert value_of(alarms["neuron-runtime"], timed_out=1) == 0
    assert value_of(alarms["deploy-health"], good=100) == 0
    assert value_of(alarms["deploy-health"], restarts=3) == 1
    assert value_of(alarms["deploy-health"], good=50, late=50) == 1
    assert value_of(alarms["deploy-health"], good=100, degraded=60) == 1
    assert value_of(alarms["telemetry-silent"], passed=100) == 1
    assert value_of(alarms["telemetry-silent"], passed=100, good=1) == 0


def test_rules_by_choice_that_differ_more_than_expected_are_a_ticket_and_few_checks_say_nothing() -> None:
    alarm = by_key(fleet())["rules-differ"]
    assert isinstance(alarm, MetricAlarm)
    assert alarm.severity is Severity.TICKET
    assert value_of(alarm, checks=400, differing=48, expected=40) < alarm.line
    assert value_of(alarm, checks=400, differing=90, expected=40) > alarm.line
    assert value_of(alarm, checks=400, differing=0, expected=40) < alarm.line
    assert value_of(alarm, checks=99, differing=99, expected=10) == 0
    assert value_of(alarm) == 0


def test_a_reading_of_what_nobody_publishes_is_refused() -> None:
    with pytest.raises(MetricNameError, match="no metric 'Sloth'"):
        Reading("Sloth")
    with pytest.raises(ValueError, match="event_type=bit_rot is not among"):
        Reading("hardware_ecc_events_total", ("Fleet", "Cell", "event_type"), (("event_type", "bit_rot"),))


@pytest.mark.parametrize(
    ("evaluation", "words"),
    [((90, 1, 1), "> 2 x over 90 s"), ((60, 2, 3), "> 2 x in 2 min of 3 min"), ((1800, 4, 4), "> 2 x for 2 h")],
)
def test_a_condition_is_told_in_the_largest_unit(evaluation: tuple[int, int, int], words: str) -> None:
    readings = {"late": Reading("SloBad", none_is_zero=False)}
    assert MetricAlarm("x", "x", readings, "late", 2, "x", evaluation, Severity.TICKET).when == words
