"""The same scenario in the twin: a stack's cells with the same load, hosts, times and faults, and the same alarms.

The twin knows nothing of the live run but its scenario and its rates. Each cell is simulated alone; where one is lost,
the other gets its callers.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import yaml

from infra.fleet.settings import FLEETS, FleetSettings
from rehearsal.cloudwatch import Value
from rehearsal.load.mix import ZIPF
from rehearsal.twin.alarms import BEFORE, states_of
from rehearsal.twin.cell import (
    ANSWERED,
    ASKED,
    BINS,
    BINS_PER_SECOND,
    BY_RULE,
    CACHED,
    DEGRADED,
    FAILED,
    MODEL,
    REPORTED_SHED,
    SHED,
    Cell,
    Constants,
    Kind,
    Mode,
    routed,
)
from rehearsal.twin.cell import Load as CellLoad
from rehearsal.twin.work import measured, questions
from service.gateway.admission import FIRST_EXPECTATION
from stack.folder import CELLS, PARTS, RULES, Shape
from stack.live import DEADLINE, TIMES, Load
from stack.live import questions as asked_questions
from stack.parts_here import ROOT
from stack.scenarios import ENDS, FAULT, Scenario

SEEN_SECONDS = 2.0  # until Envoy's checks have changed its mind: two of them, a second apart
# A frozen host is out earlier, after three tries of PER_TRY unanswered. To callers, one that refuses is out at once:
# Envoy asks another host in the same millisecond. The twin's balancer, which does not avoid the last one, would not.
PER_TRY, EJECTED_SECONDS = 0.31, 0.1
BOOT_SECONDS = 10.0  # from a host's start until it is healthy: stated
_WARM_UP = 8  # generations of a gateway before its first request
_STEP = 1  # second
_HALVINGS = 7
_SLOWER = 3.0  # as scenarios.py writes it into the slow host's file


@dataclass(frozen=True)
class Twin:
    """What the twin says of a scenario, in the terms of the live readings; alerts by name, in seconds."""

    p25_ms: float
    p50_ms: float
    p99_ms: float
    by_rule: float
    goodput: float
    hits: float
    failed: float
    alerts: dict[str, float]


@dataclass(frozen=True)
class _Course:
    outcomes: np.ndarray  # [outcomes]
    latencies: np.ndarray  # [BINS]
    states: dict[str, list[bool]]


def fitted(calm: Load, shape: Shape, p25_ms: float) -> float:
    """Return the overhead, seconds, with which a quarter of the calm scenario's answers take at most `p25_ms`.

    It is what Envoy and the gateway cost on this machine, and the only thing that the twin is told of a live run.
    """
    low, high = 0.0, 0.05
    for _ in range(_HALVINGS):
        middle = (low + high) / 2
        too_long = rehearsed(Scenario("calm", ""), calm, shape, middle).p25_ms > p25_ms
        low, high = (low, middle) if too_long else (middle, high)
    return (low + high) / 2


def rehearsed(scenario: Scenario, load: Load, shape: Shape, overhead: float = Constants().overhead) -> Twin:
    """Simulate the scenario in every cell; `overhead` are seconds on every answer. Raises TwinUnavailableError."""
    settings = FleetSettings.from_yaml(FLEETS / "prime-day.yaml")
    courses = [_course(scenario, load, shape, index, settings, overhead) for index in range(len(CELLS))]
    outcomes = sum((course.outcomes for course in courses), np.zeros_like(courses[0].outcomes))
    latencies = sum((course.latencies for course in courses), np.zeros_like(courses[0].latencies))
    planned = max(float(outcomes[:FAILED].sum() - outcomes[SHED]), 1.0)
    step = 60 / shape.hurry
    alerts: dict[str, float] = {}
    named = alert_names()
    for course in courses:
        for key, states in course.states.items():
            name = "".join(word.capitalize() for word in key.split("-"))
            if True in states and name in named:
                at = (states.index(True) + 1) * step
                alerts[name] = min(at, alerts.get(name, at))
    return Twin(
        p25_ms=quantile(latencies, 0.25),
        p50_ms=quantile(latencies, 0.5),
        p99_ms=quantile(latencies, 0.99),
        by_rule=float(outcomes[BY_RULE]) / planned,
        goodput=float(outcomes[MODEL] + outcomes[CACHED]) / len(load.rates),
        hits=float(outcomes[CACHED]) / planned,
        failed=float(outcomes[FAILED]),
        alerts=alerts,
    )


def alert_names() -> set[str]:
    """Return what Prometheus may fire, but for the canary's, which a stack lacks; composed alarms' parts are not it."""
    groups = yaml.safe_load(RULES.read_text(encoding="utf-8"))["groups"]
    names = {rule["alert"].removeprefix("Peakplan") for group in groups for rule in group["rules"] if "alert" in rule}
    return names - {"SyntheticPlans"}


def quantile(latencies: np.ndarray, share: float) -> float:
    """Return milliseconds as Prometheus estimates them from Envoy's buckets: linear within the bucket."""
    edges = buckets()
    bins = (np.arange(BINS) + 0.5) * 1000 / BINS_PER_SECOND
    counts = np.histogram(bins, bins=[0.0, *edges, float("inf")], weights=latencies)[0]
    cumulated = np.cumsum(counts)
    wanted = share * cumulated[-1]
    index = int(np.searchsorted(cumulated, wanted))
    if not cumulated[-1] or index >= len(edges):
        return edges[-1]
    below = cumulated[index - 1] if index else 0.0
    lower = edges[index - 1] if index else 0.0
    return float(lower + (edges[index] - lower) * (wanted - below) / max(counts[index], 1e-9))


def buckets() -> list[float]:
    """Return the upper edges of Envoy's buckets in milliseconds."""
    line = next(
        line for line in (PARTS / "envoy.yaml").read_text(encoding="utf-8").splitlines() if "buckets: [" in line
    )
    return [float(edge) for edge in line.partition("[")[2].rstrip("] ").split(",")]


def _rates(scenario: Scenario, load: Load, cell: int) -> np.ndarray:
    rates = np.array(load.rates) / len(CELLS)
    if scenario.name == "cell-lost":
        lost = slice(int(FAULT), int(ENDS + BOOT_SECONDS))
        rates[lost] *= 0.0 if cell == 0 else len(CELLS)
    return rates


def _course(
    scenario: Scenario, load: Load, shape: Shape, number: int, settings: FleetSettings, overhead: float
) -> _Course:
    cell = _cell(scenario, load, shape, number, settings, overhead)
    away = _away(scenario, shape.hosts) if number == 0 else (0, 0.0, 0.0)
    for host in range(shape.hosts):
        _begin(cell, host)
    if number == 0:
        _inflict(cell, scenario, shape.hosts)
    outcomes, latencies = _ended(cell, scenario), np.zeros(BINS, np.int64)
    rows: list[dict[str, float]] = []
    for second in range(len(load.rates)):
        _behave(cell, scenario, number, second)
        cell.advance(float(second + _STEP))
        is_shared = not (scenario.name in ("cache-lost", "cache-partitioned") and FAULT <= second < ENDS)
        if is_shared:
            cell.remembered_until[:] = cell.remembered_until.max(axis=0)
        now = _ended(cell, scenario)
        rows.append(_row(cell, now - outcomes, shape.hosts, away, second, is_shared))
        outcomes, latencies = now, latencies + cell.latencies
        for counted in (cell.latencies, cell.host_counts):
            counted[:] = 0
    cell.advance(len(load.rates) + 5.0)
    states = states_of(_minutes(rows, 60 // shape.hurry), settings)
    return _Course(_ended(cell, scenario), latencies + cell.latencies, states)


def _ended(cell: Cell, scenario: Scenario) -> np.ndarray:
    """Return outcomes by kind. What a lost cell had begun is answered by the other one, which is simulated alone."""
    outcomes: np.ndarray = cell.outcomes.sum(axis=0)
    if scenario.name == "cell-lost":
        outcomes[MODEL] += outcomes[FAILED]
        outcomes[FAILED] = 0
    return outcomes


def _cell(scenario: Scenario, load: Load, shape: Shape, number: int, settings: FleetSettings, overhead: float) -> Cell:
    work = measured(settings, ROOT / "docs" / "figures" / "serving.json")
    by_worth, _ = routed("overload", ROOT / settings.model.folder)
    given = CellLoad(
        times=TIMES * work.times[:1],
        seconds=len(load.rates) + 20,
        rates=_rates(scenario, load, number),
        band_share=work.band_share,
        band_length=work.band_length,
        question_share=questions(len(asked_questions()), ZIPF),
        worths=work.worths,
        by_worth=by_worth,
        deadline=DEADLINE,
        seed=number + 1,
    )
    constants = Constants(retries=2, backoff=0.005, client_timeout=PER_TRY, overhead=overhead)
    return Cell(given, nodes=1, hosts=2 * shape.hosts, constants=constants)


def _begin(cell: Cell, host: int, at: float = 0.0) -> None:
    table = np.asarray(cell._arrays["times"]).ravel()
    cell.bring_in(host, 0, 1, np.random.default_rng([host, 4]).choice(table, _WARM_UP))
    cell.put_in_everywhere(host, at)


def _away(scenario: Scenario, hosts: int) -> tuple[int, float, float]:
    """Return how many hosts of the first cell are away, and from when to when."""
    gone = {"host-killed": 1, "host-frozen": 1, "cell-lost": hosts}.get(scenario.name, 0)
    back = ENDS + (0.0 if scenario.name == "host-frozen" else BOOT_SECONDS)
    return gone, FAULT, back


def _inflict(cell: Cell, scenario: Scenario, hosts: int) -> None:
    gone, begins, ends = _away(scenario, hosts)
    is_frozen = scenario.name == "host-frozen"
    mode = Mode.BLACK_HOLE if is_frozen else Mode.REFUSES
    ejected = begins + (PER_TRY + EJECTED_SECONDS if is_frozen else 0.0)
    for host in range(gone):
        cell.schedule(begins, Kind.HOST_MODE, host, mode)
        cell.schedule(ejected, Kind.TAKE_OUT, host, 0)
        cell.schedule(ends, Kind.HOST_MODE, host, Mode.SERVES)
        cell.schedule(ends, Kind.PUT_IN, host, 0)


def _behave(cell: Cell, scenario: Scenario, number: int, second: int) -> None:
    if scenario.name == "host-slow" and number == 0 and second in (int(FAULT), int(ENDS)):
        cell.set_behaviour(0, slowdown=_SLOWER if second == int(FAULT) else 1.0)


def _row(
    cell: Cell, ended: np.ndarray, hosts: int, away: tuple[int, float, float], second: int, is_shared: bool
) -> dict[str, float]:
    """Return a second under the names of CloudWatch's metrics."""
    gone, begins, ends = away
    unseen = gone if begins + SEEN_SECONDS <= second < ends else 0
    down = gone if begins <= second < ends else 0
    counts = cell.host_counts[:hosts].sum(axis=0)
    means = np.array([cell.mean_seconds(host) or FIRST_EXPECTATION for host in range(hosts)])
    return {
        "SloGood": float(counts[ANSWERED]),
        "SloBad": 0.0,
        "Degraded": float(counts[DEGRADED]),
        "Shed": float(counts[REPORTED_SHED]),
        "Requests": float(counts[ANSWERED] + counts[REPORTED_SHED]),
        "RequestCount": float(ended.sum()),
        "HTTPCode_ELB_5XX_Count": float(ended[FAILED]),
        "OfferedWork": float((cell.host_counts[:hosts, ASKED] * means).sum()),
        "ReplicaSeconds": float(hosts - down),
        "TargetResponseTime": quantile(cell.latencies, 0.99) / 1000 if cell.latencies.any() else 0.0,
        "HealthyHostCount": float(hosts - unseen),
        "UnHealthyHostCount": float(unseen),
        "GroupDesiredCapacity": float(hosts),
        "GroupInServiceInstances": float(hosts - down),
        "FrontHealthyHostCount": float(hosts > unseen),
        "SharedCacheDown": float(not is_shared),
    }


_LAST = (
    "HealthyHostCount",
    "UnHealthyHostCount",
    "GroupDesiredCapacity",
    "GroupInServiceInstances",
    "FrontHealthyHostCount",
)
_WORST = ("TargetResponseTime", "SharedCacheDown")


def _minutes(rows: list[dict[str, float]], seconds: int) -> dict[str, list[Value]]:
    """Return each metric by what the rules call a minute, with calm hosts and no requests before the first one."""
    found: dict[str, list[Value]] = {}
    for name in rows[0]:
        values = [[row[name] for row in rows[at : at + seconds]] for at in range(0, len(rows), seconds)]
        last = name in _LAST
        found[name] = [rows[0][name] if last else 0.0] * BEFORE
        found[name] += [each[-1] if last else max(each) if name in _WORST else sum(each) for each in values]
    return found
