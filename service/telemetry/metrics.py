"""The service's metrics, for CloudWatch (EMF) and Prometheus alike.

A request costs a handful of additions here. Counters of the gateway and the cache are read every few seconds, and so
are CloudWatch's lines written: under load a line for each request would cost more than a cached plan.
"""

import asyncio
import json
import logging
import os
import re
import sys
import threading
import time
from collections import defaultdict
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field
from functools import cache
from typing import Any

from prometheus_client import CollectorRegistry, Counter, Gauge, Histogram, generate_latest

from service.telemetry.names import DegradedReason, MetricName, answer_sources, metric_names, namespace

_MOST_VALUES = 100  # of one metric in one line

Series = dict[str, list[float]]  # values by metric name
Label = tuple[str, str]  # a dimension that belongs to a value, and not to the host: ("Source", "model")

logger = logging.getLogger(__name__)

CONTENT_TYPE = "text/plain; version=0.0.4; charset=utf-8"
_SECONDS = (0.001, 0.005, 0.01, 0.025, 0.05, 0.075, 0.1, 0.15, 0.2, 0.25, 0.3, 0.4, 0.5, 1.0, 2.0)
_TOKENS = (1, 1.5, 2, 2.5, 3, 3.5, 4, 5, 6, 8)
_PERCENT = tuple(range(10, 101, 10))
_OF_HOSTS = {"Fleet", "Cell", "Group", "Release"}  # a scraper knows which host it scrapes
_GAUGES = ("OutstandingPerReplica", "ReplicasInService", "SharedCacheDown")  # true now; everything else is counted
FLUSH_SECONDS = 10.0
_FLUSHES_A_MINUTE = 6
_LAST_WRITE_SECONDS = 1.0
# Told every time, as 0 where nothing happened: alarms can then tell a quiet host from a silent one.
_ALWAYS = ("Requests", "Degraded", "Shed", "SloGood", "SloBad", "OfferedWork", "ReplicaRestarts")


class EmfCollector:
    """Collects values until `lines` returns them: a few lines for each label, and one for what has none."""

    def __init__(self, dimensions: Mapping[str, str]) -> None:
        """Take `dimensions`: Fleet, Cell and, where there are, Group and Release; sets that need more are left out."""
        self._dimensions = {name: value for name, value in dimensions.items() if value}
        self._series: dict[Label | None, Series] = defaultdict(lambda: defaultdict(list))

    def add(self, name: str, value: float, label: Label | None = None) -> None:
        """Record one value. Raises KeyError for a metric that the fleet's list does not contain."""
        self._series[label][metric_names()[name].name].append(round(value, 3))

    def lines(self, properties: Mapping[str, str] | None = None) -> list[str]:
        """Return the lines collected since the last call. `properties` are in every line; they are no dimensions."""
        collected, self._series = self._series, defaultdict(lambda: defaultdict(list))
        now = int(time.time() * 1000)
        return [
            json.dumps(self._document(now, label, piece, properties or {}), separators=(",", ":"))
            for label, series in collected.items()
            for piece in _pieces(_sums(series))
        ]

    def _document(
        self, now: int, label: Label | None, series: Series, properties: Mapping[str, str]
    ) -> dict[str, object]:
        known = self._dimensions | dict([label] if label else [])
        directives = []
        by_sets: dict[tuple[tuple[str, ...], ...], list[MetricName]] = defaultdict(list)
        for name in series:
            metric = metric_names()[name]
            by_sets[tuple(chosen for chosen in metric.dimensions if set(chosen) <= set(known))].append(metric)
        for sets, metrics in by_sets.items():
            definitions = [_definition(metric) for metric in metrics]
            directives.append({"Namespace": namespace(), "Dimensions": sets, "Metrics": definitions})
        values = {name: numbers[0] if len(numbers) == 1 else numbers for name, numbers in series.items()}
        return {"_aws": {"Timestamp": now, "CloudWatchMetrics": directives}, **known, **properties, **values}


def _definition(metric: MetricName) -> dict[str, Any]:
    high = {"StorageResolution": 1} if metric.resolution == 1 else {}
    return {"Name": metric.name, "Unit": metric.unit, **high}


def _sums(series: Series) -> Series:
    """Reduce counts to their sum; of times and shares every value is kept for the percentiles."""
    return {
        name: [sum(values)] if metric_names()[name].statistic == "Sum" else values for name, values in series.items()
    }


def _pieces(series: Series) -> Iterator[Series]:
    """Cut series into lines with no more values than a line may hold."""
    longest = max((len(values) for values in series.values()), default=0)
    for start in range(0, longest, _MOST_VALUES):
        yield {name: piece for name, values in series.items() if (piece := values[start : start + _MOST_VALUES])}


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
        return generate_latest(self._registry)


def _snake(name: str) -> str:
    return "peakplan_" + re.sub(r"(?<!^)(?=[A-Z])", "_", name).lower()


@dataclass(frozen=True, slots=True, kw_only=True)
class Outcome:
    """One request that got a plan. Times in milliseconds; the model's is None where no model took part."""

    source: str  # model, cache, rules or fallback
    milliseconds: float
    degraded: bool
    queue_milliseconds: float | None = None
    tokens_per_step: float | None = None
    forced_percent: float | None = None
    reason: DegradedReason | None = None  # what kept the model from it, where the reader planned
    intent: str = ""
    drafts: int = 0  # forwards that verified guesses, how many guesses, and how often each in a row was accepted
    draft_tokens: int = 0
    accepted_by_position: tuple[int, ...] = ()
    prompt_tokens: int = 0  # of a model's prompt, and how many of them a prefix cache had
    cached_tokens: int = 0


@dataclass(frozen=True, slots=True, kw_only=True)
class Reading:
    """The state of gateway and cache: counts since the start by metric name, and how busy they are now.

    `asked` counts requests that needed the model, refused ones too; one takes a replica `service_seconds` on average.
    """

    totals: Mapping[str, float] = field(default_factory=dict)
    asked: int = 0
    service_seconds: float = 0.0
    outstanding: int = 0
    replicas: int = 0
    model_version: str = ""
    shared_cache_up: bool | None = None  # None where no shared cache is set


class Metrics:
    """All metrics of the service. `read` is called at every flush and every scrape."""

    def __init__(
        self,
        read: Callable[[], Reading],
        slo_milliseconds: float,
        emf: EmfCollector | None = None,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self._read = read
        self._slo = slo_milliseconds
        self._emf = emf
        self._prometheus = PrometheusMeters()
        self._seen: defaultdict[str, float] = defaultdict(float)
        self._turned_away = 0  # requests for which not even the reader had time: they wanted a plan all the same
        self._clock = clock
        self._reported = clock()
        self._flushes = 0
        self._watched: list[Callable[[], Mapping[str, float]]] = []

    def arrived(self) -> None:
        self._add("Requests", 1)

    def planned(self, outcome: Outcome) -> None:
        source = outcome.source
        self._add("Answered", 1, ("Source", source))
        self._add("Latency", outcome.milliseconds, ("Source", source))
        if outcome.intent:
            self._add("Intents", 1, ("Intent", outcome.intent))
        if outcome.reason is not None:
            self._add("Fallbacks", 1, ("Reason", outcome.reason))
        if source == "model":
            self._add("ModelLatency", outcome.milliseconds)
        if outcome.degraded:
            self._add("Degraded", 1)
        if outcome.queue_milliseconds is not None:
            self._add("QueueTime", outcome.queue_milliseconds)
        if outcome.tokens_per_step is not None:
            self._add("TokensPerStep", outcome.tokens_per_step)
        if outcome.forced_percent is not None:
            self._add("ForcedShare", outcome.forced_percent)
        if outcome.drafts:
            self._drafted(outcome)
        if outcome.prompt_tokens:
            self._add("PrefixCacheQueries", outcome.prompt_tokens)
            self._add("PrefixCacheHits", outcome.cached_tokens)
        self._add("SloGood" if outcome.milliseconds <= self._slo else "SloBad", 1)

    def _drafted(self, outcome: Outcome) -> None:
        """Count drafts by vLLM's names of them."""
        self._add("SpecDecodeNumDrafts", outcome.drafts)
        self._add("SpecDecodeNumDraftTokens", outcome.draft_tokens)
        self._add("SpecDecodeNumAcceptedTokens", sum(outcome.accepted_by_position))
        for position, accepted in enumerate(outcome.accepted_by_position):
            self._add("SpecDecodeNumAcceptedTokensPerPos", accepted, ("Position", str(position)))

    def shed(self, *, for_want_of_room: bool = True) -> None:
        """Count a refusal: with 503 for lack of capacity, or with 429 for a caller above its rate."""
        self._turned_away += for_want_of_room
        self._add("Shed", 1)
        self._add("SloBad", 1)

    def failed(self) -> None:
        self._add("SloBad", 1)

    def faulted(self) -> None:
        """Count a fault of ours at a trace or a search, which are no plans, as `planned` counts one at a plan."""
        self._add("Fallbacks", 1, ("Reason", "fault"))

    def happened(self, name: str, value: float, cell: str) -> None:
        """Record what became of a plan; where the id tells which `cell` made it, under that cell's name too."""
        if not _is_by_cell(name):
            self._add(name, value)
        else:
            self._add(name, value, ("PlannedIn", cell or "-"))

    def watch(self, totals: Callable[[], Mapping[str, float]]) -> None:
        """Read these counts since the start, too, at every flush and scrape."""
        self._watched.append(totals)

    def exposition(self) -> bytes:
        self._take_reading(self._read())
        return self._prometheus.text()

    def lines(self) -> list[str]:
        """Return CloudWatch lines with the values since the last call; none where EMF is off."""
        reading = self._read()
        self._take_reading(reading)
        if self._emf is None:
            return []
        for name in _ALWAYS:
            self._emf.add(name, 0)
        self._emf.add("OutstandingPerReplica", reading.outstanding / max(reading.replicas, 1))
        if reading.shared_cache_up is not None:
            self._emf.add("SharedCacheDown", not reading.shared_cache_up)
        if self._flushes % _FLUSHES_A_MINUTE == 0:
            self._emf.add("ReplicasInService", reading.replicas)
        self._flushes += 1
        return self._emf.lines({"ModelVersion": reading.model_version})

    async def publish_for_ever(self, write: Callable[[bytes], None], seconds: float = FLUSH_SECONDS) -> None:
        """Write lines every few seconds until cancelled, and a last time then.

        They are written in a thread, which ends with the process: their reader may stall, and the service must not.
        Lines that come meanwhile, or cannot be written, are lost.
        """
        writing: threading.Thread | None = None
        try:
            while True:
                await asyncio.sleep(seconds)
                writing = _write_apart(write, self.lines(), writing)
        finally:
            if writing is not None:
                writing.join(_LAST_WRITE_SECONDS)
            _write_apart(write, self.lines(), writing).join(_LAST_WRITE_SECONDS)

    def _take_reading(self, reading: Reading) -> None:
        """Add the increase of the totals, and set the gauges."""
        totals = [reading.totals, *(watched() for watched in self._watched)]
        for name, total in (item for each in totals for item in each.items()):
            if grown := total - self._seen[name]:
                self._add(name, grown)
                self._seen[name] = total
        if grown := reading.asked + self._turned_away - self._seen["asked"]:
            self._add("OfferedWork", grown * reading.service_seconds)
            self._seen["asked"] += grown
        now = self._clock()
        self._add("ReplicaSeconds", reading.replicas * (now - self._reported))
        self._reported = now
        self._prometheus.add("OutstandingPerReplica", reading.outstanding / max(reading.replicas, 1))
        self._prometheus.add("ReplicasInService", reading.replicas)
        if reading.shared_cache_up is not None:
            self._prometheus.add("SharedCacheDown", not reading.shared_cache_up)

    def _add(self, name: str, value: float, label: Label | None = None) -> None:
        self._prometheus.add(name, value, label)
        if self._emf is not None:
            self._emf.add(name, value, label)


@cache
def _is_by_cell(name: str) -> bool:
    return any("PlannedIn" in chosen for chosen in metric_names()[name].dimensions)


def write_to_stdout(data: bytes) -> None:
    """Write everything, bypassing Python's buffer, which would fail at exit on a full disk. Raises OSError."""
    while data:
        data = data[os.write(sys.stdout.fileno(), data) :]


def _write_apart(
    write: Callable[[bytes], None], lines: list[str], earlier: threading.Thread | None
) -> threading.Thread:
    """Write lines in a thread, unless an earlier one still waits; return the thread that writes."""
    if earlier is not None and earlier.is_alive():
        logger.warning("metrics not written", extra={"reason": "nobody reads them", "lines": len(lines)})
        return earlier
    thread = threading.Thread(target=_write_if_possible, args=(write, lines), daemon=True)
    thread.start()
    return thread


def _write_if_possible(write: Callable[[bytes], None], lines: list[str]) -> None:
    try:
        write("".join(f"{line}\n" for line in lines).encode())
    except OSError as error:  # a full disk, a closed pipe
        logger.warning("metrics not written", extra={"reason": error.strerror or type(error).__name__})
