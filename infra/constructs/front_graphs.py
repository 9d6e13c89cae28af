"""The graphs of what stands before the hosts: zones, callers, connections, the certificate, lost metrics."""

from __future__ import annotations

from collections.abc import Sequence

from infra.constructs.graphs import Graph, Json, place
from infra.constructs.names import CellNames
from infra.fleet.alarm_kinds import Reading
from infra.fleet.settings import FleetSettings

BY_ZONE = ("AvailabilityZone", "LoadBalancer")
_TARGETS_BY_ZONE = ("TargetGroup", "AvailabilityZone", "LoadBalancer")
# What the service logs of each answer; CloudWatch Logs Insights counts it when somebody looks.
_CALLERS = "filter logger = 'service.api' and ispresent(caller) | stats count(*) as asked by bin(1m), caller"


def zone_graphs(settings: FleetSettings, names: CellNames) -> list[Graph]:
    """Return a cell's traffic, latency and healthy hosts by zone: one bad zone looks like a bad cell otherwise."""

    def graph(title: str) -> Graph:
        return Graph(f"{names.cell} {title}", fleet=settings.name, region=settings.region)

    asked, latency, healthy = graph("requests by zone"), graph("p99 by zone, s"), graph("healthy hosts by zone")
    for zone in settings.availability_zones:
        in_zone = (("AvailabilityZone", zone),)
        asked.curve(zone, "asked", {"asked": Reading("RequestCount", BY_ZONE, in_zone)}, [names])
        slow = Reading("TargetResponseTime", BY_ZONE, in_zone, none_is_zero=False, asked="p99")
        latency.curve(zone, "slow", {"slow": slow}, [names])
        there = Reading("HealthyHostCount", _TARGETS_BY_ZONE, in_zone, none_is_zero=False)
        healthy.curve(zone, "there", {"there": there}, [names])
    latency.line("SLO", settings.slo.p99_ms / 1000)
    return [asked, latency, healthy]


def front_graphs(settings: FleetSettings, cells: Sequence[CellNames], certificate: str) -> list[Graph]:
    """Return what callers and canaries meet: TLS, refused connections, the certificate; and metrics lost."""

    def graph(title: str, *, number: bool = False, period: int = 60) -> Graph:
        return Graph(title, fleet=settings.name, region=settings.region, period=period, number=number)

    refused = graph("TLS errors | rejected connections (right), by cell")
    lost = graph("Metrics lost on the way (EMF errors), by cell")
    for names in cells:
        tls = {"it": Reading("ClientTLSNegotiationErrorCount", ("LoadBalancer",))}
        refused.curve(f"{names.cell} TLS", "it", tls, [names])
        full = {"it": Reading("RejectedConnectionCount", ("LoadBalancer",))}
        refused.curve(f"{names.cell} rejected", "it", full, [names], right=True)
        group = (("LogGroupName", names.log_group),)
        errors = {
            "parsing": Reading("EMFParsingErrors", ("LogGroupName",), group),
            "validation": Reading("EMFValidationErrors", ("LogGroupName",), group),
        }
        lost.curve(names.cell, "parsing + validation", errors, [names])
    left = graph("Days until the certificate expires", number=True, period=86400)
    arn = (("CertificateArn", certificate),)
    left.curve(
        "days", "left", {"left": Reading("DaysToExpiry", ("CertificateArn",), arn, none_is_zero=False)}, cells[:1]
    )
    if not settings.synthetic_plans.enabled:
        return [refused, lost, left]
    asked = graph("Plans that canaries got, whole and in time, %, by cell")
    for names in cells:
        good = {"good": Reading("SuccessPercent", ("CanaryName",), none_is_zero=False)}
        asked.curve(names.cell, "good", good, [names])
    return [refused, lost, asked, left]


def caller_widget(settings: FleetSettings, cells: Sequence[CellNames], x: int, y: int, width: int, height: int) -> Json:
    """Return the requests of each caller, from the hosts' logs: a dimension for each would be a metric for each."""
    sources = " | ".join(f"SOURCE '{names.log_group}'" for names in cells)
    whose = ", ".join(names.cell for names in cells)
    properties = {
        "title": f"{whose} requests by caller, a minute",
        "region": settings.region,
        "query": f"{sources} | {_CALLERS}",
        "view": "timeSeries",
        "stacked": True,
    }
    return place("log", properties, x, y, width, height)
