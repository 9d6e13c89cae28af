"""The service's metrics, for CloudWatch (EMF) and Prometheus alike.

A request costs a handful of additions here. Counters of the gateway and the cache are read every few seconds.
"""

import asyncio
import logging
import os
import sys
import threading
import time
from collections import defaultdict
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from functools import cache

from service.telemetry.emf import EmfCollector, Label
from service.telemetry.names import DegradedReason, metric_names
from service.telemetry.prometheus import PrometheusMeters

logger = logging.getLogger(__name__)

FLUSH_SECONDS = 10.0
_FLUSHES_A_MINUTE = 6
_LAST_WRITE_SECONDS = 1.0
# Told every time, as 0 where nothing happened: alarms can then tell a quiet host from a silent one.
_ALWAYS = ("Requests", "Degraded", "Shed", "SloGood", "SloBad", "OfferedWork", "ReplicaRestarts")


@dataclass(frozen=True, slots=True, kw_only=True)
class Outcome:
    """One request that got a plan. Times in milliseconds; the model's is None where no model took part."""

    source: str  # model, cache, rules or fallback
    milliseconds: float
    degraded: bool
    queue_milliseconds: float | None = None
    tokens_per_step: float | None = None
    forced_percent: float | None = None
    reason: DegradedReason | None = None  # what kept the model from it, where rules planned
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
        self._turned_away = 0  # requests for which not even rules had time: they wanted a plan all the same
        self._clock = clock
        self._reported = clock()
        self._flushes = 0
        self._watched: list[Callable[[], Mapping[str, float]]] = []

    def arrived(self) -> None:
        """Count a request for a plan."""
        self._add("Requests", 1)

    def planned(self, outcome: Outcome) -> None:
        """Record a request that got its plan."""
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
        """Count a request that failed because of a bug."""
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
        """Return the current metrics for Prometheus."""
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
