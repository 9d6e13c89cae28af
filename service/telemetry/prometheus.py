"""Metrics for Prometheus, the answer of `GET /metrics`. Names follow its conventions: base units, `_total`."""

import re

from prometheus_client import CollectorRegistry, Counter, Gauge, Histogram, generate_latest

from service.telemetry.emf import Label
from service.telemetry.names import MetricName, answer_sources, metric_names

CONTENT_TYPE = "text/plain; version=0.0.4; charset=utf-8"
_SECONDS = (0.001, 0.005, 0.01, 0.025, 0.05, 0.075, 0.1, 0.15, 0.2, 0.25, 0.3, 0.4, 0.5, 1.0, 2.0)
_TOKENS = (1, 1.5, 2, 2.5, 3, 3.5, 4, 5, 6, 8)
_PERCENT = tuple(range(10, 101, 10))
_OF_HOSTS = {"Fleet", "Cell", "Group", "Release"}  # a scraper knows which host it scrapes
_GAUGES = ("OutstandingPerReplica", "ReplicasInService", "SharedCacheDown")  # true now; everything else is counted


class PrometheusMeters:
    """One meter for each metric of the fleet's list."""

    def __init__(self) -> None:
        self._registry = CollectorRegistry()
        self._counters: dict[str, Counter] = {}
        self._histograms: dict[str, Histogram] = {}
        self._gauges: dict[str, Gauge] = {}
        for metric in metric_names().values():
            self._add_meter(metric)

    def _add_meter(self, metric: MetricName) -> None:
        name, text = _snake(metric.name), metric.description
        if metric.name in _GAUGES:
            self._gauges[metric.name] = Gauge(name, text, registry=self._registry)
            return
        labels = sorted({name.lower() for chosen in metric.dimensions for name in chosen if name not in _OF_HOSTS})
        meter: Counter | Histogram
        if metric.statistic == "Sum":
            meter = self._counters[metric.name] = Counter(name, text, labels, registry=self._registry)
        else:
            name += {"Milliseconds": "_seconds", "Percent": "_percent"}.get(metric.unit, "")
            buckets = {"Milliseconds": _SECONDS, "Percent": _PERCENT}.get(metric.unit, _TOKENS)
            meter = Histogram(name, text, labels, buckets=buckets, registry=self._registry)
            self._histograms[metric.name] = meter
        known = {"source": answer_sources(), **{name.lower(): values for name, values in metric.values.items()}}
        for value in known.get(labels[0], ()) if labels else ():
            meter.labels(value)  # one that has not been counted yet shows as 0, not as missing

    def add(self, name: str, value: float, label: Label | None = None) -> None:
        """Record one value under the fleet's name of the metric."""
        if (gauge := self._gauges.get(name)) is not None:
            gauge.set(value)
        elif (counter := self._counters.get(name)) is not None:
            (counter.labels(label[1]) if label else counter).inc(value)
        else:
            histogram = self._histograms[name]
            seconds = value / 1000 if metric_names()[name].unit == "Milliseconds" else value
            (histogram.labels(label[1]) if label else histogram).observe(seconds)

    def text(self) -> bytes:
        """Return everything in Prometheus's text format."""
        return generate_latest(self._registry)


def _snake(name: str) -> str:
    return "peakplan_" + re.sub(r"(?<!^)(?=[A-Z])", "_", name).lower()
