"""The alarms on what a cell's hosts stand beside: PrivateLink, capacity reserved or standing in, the cache, the canary.

Most are tickets: hosts make plans without any of these, and where callers are harmed the cell's own alarms page.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping

from infra.fleet import sizing
from infra.fleet.alarm_kinds import AT_LEAST, MetricAlarm, Missing, Reading, Severity
from infra.fleet.parts import Group
from infra.fleet.settings import FleetSettings
from infra.fleet.shared_cache import BUSY_PERCENT, FULL_PERCENT
from infra.fleet.synthetic_plans import ALARM

# So many times its minimum are in service where a group stands in; a refresh may have a host or two more.
MORE_STAND_IN = 1.5


def surroundings(settings: FleetSettings) -> Iterator[MetricAlarm]:
    """Yield the alarms on those surroundings that the fleet has."""
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
    """Return the alarm on refused reservations, which pages: what lacks an hour before an event lacks in the event."""
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
    """Return metric math for a minute's hosts in service of a group that stands in, and its reading."""
    of_group = ("Fleet", "Cell", "Group"), (("Group", group.chip),)
    replicas = sizing.replicas_per_instance(group, settings.model.tensor_parallel)
    return f"standing_in / {60 * replicas}", {"standing_in": Reading("ReplicaSeconds", *of_group, none_is_zero=False)}


def _standing_in(settings: FleetSettings, group: Group) -> MetricAlarm:
    """Return the alarm on what stands in, of which shoppers notice nothing: that the others lack hosts shows here."""
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
    """Return the alarm on the nodes' average: a reading over several nodes is their sum, whichever is the primary."""
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
    """Return the alarm on the cell's canary, which stops a rollout; one bad minute may be a lost connection."""
    return _ticket(
        ALARM,
        "The cell's canary asks a real plan each minute, and gets none, a late one, or one by rule. It stops a deploy.",
        {"good": Reading("SuccessPercent", ("CanaryName",), none_is_zero=False)},
        "IF(good < 100, 1, 0)",
        (60, 2, 3),
    )
