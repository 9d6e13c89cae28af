"""The alarms of one cell, derived from a fleet's settings. Every cell has the same ones; the constructs render them."""

from __future__ import annotations

import math

from infra.fleet.alarm_kinds import Alarm, CompositeAlarm, MetricAlarm, Reading, Severity
from infra.fleet.burn import ALL, BAD, BAD_ONES, FAST, FEWEST_REQUESTS, GOOD, SLOW, burn_alarms, percent
from infra.fleet.neuron_alarms import neuron_hardware, neuron_runtime
from infra.fleet.settings import FleetSettings

# The share of plans from the rule fallback that is worth a look, and the one that means the models are gone.
DEGRADED_PERCENT, MOSTLY_DEGRADED_PERCENT = 5.0, 50.0
# One crash is a replica's; three in a minute are a release's.
DEPLOY_RESTARTS = 3
# How long after its boot time an instance is still not late.
LAUNCH_GRACE_SECONDS = 600
# A deploy holds a page back for this long after its own alarm changed: one evaluation.
SUPPRESSION_SECONDS = 60


def alarm_name(fleet: str, cell: str, key: str) -> str:
    """The alarm's name in CloudWatch, the same at every synth: deploys and rollbacks refer to it."""
    return f"peakplan-{fleet}-{cell}-{key}"


def cell_alarms(settings: FleetSettings) -> tuple[Alarm, ...]:
    """Every alarm of one cell, parts before what is made of them."""
    alarms = [
        *burn_alarms(settings, FAST),
        *burn_alarms(settings, SLOW),
        _p99(settings),
        _saturation(settings),
        _unhealthy_hosts(settings),
        _launch_failures(settings),
        *_degraded(),
        neuron_hardware(),
        neuron_runtime(),
        _deploy_health(settings),
        _telemetry_silent(),
        _deploying(),
    ]
    paging = tuple(alarm.key for alarm in alarms if alarm.severity is Severity.PAGE)
    return (*alarms, _quiet(), _page(paging))


def _p99(settings: FleetSettings) -> MetricAlarm:
    return MetricAlarm(
        key="p99",
        meaning=f"One answer in a hundred takes longer than the SLO's {settings.slo.p99_ms} ms.",
        readings={"p99": Reading("TargetResponseTime", ("LoadBalancer",), none_is_zero=False)},
        expression="p99",
        line=settings.slo.p99_ms / 1000,
        unit="s",
        period_seconds=60,
        periods=10,
        breaching=8,
        severity=Severity.TICKET,
        runbook="p99",
    )


def saturated_outstanding(settings: FleetSettings) -> float:
    """Outstanding requests a replica from which half of the time that the SLO leaves for waiting is gone.

    A replica answers one at a time: behind n others a request waits n times the mean service time.
    """
    service = settings.model.service_time
    return round(max(1.5, (settings.slo.p99_ms - service.p99_ms) / service.mean_ms / 2), 1)


def _saturation(settings: FleetSettings) -> MetricAlarm:
    return MetricAlarm(
        key="saturation",
        meaning="Requests queue at the replicas: waiting takes half of the time that the SLO leaves for it.",
        readings={"outstanding": Reading("OutstandingPerReplica", none_is_zero=False)},
        expression="outstanding",
        line=saturated_outstanding(settings),
        unit="requests a replica",
        period_seconds=60,
        periods=5,
        breaching=3,
        severity=Severity.PAGE,
        runbook="saturation",
    )


def _unhealthy_hosts(settings: FleetSettings) -> MetricAlarm:
    zones = len(settings.availability_zones)
    target, hosts = ("TargetGroup", "LoadBalancer"), "(healthy + unhealthy)"
    return MetricAlarm(
        key="unhealthy-hosts",
        meaning=f"More hosts fail their health checks than one of {zones} zones holds: the spare capacity is gone.",
        readings={"healthy": Reading("HealthyHostCount", target), "unhealthy": Reading("UnHealthyHostCount", target)},
        # No host at all is the worst share, not an unknown one.
        expression=f"IF({hosts} == 0, 100, 100 * unhealthy / IF({hosts} == 0, 1, {hosts}))",
        line=math.ceil(100 / zones),
        unit="% of hosts",
        period_seconds=60,
        periods=5,
        breaching=3,
        severity=Severity.PAGE,
        runbook="unhealthy-hosts",
        missing="breaching",  # a balancer without any target reports nothing
    )


def _launch_failures(settings: FleetSettings) -> MetricAlarm:
    group = ("AutoScalingGroupName",)
    minutes = math.ceil((settings.boot_seconds + LAUNCH_GRACE_SECONDS) / 60)
    return MetricAlarm(
        key="launch-failures",
        meaning="Instances that scaling asked for are not in service, long after they should have booted.",
        readings={
            "wanted": Reading("GroupDesiredCapacity", group),
            "running": Reading("GroupInServiceInstances", group),
        },
        expression="wanted - running",
        line=1,
        unit="instances missing",
        period_seconds=60,
        periods=minutes,
        breaching=minutes,
        severity=Severity.TICKET,
        runbook="launch-failures",
        comparison="GreaterThanOrEqualToThreshold",
    )


def _degraded() -> tuple[MetricAlarm, MetricAlarm]:
    def alarm(key: str, meaning: str, line: float, periods: int, severity: Severity) -> MetricAlarm:
        return MetricAlarm(
            key=key,
            meaning=meaning,
            readings={"degraded": Reading("Degraded"), "requests": Reading("Requests")},
            expression=percent("degraded", "requests", FEWEST_REQUESTS),
            line=line,
            unit="% of requests",
            period_seconds=60,
            periods=periods,
            breaching=periods,
            severity=severity,
            runbook="degraded-share",
        )

    return (
        alarm(
            "degraded-share",
            "Rules instead of the model plan for some shoppers.",
            DEGRADED_PERCENT,
            10,
            Severity.TICKET,
        ),
        alarm(
            "mostly-degraded",
            "Rules plan for most shoppers: answers are in time, and poor. The models are gone or drowned.",
            MOSTLY_DEGRADED_PERCENT,
            5,
            Severity.PAGE,
        ),
    )


def _deploy_health(settings: FleetSettings) -> MetricAlarm:
    burning = f"{percent(BAD_ONES, ALL, FEWEST_REQUESTS)} > {FAST.bad_percent(settings):g}"
    return MetricAlarm(
        key="deploy-health",
        meaning="What runs now hurts: answers are bad or replicas crash. A deploy that sees this stops.",
        readings={"good": GOOD, **BAD, "restarts": Reading("ReplicaRestarts")},
        expression=f"IF({burning}, 1, 0) + IF(restarts >= {DEPLOY_RESTARTS}, 1, 0)",
        line=1,
        unit="signs of harm",
        period_seconds=60,
        periods=3,
        breaching=2,
        severity=Severity.TICKET,
        runbook="deploy-health",
        comparison="GreaterThanOrEqualToThreshold",
    )


def _telemetry_silent() -> MetricAlarm:
    return MetricAlarm(
        key="telemetry-silent",
        meaning="The balancer passes requests on, but the service reports none: its alarms are blind.",
        readings={
            "passed": Reading("RequestCount", ("LoadBalancer",)),
            "good": GOOD,
            "late": Reading("SloBad"),
        },
        expression=f"IF(passed >= {FEWEST_REQUESTS} AND good + late == 0, 1, 0)",
        line=1,
        unit="",
        period_seconds=60,
        periods=5,
        breaching=5,
        severity=Severity.TICKET,
        runbook="telemetry-silent",
        comparison="GreaterThanOrEqualToThreshold",
    )


def _deploying() -> MetricAlarm:
    return MetricAlarm(
        key="deploying",
        meaning="A deploy of this cell is under way or bakes.",
        readings={"deploying": Reading("DeployInProgress")},
        expression="deploying",
        line=1,
        unit="",
        period_seconds=60,
        periods=3,
        breaching=1,  # a minute's marker may be lost; three lost ones end the deploy's silence
        severity=Severity.PART,
        runbook="deploy-health",
        comparison="GreaterThanOrEqualToThreshold",
    )


def _quiet() -> CompositeAlarm:
    return CompositeAlarm(
        key="quiet",
        meaning="A deploy explains the noise: it runs, and shoppers are not hurt.",
        severity=Severity.PART,
        runbook="page",
        all_of=("deploying",),
        none_of=(FAST.key, "mostly-degraded"),
    )


def _page(paging: tuple[str, ...]) -> CompositeAlarm:
    return CompositeAlarm(
        key="page",
        meaning="A person is needed now. The alarm that caused it is in ALARM beside it.",
        severity=Severity.PAGE,
        runbook="page",
        any_of=paging,
        suppressed_by="quiet",
    )
