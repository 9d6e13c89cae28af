"""The alarms of one cell, derived from a fleet's settings: error budgets, capacity, hosts, Neuron and deploys.

Every cell has the same ones; the constructs render them into CloudWatch, monitoring.py into Prometheus and Grafana.
Error budgets: Google, The Site Reliability Workbook, Alerting on SLOs, "Multiwindow, Multi-Burn-Rate Alerts".
"""

from __future__ import annotations

import math
from collections.abc import Iterator
from dataclasses import replace

from infra.fleet.alarm_kinds import AT_LEAST, Alarm, Burn, CompositeAlarm, MetricAlarm, Reading, Severity, Slo
from infra.fleet.neuron_alarms import neuron
from infra.fleet.settings import FleetSettings
from infra.fleet.shopper_alarms import CLICKS, PURCHASES, shoppers
from infra.fleet.surroundings_alarms import surroundings
from infra.fleet.synthetic_plans import ALARM

# A share of fewer requests than this in a window is not significant.
FEWEST_REQUESTS = 20
# This is the offered work of a replica at which a person is needed if it lasts. 1 is a replica's full capacity; at 1.6
# nearly half of all shoppers get rules. A surge that the fleet recovers from by itself is shorter.
PAST_CAPACITY = 1.1
# The first share of plans by rule deserves a look, and the second means that the models are gone.
DEGRADED_PERCENT, MOSTLY_DEGRADED_PERCENT = 5.0, 50.0
# One crash concerns one replica; three crashes in a minute point to the release.
DEPLOY_RESTARTS = 3
# An instance is late only this long after its boot time.
LAUNCH_GRACE_SECONDS = 600
# A deploy holds a page back for this long after its own alarm changed: one evaluation.
SUPPRESSION_SECONDS = 60
# Plans by rule that were spot-checked and differ from the model's: points of percent above what the scorer expects. Of
# FEWEST_CHECKS with a tenth expected, chance alone moves the share by 3 points, so that 10 in two hours are no chance.
FEWEST_CHECKS, DIFFERING_POINTS = 100, 10.0

# The service reports 0 where nothing happened, and data is missing where nobody reports. The balancer omits what did
# not happen; its 5xx are bad answers that no replica was there to count.
GOOD = Reading("SloGood", none_is_zero=False)
REFUSED = Reading("HTTPCode_ELB_5XX_Count", ("LoadBalancer",))
ANSWERS = {"good": GOOD, "late": Reading("SloBad", none_is_zero=False), "refused": REFUSED}
BY_RULE = {"degraded": Reading("Degraded", none_is_zero=False), "shed": Reading("Shed", none_is_zero=False)}
WORK = {
    "offered": Reading("OfferedWork", none_is_zero=False),
    "replica_seconds": Reading("ReplicaSeconds", none_is_zero=False),
}
CHECKS = {
    "checks": Reading("SpotChecks"),
    "differing": Reading("SpotChecksDiffering"),
    "expected": Reading("SpotChecksExpected"),
}
ALL, BAD_ONES, NOT_BY_MODEL = "(good + late + refused)", "(late + refused)", "(degraded + shed + refused)"


TIMELY = Slo("", "goal", BAD_ONES, "bad answers", ANSWERS)
BY_MODEL = Slo("model-", "model_goal", NOT_BY_MODEL, "plans without the model", {**ANSWERS, **BY_RULE})
SLOS = (TIMELY, BY_MODEL)


FAST = Burn("fast-burn", 0.02, 3600, 300, Severity.PAGE)
SLOW = Burn("slow-burn", 0.05, 6 * 3600, 1800, Severity.TICKET)


def percent(part: str, whole: str, fewest: int) -> str:
    """Return metric math for a share in percent.

    The share is 0 where the whole is smaller than `fewest`; the expression never divides by zero.
    """
    return f"IF({whole} >= {fewest}, 100 * {part} / IF({whole} == 0, 1, {whole}), 0)"


def alarm_name(fleet: str, cell: str, key: str) -> str:
    """Return the alarm's name in CloudWatch, the same at every synthesis: deploys and rollbacks refer to it."""
    return f"peakplan-{fleet}-{cell}-{key}"


def gates(fleet: str, cell: str) -> list[str]:
    """Return the names of the alarms that stop a deploy of this cell."""
    return [alarm_name(fleet, cell, key) for key in ("deploy-health", CLICKS, PURCHASES, ALARM)]


def cell_alarms(settings: FleetSettings) -> tuple[Alarm, ...]:
    """Return every alarm of one cell, parts before the alarms that are composed of them."""
    alarms: list[Alarm] = [
        alarm for slo in SLOS for burn in (FAST, SLOW) for alarm in _burn_alarms(settings, slo, burn)
    ]
    alarms += [*_capacity(settings), *_degraded(), _rules_differ(), *shoppers(), *surroundings(settings)]
    if any(group.engine == "neuron" for group in settings.groups):
        alarms += neuron()
    alarms += _deploys(settings)
    paging = tuple(alarm.key for alarm in alarms if alarm.severity is Severity.PAGE)
    quiet = CompositeAlarm(
        key="quiet",
        meaning="A deploy is in progress and explains the noise; shoppers are not harmed.",
        severity=Severity.PART,
        runbook="page",
        all_of=("deploying",),
        none_of=(FAST.key, f"model-{FAST.key}", "mostly-degraded"),
    )
    page = CompositeAlarm(
        key="page",
        meaning="Somebody is needed now. The alarm that caused this one is in ALARM too.",
        severity=Severity.PAGE,
        runbook="page",
        any_of=paging,
        suppressed_by="quiet",
    )
    return (*alarms, quiet, page)


def _burn_alarms(settings: FleetSettings, slo: Slo, burn: Burn) -> Iterator[Alarm]:
    """Yield the alarms of the two windows, and the one that needs both.

    Over five minutes and more no window is ever empty because data is late, so what nobody sent may count as none: a
    cell whose hosts are all gone reports nothing itself, and the balancer's refusals are then all there is.
    """
    key, line = slo.prefix + burn.key, burn.bad_percent(slo.budget(settings))
    windows = {"long": burn.long_seconds, "short": burn.short_seconds}
    for suffix, seconds in windows.items():
        yield MetricAlarm(
            key=f"{key}-{suffix}",
            meaning=f"The budget for {slo.what} burned {burn.rate:.3g} times too fast over the {suffix} window.",
            readings={name: replace(reading, none_is_zero=True) for name, reading in slo.readings.items()},
            expression=percent(slo.bad, ALL, FEWEST_REQUESTS),
            line=line,
            unit=f"% {slo.what}",
            evaluation=(seconds, 1, 1),
            severity=Severity.PART,
            runbook=burn.key,
        )
    hours, minutes = f"{burn.long_seconds // 3600} h", f"{burn.short_seconds // 60} min"
    yield CompositeAlarm(
        key=key,
        meaning=f"{slo.what.capitalize()} spend {burn.budget_share:.0%} of 28 days' error budget in {hours}, "
        "and still do.",
        severity=burn.severity,
        runbook=burn.key,
        all_of=tuple(f"{key}-{suffix}" for suffix in windows),
        words=f"> {line:g} % {slo.what} over {hours} and over {minutes}",
    )


def _capacity(settings: FleetSettings) -> Iterator[Alarm]:
    yield MetricAlarm(
        key="p99",
        meaning=f"One answer in a hundred takes longer than the SLO's {settings.slo.p99_ms} ms.",
        readings={"p99": Reading("TargetResponseTime", ("LoadBalancer",), none_is_zero=False)},
        expression="p99",
        line=settings.slo.p99_ms / 1000,
        unit="s",
        evaluation=(60, 8, 10),
        severity=Severity.TICKET,
    )
    yield MetricAlarm(
        key="saturation",
        meaning="The load exceeds what the replicas can do, and scaling has not caught up: rules plan the rest.",
        readings=WORK,
        expression="offered / replica_seconds",
        line=PAST_CAPACITY,
        unit="times what the replicas can do",
        evaluation=(60, 3, 5),
        severity=Severity.PAGE,
    )
    target, zones, hosts = ("TargetGroup", "LoadBalancer"), len(settings.availability_zones), "(healthy + unhealthy)"
    yield MetricAlarm(
        key="unhealthy-hosts",
        meaning=f"More hosts fail their health checks than one of {zones} zones holds: the spare capacity is gone.",
        readings={
            "healthy": Reading("HealthyHostCount", target, none_is_zero=False),
            "unhealthy": Reading("UnHealthyHostCount", target, none_is_zero=False),
        },
        # The absence of every host is the worst share, not an unknown one.
        expression=f"IF({hosts} == 0, 100, 100 * unhealthy / IF({hosts} == 0, 1, {hosts}))",
        line=math.ceil(100 / zones),
        unit="% of hosts",
        evaluation=(60, 3, 5),
        severity=Severity.PAGE,
        missing="breaching",  # a balancer without any target reports nothing
    )
    group, minutes = ("AutoScalingGroupName",), math.ceil((settings.boot_seconds + LAUNCH_GRACE_SECONDS) / 60)
    yield MetricAlarm(
        key="launch-failures",
        meaning="Instances that scaling requested are not in service long after they should have booted.",
        readings={
            "wanted": Reading("GroupDesiredCapacity", group, none_is_zero=False),
            "running": Reading("GroupInServiceInstances", group, none_is_zero=False),
        },
        expression="wanted - running",
        line=1,
        unit="instances missing",
        evaluation=(60, minutes - 2, minutes),
        severity=Severity.TICKET,
        comparison=AT_LEAST,
    )


def _degraded() -> Iterator[Alarm]:
    some, most = (
        "Some shoppers get plans by rule instead of by the model.",
        "Most shoppers get plans by rule: the models are gone.",
    )
    for key, meaning, line, evaluation, severity in (
        ("degraded-share", some, DEGRADED_PERCENT, (60, 8, 10), Severity.TICKET),
        ("mostly-degraded", most, MOSTLY_DEGRADED_PERCENT, (60, 4, 5), Severity.PAGE),
    ):
        yield MetricAlarm(
            key=key,
            meaning=meaning,
            readings={"degraded": BY_RULE["degraded"], "requests": Reading("Requests", none_is_zero=False)},
            expression=percent("degraded", "requests", FEWEST_REQUESTS),
            line=line,
            unit="% of requests",
            evaluation=evaluation,
            severity=severity,
            runbook="degraded-share",
        )


def _rules_differ() -> MetricAlarm:
    return MetricAlarm(
        key="rules-differ",
        meaning="Plans that rules make by choice differ from the model's far more often than its scorer expects.",
        readings=CHECKS,
        expression=percent("(differing - expected)", "checks", FEWEST_CHECKS),
        line=DIFFERING_POINTS,
        unit="points of % more than expected",
        evaluation=(3600, 2, 3),
        severity=Severity.TICKET,
    )


def _deploys(settings: FleetSettings) -> Iterator[Alarm]:
    burning = f"{percent(BAD_ONES, ALL, FEWEST_REQUESTS)} > {FAST.bad_percent(TIMELY.budget(settings)):g}"
    by_rule = f"{percent(NOT_BY_MODEL, ALL, FEWEST_REQUESTS)} > {FAST.bad_percent(BY_MODEL.budget(settings)):g}"
    counted = {name: replace(reading, none_is_zero=True) for name, reading in BY_MODEL.readings.items()}
    yield MetricAlarm(
        key="deploy-health",
        meaning="The running release does harm: bad answers, plans by rule, or crashing replicas. It stops a deploy.",
        readings={**counted, "restarts": Reading("ReplicaRestarts")},
        expression=f"IF({burning}, 1, 0) + IF({by_rule}, 1, 0) + IF(restarts >= {DEPLOY_RESTARTS}, 1, 0)",
        line=1,
        unit="signs of harm",
        evaluation=(60, 2, 3),
        severity=Severity.TICKET,
        comparison=AT_LEAST,
    )
    yield MetricAlarm(
        key="telemetry-silent",
        meaning="The load balancer forwards requests, but the service reports none: its alarms are blind.",
        readings={
            "passed": Reading("RequestCount", ("LoadBalancer",)),
            **{name: replace(ANSWERS[name], none_is_zero=True) for name in ("good", "late")},
        },
        expression=f"IF(passed >= {FEWEST_REQUESTS} AND good + late == 0, 1, 0)",
        line=1,
        unit="",
        evaluation=(60, 4, 6),  # the newest minute's requests may not be there yet, which looks like none
        severity=Severity.TICKET,
        comparison=AT_LEAST,
    )
    yield MetricAlarm(
        key="deploying",
        meaning="A deploy of this cell is in progress or baking.",
        readings={"deploying": Reading("DeployInProgress")},
        expression="deploying",
        line=1,
        unit="",
        evaluation=(60, 1, 3),  # a minute's marker may be lost; three lost ones end the suppression
        severity=Severity.PART,
        runbook="deploy-health",
        comparison=AT_LEAST,
    )
