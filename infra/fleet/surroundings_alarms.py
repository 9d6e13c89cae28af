"""The alarms on what a cell's hosts stand beside: PrivateLink's load balancer, capacity reserved, the shared cache.

Most are tickets: hosts make plans without either, and where callers are harmed the cell's own alarms page.
"""

from __future__ import annotations

from collections.abc import Iterator

from infra.fleet.alarm_kinds import MetricAlarm, Reading, Severity
from infra.fleet.settings import FleetSettings
from infra.fleet.shared_cache import BUSY_PERCENT, FULL_PERCENT


def surroundings(settings: FleetSettings) -> Iterator[MetricAlarm]:
    """Yield the alarms on those surroundings that the fleet has."""
    if settings.access.privatelink:
        yield _private_link()
    if reserves_for_events(settings):
        yield _reservations()
    if settings.shared_cache.enabled:
        yield _cache_down()
        yield _cache_full(settings.shared_cache.nodes)


def _private_link() -> MetricAlarm:
    return MetricAlarm(
        key="privatelink",
        meaning="The network load balancer of PrivateLink sees no healthy cell behind it. It sends callers there all "
        "the same, and nothing would be taken out.",
        readings={"healthy": Reading("FrontHealthyHostCount", ("TargetGroup", "LoadBalancer"), none_is_zero=False)},
        expression="IF(healthy < 1, 1, 0)",
        line=1,
        unit="",
        evaluation=(60, 3, 5),
        severity=Severity.TICKET,
        comparison="GreaterThanOrEqualToThreshold",
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
        comparison="GreaterThanOrEqualToThreshold",
    )


def _cache_down() -> MetricAlarm:
    return MetricAlarm(
        key="shared-cache-down",
        meaning="Half of the hosts or more get no answer from the cell's shared cache. Plans are made all the same, "
        "and each host remembers its own.",
        readings={"down": Reading("SharedCacheDown", none_is_zero=False)},
        expression="100 * down",
        line=50,
        unit="% of hosts",
        evaluation=(60, 5, 8),
        severity=Severity.TICKET,
        runbook="shared-cache",
        comparison="GreaterThanOrEqualToThreshold",
    )


def _cache_full(nodes: int) -> MetricAlarm:
    """Return the alarm on the nodes' average: a reading over several nodes is their sum, whichever is the primary."""
    return MetricAlarm(
        key="shared-cache-full",
        meaning="The nodes of the cell's shared cache are nearly full or busy: plans are forgotten or come late.",
        readings={
            "memory": Reading("DatabaseMemoryUsagePercentage", ("CacheClusterId",), none_is_zero=False),
            "engine": Reading("EngineCPUUtilization", ("CacheClusterId",), none_is_zero=False),
        },
        expression=f"IF(memory / {nodes} > {FULL_PERCENT}, 1, 0) + IF(engine / {nodes} > {BUSY_PERCENT}, 1, 0)",
        line=1,
        unit="",
        evaluation=(60, 10, 15),
        severity=Severity.TICKET,
        runbook="shared-cache",
        comparison="GreaterThanOrEqualToThreshold",
    )
