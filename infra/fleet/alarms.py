"""The alarms of one cell, derived from a fleet's settings: error budgets, capacity, hosts, Neuron, deploys, and more.

Every cell has the same ones; the constructs render them into CloudWatch, alarm_table.py into Prometheus and Grafana.
Error budgets: Google, The Site Reliability Workbook, Alerting on SLOs, "Multiwindow, Multi-Burn-Rate Alerts".

Alarms on what hosts stand beside are tickets mostly: plans are made without any of it, and where callers are harmed the
cell's own alarms page. Neuron's have not run on hardware.
"""

import math
from collections.abc import Iterator, Mapping
from dataclasses import replace

from infra.fleet import sizing
from infra.fleet.alarm_kinds import AT_LEAST, Alarm, Burn, CompositeAlarm, MetricAlarm, Missing, Reading, Severity, Slo
from infra.fleet.parts import Group
from infra.fleet.settings import FleetSettings
from infra.fleet.shared_cache import BUSY_PERCENT, FULL_PERCENT
from infra.fleet.synthetic_plans import ALARM

# A share of fewer requests than this in a window is not significant.
FEWEST_REQUESTS = 20
# This is the offered work of a replica at which a person is needed if it lasts. 1 is a replica's full capacity; at 1.6
# nearly half of all shoppers get the reader's plans. A surge that the fleet recovers from by itself is shorter.
PAST_CAPACITY = 1.1
# The first share of plans by the reader deserves a look, and the second means that the models are gone.
DEGRADED_PERCENT, MOSTLY_DEGRADED_PERCENT = 5.0, 50.0
# One crash concerns one replica; three crashes in a minute point to the release.
DEPLOY_RESTARTS = 3
# An instance is late only this long after its boot time.
LAUNCH_GRACE_SECONDS = 600
# A deploy holds a page back for this long after its own alarm changed: one evaluation.
SUPPRESSION_SECONDS = 60
# Plans that both made and that differ: points of percent above what the reader expects. Of
# FEWEST_CHECKS with a tenth expected, chance alone moves the share by 3 points, so that 10 in two hours are no chance.
FEWEST_CHECKS, DIFFERING_POINTS = 100, 10.0

# The service reports 0 where nothing happened; missing data means that no host reports. The balancer omits counts of
# zero; its 5xx are bad answers that no replica counted.
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
    """Yield the alarms of the two windows, and the composite alarm that needs both.

    Late data never empties a window of five minutes or more, so a missing count is read as zero. A cell without
    hosts reports nothing itself: only the balancer's refusals are left.
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
        meaning="The load exceeds what the replicas can do, and scaling has not caught up: the reader plans the rest.",
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
        "Some shoppers get plans by the reader instead of by the model.",
        "Most shoppers get plans by the reader: the models are gone.",
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
        meaning="The reader's plans differ from the model's far more often than the reader expects.",
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
        meaning="The running release does harm: bad answers, plans by the reader, or crashing replicas. "
        "It stops a deploy.",
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


# Forwards fail occasionally; one in a thousand is significant.
RUNTIME_ERROR_PERCENT, RUNTIME_ERRORS = 0.1, 5


def neuron() -> Iterator[MetricAlarm]:

    def of(metric: str, dimension: str, value: str) -> Reading:
        return Reading(metric, ("Fleet", "Cell", dimension), ((dimension, value),))

    def error(kind: str) -> Reading:
        return of("execution_errors_total", "error_type", kind)

    def status(kind: str) -> Reading:
        return of("execution_status_total", "status_type", kind)

    yield MetricAlarm(
        key="neuron-hardware",
        meaning="A Neuron device lost data: an uncorrected memory error, or one that the runtime blames on hardware.",
        readings={
            "memory": of("hardware_ecc_events_total", "event_type", "mem_ecc_uncorrected"),
            "sram": of("hardware_ecc_events_total", "event_type", "sram_ecc_uncorrected"),
            "hardware": error("hardware"),
        },
        expression="memory + sram + hardware",
        line=1,
        unit="errors",
        evaluation=(300, 1, 1),
        severity=Severity.TICKET,
        comparison=AT_LEAST,
    )
    failed = {kind: error(kind) for kind in ("generic", "numerical", "model", "runtime")}
    failed |= {kind: status(kind) for kind in ("timed_out", "failed_to_queue")}
    bad = " + ".join(failed)
    yield MetricAlarm(
        key="neuron-runtime",
        meaning="Forward passes fail in the Neuron Runtime: errors, NaNs, timeouts, or a full queue.",
        readings={**failed, "completed": status("completed")},
        expression=f"IF({bad} >= {RUNTIME_ERRORS}, 100 * ({bad}) / IF({bad} == 0, 1, {bad} + completed), 0)",
        line=RUNTIME_ERROR_PERCENT,
        unit="% of forward passes",
        evaluation=(300, 2, 3),
        severity=Severity.TICKET,
    )


# So many times its minimum are in service where a group stands in; a refresh may have a host or two more.
MORE_STAND_IN = 1.5


def surroundings(settings: FleetSettings) -> Iterator[MetricAlarm]:
    if settings.access.privatelink:
        yield _private_link()
    if reserves_for_events(settings):
        yield _reservations()
    for group in settings.groups:
        if group.stands_in:
            yield _standing_in(settings, group)
    if settings.shared_cache.enabled:
        yield _cache_down()
        yield _cache_full(settings.shared_cache.nodes)
    if settings.synthetic_plans.enabled:
        yield _canary()


def _ticket(
    key: str,
    meaning: str,
    readings: Mapping[str, Reading],
    expression: str,
    evaluation: tuple[int, int, int],
    *,
    line: float = 1,
    unit: str = "",
    runbook: str = "",
    missing: Missing = "notBreaching",
) -> MetricAlarm:
    """Return an alarm that fires at its line and can wait for the morning."""
    return MetricAlarm(
        key=key,
        meaning=meaning,
        readings=readings,
        expression=expression,
        line=line,
        unit=unit,
        evaluation=evaluation,
        severity=Severity.TICKET,
        runbook=runbook,
        comparison=AT_LEAST,
        missing=missing,
    )


def _private_link() -> MetricAlarm:
    return _ticket(
        "privatelink",
        "The network load balancer of PrivateLink sees no healthy cell behind it. It sends callers there all "
        "the same, and nothing would be taken out.",
        {"healthy": Reading("FrontHealthyHostCount", ("TargetGroup", "LoadBalancer"), none_is_zero=False)},
        "IF(healthy < 1, 1, 0)",
        (60, 3, 5),
        missing="breaching",
    )


def reserves_for_events(settings: FleetSettings) -> bool:
    """Return whether anything is reserved for events, of EC2's capacity or of the load balancers'."""
    groups = any(group.reserve for group in settings.groups)
    return bool(settings.events) and (groups or settings.load_balancer.reserve_capacity)


def _reservations() -> MetricAlarm:
    return MetricAlarm(
        key="reservations",
        meaning="AWS refuses capacity that an event reserves, again and again: a zone lacks chips, or a quota is full.",
        readings={"refused": Reading("TargetErrorCount", ("ScheduleGroup",))},
        expression="refused",
        line=1,
        unit="refused calls",
        evaluation=(300, 2, 6),
        severity=Severity.PAGE,
        comparison=AT_LEAST,
    )


def standing_in(settings: FleetSettings, group: Group) -> tuple[str, dict[str, Reading]]:
    """Return metric math for a stand-in group's hosts in service over a minute, and its reading."""
    of_group = ("Fleet", "Cell", "Group"), (("Group", group.chip),)
    replicas = sizing.replicas_per_instance(group, settings.model.tensor_parallel)
    return f"standing_in / {60 * replicas}", {"standing_in": Reading("ReplicaSeconds", *of_group, none_is_zero=False)}


def _standing_in(settings: FleetSettings, group: Group) -> MetricAlarm:
    """Return the alarm on stand-in hosts that carry load: shoppers notice nothing, but the other groups lack hosts."""
    expression, readings = standing_in(settings, group)
    return _ticket(
        "stand-in",
        "Hosts that stand in carry load, because those that are sized for it are full: chips are not to be had, or a "
        "load came that nobody scheduled.",
        readings,
        expression,
        (60, 10, 15),
        line=MORE_STAND_IN * group.minimum,
        unit="hosts",
    )


def _cache_down() -> MetricAlarm:
    return _ticket(
        "shared-cache-down",
        "Half of the hosts or more get no answer from the cell's shared cache. Plans are made all the same, "
        "and each host remembers its own.",
        {"down": Reading("SharedCacheDown", none_is_zero=False)},
        "100 * down",
        (60, 5, 8),
        line=50,
        unit="% of hosts",
        runbook="shared-cache",
    )


def _cache_full(nodes: int) -> MetricAlarm:
    """Return the alarm on full or busy cache nodes. Readings sum over all nodes: the expression averages them."""
    return _ticket(
        "shared-cache-full",
        "The nodes of the cell's shared cache are nearly full or busy: plans are forgotten or come late.",
        {
            "memory": Reading("DatabaseMemoryUsagePercentage", ("CacheClusterId",), none_is_zero=False),
            "engine": Reading("EngineCPUUtilization", ("CacheClusterId",), none_is_zero=False),
        },
        f"IF(memory / {nodes} > {FULL_PERCENT}, 1, 0) + IF(engine / {nodes} > {BUSY_PERCENT}, 1, 0)",
        (60, 10, 15),
        runbook="shared-cache",
    )


def _canary() -> MetricAlarm:
    return _ticket(
        ALARM,
        "The cell's canary asks a real plan each minute, and gets none, a late one, or one by the reader. "
        "It stops a deploy.",
        {"good": Reading("SuccessPercent", ("CanaryName",), none_is_zero=False)},
        "IF(good < 100, 1, 0)",
        (60, 2, 3),
    )


# The alarms on shoppers compare a cell with all others: a release goes to one cell first, and callers are spread over
# cells by chance, so that the other cells are its control. They are read every minute for as long as the fleet stands:
# at LINE, z of 5, chance alone crosses it with 3 in ten million looks, and by the union bound over a year of minutes a
# cell has 0.15 false alarms. A cell without others, or with too few shoppers, has none of either kind.
HOUR_SECONDS = 3600
LINE = 25.0  # z squared, because metric math and Prometheus then need no roots
FEWEST_SHOWN, FEWEST_CHOSEN = 1000, 100  # below these a share is not near enough to normal
HERE, EVERYWHERE = ("Fleet", "PlannedIn"), ("Fleet",)
# The keys of the alarms that a deploy's bake watches.
CLICKS, PURCHASES = "shoppers-click-less", "shoppers-buy-less"


def readings(metric: str) -> dict[str, Reading]:
    """Return plans shown (n) and those of them with this outcome (k), of a cell and of the fleet."""
    return {
        "n": Reading("AnswersShown", HERE),
        "k": Reading(metric, HERE),
        "n_all": Reading("AnswersShown", EVERYWHERE),
        "k_all": Reading(metric, EVERYWHERE),
    }


def loss_squared() -> str:
    """Return metric math for the squared z score of two shares, 0 unless the cell's share is the smaller one.

    z = (k'/n' - k/n) / sqrt(p (1 - p) (1/n + 1/n')), with n' and k' of the other cells and p = k_all / n_all.
    """
    loss = "(k_all * n - k * n_all)"  # k' n - k n'
    spread = "(k_all * (n_all - k_all) * n * (n_all - n))"
    safe = f"IF({spread} == 0, 1, {spread})"
    enough = f"n >= {FEWEST_SHOWN} AND n_all - n >= {FEWEST_SHOWN} AND k_all >= {FEWEST_CHOSEN} AND n_all > k_all"
    return f"IF({enough} AND {loss} > 0, {loss} * {loss} * n_all / {safe}, 0)"


def shoppers() -> Iterator[MetricAlarm]:
    """Yield the alarms on harm to shoppers that latency and errors do not show."""
    for key, metric, verb in ((CLICKS, "AnswersClicked", "click"), (PURCHASES, "AnswersBought", "buy")):
        yield MetricAlarm(
            key=key,
            meaning=f"Shoppers {verb} less after this cell's plans than after the other cells', beyond chance.",
            readings=readings(metric),
            expression=loss_squared(),
            line=LINE,
            unit="(the difference's z score, squared)",
            evaluation=(HOUR_SECONDS, 1, 1),
            severity=Severity.TICKET,
            runbook="shoppers-harmed",
        )
