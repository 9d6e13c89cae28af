"""One cell's data plane: the compiled event loop (native/cell.h) with its inputs and counts as numpy arrays.

Times are seconds since the beginning. What the control plane knows ahead it schedules; the rest it does between two
calls of `advance`.
"""

from __future__ import annotations

import ctypes
import math
from dataclasses import dataclass, field
from enum import IntEnum
from pathlib import Path
from typing import Any

import numpy as np

from infra.fleet.policies import PERIOD_SECONDS
from rehearsal.twin.native import library
from service.api.routes import REPLY_SECONDS
from service.gateway import admission, load_shedder, request_queue, service_times
from service.planner.reader.reading import Reader
from service.settings.choices import ADMISSION_QUANTILE, Routing

Array = np.ndarray[Any, np.dtype[Any]]
BINS, BINS_PER_SECOND = 4096, 4000  # as in cell.h
# How a request ends for its client, and what a host's telemetry counts, in the order of cell.h.
OUTCOMES = ("model", "cache", "choice", "rules", "shed", "failed")
MODEL, CACHED, BY_CHOICE, BY_RULE, SHED, FAILED = range(6)
ASKED, ANSWERED, DEGRADED, REPORTED_SHED = range(4)
# A window of more generations than 32 is fitted anew after every sixteenth; 1 is exactly the gateway.
REFIT_EVERY = 16
_FORWARDS = 5  # a plan, the prompt's included: what fleet files state


class Mode(IntEnum):
    """What a host does with requests."""

    SERVES = 0
    BLACK_HOLE = 1
    REFUSES = 2
    GONE = 3


class Kind(IntEnum):
    """The control plane's events. The value of the first four is a node, HOST_MODE's a Mode, NODE_DIES's a node."""

    REGISTER = 6
    PUT_IN = 7
    TAKE_OUT = 8
    DEREGISTER = 9
    HOST_MODE = 10
    NODE_DIES = 11


@dataclass(frozen=True)
class Constants:
    """What no fleet file says of a request's way, in seconds; `SOURCES` says where each comes from."""

    overhead: float = 0.002
    rule: float = 0.002
    cached: float = 0.0015
    client_timeout: float = 0.5
    backoff: float = 0.1
    retries: int = 0
    cache_seconds: float = 900.0
    backlog: float = 0.1
    refit_every: int = REFIT_EVERY


SOURCES = {
    "overhead": (
        "measured",
        "docs/figures/serving.json: gateway_ms p50 0.9 ms; a millisecond for balancer and network",
    ),
    "rule": ("measured", "docs/figures/serving.json: plans by the reader under ten times the capacity, p50 2 ms"),
    "cached": ("measured", "docs/figures/serving.json: answers from the cache, p50 1.5 ms"),
    "client_timeout": ("stated", "a client gives up 200 ms after its deadline"),
    "backoff": ("stated", "a client waits 100 ms before it asks again"),
    "retries": ("stated", "an option; none unless the scenario says so"),
    "cache_seconds": ("stated", "the gateway's default, PEAKPLAN_CACHE_SECONDS"),
    "backlog": ("stated", "the gateway's default, PEAKPLAN_BACKLOG_MS, over its first guess of a request's cost"),
    "refit_every": ("assumed", "a host's estimate is fitted every 16 plans; the gateway does after each"),
}


def rules(refit_every: int = REFIT_EVERY, *, by_worth: bool = False) -> library.Rules:
    """Return the gateway's constants, from its own modules, and whether those that wait go by their worth."""
    return library.Rules(
        quantile=ADMISSION_QUANTILE,
        first_expectation=admission.FIRST_EXPECTATION,
        hopeless=admission._HOPELESS,
        hopeless_under_pressure=admission._HOPELESS_UNDER_PRESSURE,
        trial_share=admission._TRIAL_SHARE,
        trial_share_beside=admission._TRIAL_SHARE_BESIDE,
        fresh=admission._NEW_SECONDS,
        half_life=admission.Pressure.HALF_LIFE,
        high_share=admission.Pressure.HIGH_SHARE,
        fewest=admission.Pressure.FEWEST,
        overload_seconds=request_queue._OVERLOAD_SECONDS,
        max_age=service_times.MAX_AGE_SECONDS,
        outlier=service_times._OUTLIER,
        flat_prior=service_times._FLAT_PRIOR,
        about=service_times._ABOUT,
        window=service_times.WINDOW,
        kept=service_times.KEPT,
        most_late=service_times._MOST_LATE,
        by_worth=int(by_worth),
        waiting_by_worth=admission.WAITING_BY_WORTH,
        refit_every=refit_every,
    )


def routed(routing: Routing, model: Path) -> tuple[bool, float]:
    """Return whether hosts that serve this model go by worth, and the worth below which the reader plans by choice."""
    if routing == "off":
        return False, 0.0
    reader = Reader.of_model(model)
    bound = None if reader is None else reader.choices.bound
    return True, bound.worth if bound is not None and routing == "always" else 0.0


def most_inside(backlog: float) -> int:
    """Return the requests inside one gateway beyond which it answers 503, at its first guess of a request's cost."""
    return max(load_shedder._FEWEST, math.ceil(backlog / load_shedder._FIRST_COST))


@dataclass
class Load:
    """What a cell is asked, and how long its replicas take.

    Shapes: G groups, B bands of question lengths, T and W quantiles, Q questions, A arrivals.
    """

    times: Array  # [G, B, T]: service seconds at evenly spaced quantiles
    seconds: float
    rates: Array = field(default_factory=lambda: np.zeros(0))  # [seconds]: arrivals a second
    replay: Array = field(default_factory=lambda: np.zeros((0, 6)))  # [A, 6]: as cell.h has them
    band_share: Array = field(default_factory=lambda: np.ones(1))  # [B]: cumulated
    band_length: Array = field(default_factory=lambda: np.full(1, 30.0))  # [B]: characters
    question_share: Array = field(default_factory=lambda: np.zeros(0))  # [Q]: cumulated; empty: nothing is remembered
    worths: Array = field(default_factory=lambda: np.zeros((1, 1)))  # [B, W]: worth at evenly spaced quantiles
    by_worth: bool = False  # those that wait go in the order of their worth
    choice: float = 0.0  # the reader plans at once what is worth less
    shared_cache: bool = False
    deadline: float = 0.3
    seed: int = 1


class Cell:
    """A cell whose hosts are all gone at first: the control plane brings them in."""

    def __init__(self, load: Load, *, nodes: int, hosts: int, constants: Constants = Constants()) -> None:
        """Raise TwinUnavailableError where this machine cannot run the data plane."""
        self._library = library.load()
        self.nodes, self.now, self._constants = nodes, 0.0, constants
        groups, bands, table = load.times.shape
        windows = int(load.seconds / PERIOD_SECONDS) + 2
        questions = len(load.question_share)
        self.outcomes = np.zeros((windows, len(OUTCOMES)), np.int64)
        self.latencies = np.zeros(BINS, np.int64)
        self.model_latencies = np.zeros((groups, BINS), np.int64)
        self.queue_times = np.zeros((groups, BINS), np.int64)
        self.host_counts = np.zeros((hosts, 4), np.int64)
        self.remembered_until = np.full((1 if load.shared_cache else hosts, questions), -1.0)
        mine = {name: getattr(self, name) for name in library.INPUTS[7:]}
        given = {name: np.ascontiguousarray(getattr(load, name), np.float64) for name in library.INPUTS[:7]}
        self._arrays = {**given, **mine}  # kept alive as long as the library uses them
        inputs = library.Inputs(**{name: array.ctypes.data for name, array in self._arrays.items()})
        settings = library.Settings(
            allowed=load.deadline - REPLY_SECONDS,
            overhead=constants.overhead,
            rule=constants.rule,
            cached=constants.cached,
            forward=float(load.times.mean()) / _FORWARDS,
            client_timeout=constants.client_timeout,
            backoff=constants.backoff,
            cache_seconds=constants.cache_seconds,
            window=PERIOD_SECONDS,
            choice=load.choice,
            seed=load.seed,
            retries=constants.retries,
            shed_inside=most_inside(constants.backlog),
            nodes=nodes,
            hosts=hosts,
            groups=groups,
            bands=bands,
            table=table,
            questions=questions,
            windows=windows,
            seconds=len(load.rates),
            replayed=len(load.replay),
            shared_cache=int(load.shared_cache),
            worths=load.worths.shape[1],
            rules=rules(constants.refit_every, by_worth=load.by_worth),
        )
        self._cell = self._library.twin_create(ctypes.byref(settings), ctypes.byref(inputs))

    def __del__(self) -> None:
        if getattr(self, "_cell", None):
            self._library.twin_destroy(self._cell)

    def bring_in(self, host: int, group: int, replicas: int, warm_up: Array) -> None:
        """Start a host's gateway; `warm_up` are the seconds that its warm-up requests took. No node knows it yet."""
        seconds = np.ascontiguousarray(warm_up, np.float64)
        self._library.twin_bring_in(self._cell, host, group, replicas, seconds.ctypes.data, len(seconds))

    def schedule(self, time: float, kind: Kind, host: int = 0, value: int = 0) -> None:
        """Let a node or a host change at `time`; a node's own change names it as the value."""
        self._library.twin_schedule(self._cell, max(time, self.now), kind, host, value)

    def put_in_everywhere(self, host: int, time: float) -> None:
        """Let every node send requests to a host from `time` on."""
        for node in range(self.nodes):
            self.schedule(time, Kind.REGISTER, host, node)
            self.schedule(time, Kind.PUT_IN, host, node)

    def set_behaviour(self, host: int, *, slowdown: float = 1.0, failing: float = 0.0) -> None:
        """Multiply a host's service times, and let a share of its generations give no plan."""
        self._library.twin_set_behaviour(self._cell, host, slowdown, failing)

    def advance(self, until: float) -> None:
        """Simulate everything before `until`. Raises OverflowError where a million requests are in flight."""
        if self._library.twin_advance(self._cell, until):
            raise OverflowError("a million requests are in flight in one cell: this load is beyond any use")
        self.now = until

    def inside(self, host: int) -> int:
        """Return the requests that the host has not answered yet."""
        return int(self._library.twin_inside(self._cell, host))

    def mean_seconds(self, host: int) -> float:
        """Return the mean duration of the host's recent generations; 0 when unknown."""
        return float(self._library.twin_mean_seconds(self._cell, host))

    @property
    def arrived(self) -> int:
        """Requests so far, a retried one once."""
        return int(self._library.twin_arrived(self._cell))

    @property
    def in_flight(self) -> int:
        """Requests without an outcome, and those that a replica still works on."""
        return int(self._library.twin_in_flight(self._cell))


def percentile(histogram: Array, share: float) -> float:
    """Return the seconds below which `share` of a histogram's entries are: the upper edge of their bin; 0 for none."""
    cumulated = np.cumsum(histogram)
    if not len(cumulated) or not cumulated[-1]:
        return 0.0
    return float(np.searchsorted(cumulated, share * cumulated[-1]) + 1) / BINS_PER_SECOND
