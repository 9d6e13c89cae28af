"""What a verdict is made from: Prometheus's own numbers and alerts, over its HTTP API."""

from __future__ import annotations

import json
import math
import time
import urllib.parse
from dataclasses import dataclass
from typing import Any

from rehearsal.stack.folder import PROMETHEUS, ROOT, Folder, StackError
from rehearsal.stack.processes import fetch

DASHBOARD = ROOT / "docs" / "monitoring" / "grafana.json"
_AWS_ALONE = ("synthetic-plans", "stand-in")  # a stack has no canary, and no group that stands in
LATE_MS = 350  # the deadline and what is allowed after it, as Envoy's buckets have it
_ANSWERED = 'envoy_http_conn_manager_prefix="plans"'
_STEP_SECONDS = 1


@dataclass(frozen=True)
class Alert:
    """An alert that fired: seconds from the load's start at which it did first and last, in one cell."""

    name: str
    severity: str
    cell: str
    first: float
    last: float
    cleared: bool


@dataclass(frozen=True)
class Readings:
    """A scenario in Prometheus's numbers: counts, shares of 1, and milliseconds."""

    requests: float
    failed: float  # answers 5xx
    late: float  # answered after the deadline and what is allowed after it
    limited: float  # refused because the caller is over its rate
    by_rule: float  # share of what hosts planned
    hits: float  # share of it that a cache answered
    goodput: float  # plans by the model or its cache, a second
    p25_ms: float  # of answers from a cache: more than a quarter of them are
    p50_ms: float
    p99_ms: float
    retried: float


class Monitor:
    """Asks one stack's Prometheus."""

    def __init__(self, folder: Folder) -> None:
        self._folder = folder
        self._url = f"http://{folder.address(PROMETHEUS)}:9090/api/v1"

    def value(self, query: str, at: float, default: float = 0.0) -> float:
        """Return the one number that a query gives at a Unix time, `default` where it gives none. Raises StackError."""
        found = self._ask("query", query=query, time=f"{at:.3f}")
        return float(found[0]["value"][1]) if found else default

    def alerts(self, begin: float, end: float) -> list[Alert]:
        """Return the alerts that fired between two Unix times, in the order in which they did. Raises StackError.

        Those that fired at the first already are the warm-up's, and left out.
        """
        found = self._range('ALERTS{alertstate="firing"}', begin, end)
        alerts = []
        for each in found:
            labels, moments = each["metric"], [float(moment) for moment, _ in each["values"]]
            if moments[0] - begin < _STEP_SECONDS:
                continue
            name, severity = labels["alertname"].removeprefix("Peakplan"), labels["severity"]
            # A series lives on for some seconds after its last evaluation only where rules are not evaluated anew.
            cleared = end - moments[-1] > 2 * _STEP_SECONDS
            first, last = moments[0] - begin, moments[-1] - begin
            alerts.append(Alert(name, severity, labels.get("cell", ""), first, last, cleared))
        return sorted(alerts, key=lambda alert: (alert.first, alert.name))

    def has_seen(self, moment: float) -> bool:
        """Return whether every target was scraped, with success, after a Unix time. Raises StackError."""
        now = time.time()
        fresh = self.value(f"count((timestamp(up) > {moment:.3f}) and (up == 1))", now)
        return fresh > 0 and fresh == self.value("count(up)", now)

    def readings(self, begin: float, end: float, seconds: float) -> Readings:
        """Return what happened between two Unix times, to a load of so many seconds. Raises StackError."""
        window = f"{round((end - begin) * 1000)}ms"

        def grown(metric: str) -> float:
            return self.value(f"sum(increase({metric}[{window}]))", end)

        def quantile(share: float) -> float:
            buckets = f"sum by (le) (increase(envoy_http_downstream_rq_time_bucket{{{_ANSWERED}}}[{window}]))"
            return self.value(f"histogram_quantile({share}, {buckets})", end, float("nan"))

        planned, by_rule = grown("peakplan_requests_total"), grown("peakplan_degraded_total")
        completed = grown(f"envoy_http_downstream_rq_time_count{{{_ANSWERED}}}")
        hits = grown('peakplan_answered_total{source="cache"}')
        return Readings(
            requests=completed,
            failed=grown(f'envoy_http_downstream_rq_xx{{{_ANSWERED},envoy_response_code_class="5"}}'),
            late=completed - grown(f'envoy_http_downstream_rq_time_bucket{{{_ANSWERED},le="{LATE_MS}"}}'),
            limited=grown('envoy_http_local_rate_limit_rate_limited{envoy_local_http_ratelimit_prefix="callers"}'),
            by_rule=by_rule / max(planned, 1.0),
            hits=hits / max(planned, 1.0),
            goodput=(planned - by_rule) / seconds,
            p25_ms=quantile(0.25),
            p50_ms=quantile(0.5),
            p99_ms=quantile(0.99),
            retried=grown("envoy_cluster_upstream_rq_retry"),
        )

    def empty_panels(self, begin: float, end: float) -> list[str]:
        """Return the titles of the Grafana dashboard's panels that show no finite number between two Unix times."""
        panels = json.loads(DASHBOARD.read_text(encoding="utf-8"))["panels"]
        queries = {panel["title"]: panel["targets"][0]["expr"] for panel in panels}
        return [
            title
            for title, query in queries.items()
            if title not in _AWS_ALONE
            and not any(
                math.isfinite(float(value)) for each in self._range(query, begin, end) for _, value in each["values"]
            )
        ]

    def _range(self, query: str, begin: float, end: float) -> list[dict[str, Any]]:
        times = {"start": f"{begin:.3f}", "end": f"{end:.3f}", "step": str(_STEP_SECONDS)}
        return self._ask("query_range", query=query, **times)

    def _ask(self, endpoint: str, **parameters: str) -> list[dict[str, Any]]:
        body = fetch(f"{self._url}/{endpoint}?{urllib.parse.urlencode(parameters)}", 10.0)
        if not body:
            raise StackError(f"Prometheus does not answer {parameters['query']}")
        result: list[dict[str, Any]] = json.loads(body)["data"]["result"]
        return result
