"""The same scenario in the twin: a stack's cells with the same load, hosts, times and faults, and the same alarms.

The twin replays the requests that were sent, the warm-up's first, so that the shared caches know what is asked most;
those that it drew itself would differ by chance by 0.8 points of plans by the reader in a surge. Of
the live run's answers it is told two latencies of the calm scenario, to which it is fitted, and of its machine how long
threads waited for a processor: a few cores stand in for eight hosts. Each cell is simulated alone; where one is lost,
the other gets its callers.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from functools import cache

import numpy as np
import yaml

from infra.fleet.settings import FLEETS, FleetSettings
from rehearsal.cloudwatch import Value
from rehearsal.light_host import RecordedTimes
from rehearsal.load.mix import ZIPF
from rehearsal.stack.folder import BURST, CELLS, PARTS, ROOT, RULES, Shape
from rehearsal.stack.live import DEADLINE, TIMES, WARM_UP, Load, warm_up_load
from rehearsal.stack.live import questions as asked_questions
from rehearsal.stack.scenarios import ENDS, FAULT, Scenario
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
from rehearsal.twin.hosts import Memories
from rehearsal.twin.work import measured, questions
from service.api.routes import REPLY_SECONDS
from service.gateway.admission import FIRST_EXPECTATION
from service.planner.prompt import PlanTask
from service.planner.question import Question
from service.planner.reader.reading import Reader
from service.planner.vocabulary import shipped_vocabulary
from service.settings.choices import SHIPPED_MODEL

# A frozen host is out earlier, after three tries of PER_TRY unanswered. To callers, one that refuses is out at once:
# Envoy asks another host in the same millisecond. The twin's balancer, which does not avoid the last one, would not.
PER_TRY, EJECTED_SECONDS = 0.31, 0.1
# What Envoy and TLS add to an answer: to half of them, at 100 requests a second on an idle machine of two Zen 5 cores.
BALANCER_SECONDS = 0.0007
_WARM_UP = 8  # generations of a gateway before its first request
_STEPS = 4  # a second, after which what one host has planned is known to all
_HALVINGS, _ROUNDS = 7, 2
_MOST = {"overhead": 0.05, "occupied": 0.02}  # seconds
BOOT_SECONDS = 10.0  # from a host's start until it is healthy: stated
SEEN_SECONDS = 2.0  # until Envoy's checks have changed its mind: two of them, a second apart
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


@dataclass(frozen=True)
class Costs:
    """What Envoy and the gateway cost on a machine, in seconds.

    `overhead` is on every answer; `occupied` keeps a replica beyond a plan's own time, to be handed over.
    """

    overhead: float = Constants().overhead
    occupied: float = 0.0

    def with_wait(self, wait: float) -> Costs:
        """Return the costs where threads that make a plan wait so many seconds longer than in the calm scenario."""
        return replace(self, occupied=max(self.occupied + wait, 0.0))


def fitted(calm: Load, shape: Shape, live: Mapping[str, float]) -> Costs:
    """Return the costs with which the calm scenario's quarter and half of answers take as long as they did live.

    More than a quarter come from a cache, fewer than a half: so one tells the overhead, the other how long replicas
    are kept. These are the only answers of a live run that the twin is told of.
    """
    costs = Costs(0.0, 0.0)
    for _ in range(_ROUNDS):
        costs = _halved(calm, shape, costs, "overhead", "p25_ms", live["p25_ms"])
        costs = _halved(calm, shape, costs, "occupied", "p50_ms", live["p50_ms"])
    return costs


def _halved(calm: Load, shape: Shape, costs: Costs, cost: str, latency: str, wanted: float) -> Costs:
    """Return the costs with the one with which a latency of the calm scenario is as wanted, by halving its range."""
    low, high = 0.0, _MOST[cost]
    for _ in range(_HALVINGS):
        tried = replace(costs, **{cost: (low + high) / 2})
        is_too_much = getattr(rehearsed(Scenario("calm", ""), calm, shape, tried), latency) > wanted
        low, high = (low, getattr(tried, cost)) if is_too_much else (getattr(tried, cost), high)
    return replace(costs, **{cost: (low + high) / 2})


def rehearsed(scenario: Scenario, load: Load, shape: Shape, costs: Costs = Costs()) -> Twin:
    """Simulate the scenario in every cell. Raises TwinUnavailableError."""
    settings = FleetSettings.from_yaml(FLEETS / "prime-day.yaml")
    asked = replayed(scenario, load, occupied=costs.occupied, overhead=costs.overhead)
    courses = [
        _course(scenario, load, shape, number, _cell(load, rows, shape, number, settings, costs.overhead), settings)
        for number, rows in enumerate(asked)
    ]
    outcomes = sum((course.outcomes for course in courses), np.zeros_like(courses[0].outcomes))
    latencies = sum((course.latencies for course in courses), np.zeros_like(courses[0].latencies))
    if scenario.flood:
        _flood(scenario, outcomes, latencies, costs.overhead)
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


def _flood(scenario: Scenario, outcomes: np.ndarray, latencies: np.ndarray, overhead: float) -> None:
    """Add a flood: one question that the caches know, asked as often as Envoy's bucket has tokens; else Envoy's 429."""
    asked = round(scenario.flood * (ENDS - FAULT))
    answered = min(asked, round(scenario.limit * (ENDS - FAULT + BURST)))
    outcomes[CACHED] += answered
    latencies[round(overhead * BINS_PER_SECOND)] += answered
    latencies[round(BALANCER_SECONDS * BINS_PER_SECOND)] += asked - answered


def alert_names() -> set[str]:
    """Return alerts that Prometheus may fire, without the canary's (a stack has none) and composed alarms' parts."""
    groups = yaml.safe_load(RULES.read_text(encoding="utf-8"))["groups"]
    names = {rule["alert"].removeprefix("Peakplan") for group in groups for rule in group["rules"] if "alert" in rule}
    return names - {"SyntheticPlans"}


def _course(scenario: Scenario, load: Load, shape: Shape, number: int, cell: Cell, settings: FleetSettings) -> _Course:
    away = _away(scenario, shape.hosts) if number == 0 else (0, 0.0, 0.0)
    for host in range(shape.hosts):
        _begin(cell, host)
    if number == 0:
        _inflict(cell, scenario, shape.hosts)
    memories = Memories(cell, questions(len(asked_questions(load.sets)), ZIPF), 0.0, number + 1, shared=True)
    for second in range(int(WARM_UP)):
        _advance(cell, memories, second)
    begun, outcomes, latencies = _ended(cell, scenario), _ended(cell, scenario), np.zeros(BINS, np.int64)
    _forget_counts(cell)
    rows: list[dict[str, float]] = []
    for second in range(len(load.rates)):
        _behave(cell, memories, scenario, number, second, load.rates[0] / len(CELLS), shape.hosts)
        _advance(cell, memories, WARM_UP + second)
        now = _ended(cell, scenario)
        rows.append(row(cell, now - outcomes, shape.hosts, away, second, memories.shared))
        if scenario.name == "cell-lost":  # Envoy counts a cell's callers, even those that another cell answers
            rows[-1]["RequestCount"] = load.rates[second] / len(CELLS)
        outcomes, latencies = now, latencies + cell.latencies
        _forget_counts(cell)
    cell.advance(WARM_UP + len(load.rates) + 5.0)
    states = states_of(minutes(rows, 60 // shape.hurry), settings)
    return _Course(_ended(cell, scenario) - begun, latencies + cell.latencies, states)


def _advance(cell: Cell, memories: Memories, second: float) -> None:
    for step in range(_STEPS):
        cell.advance(second + (step + 1) / _STEPS)
        memories.exchange()


def _forget_counts(cell: Cell) -> None:
    for counted in (cell.latencies, cell.host_counts):
        counted[:] = 0


def _ended(cell: Cell, scenario: Scenario) -> np.ndarray:
    """Return outcomes by kind. What a lost cell had begun is answered by the other one, which is simulated alone."""
    outcomes: np.ndarray = cell.outcomes.sum(axis=0)
    if scenario.name == "cell-lost":
        outcomes[MODEL] += outcomes[FAILED]
        outcomes[FAILED] = 0
    return outcomes


def _cell(load: Load, asked: np.ndarray, shape: Shape, number: int, settings: FleetSettings, overhead: float) -> Cell:
    work = measured(settings, ROOT / "docs" / "figures" / "serving.json")
    by_worth, _ = routed("overload", ROOT / settings.model.folder)
    given = CellLoad(
        times=TIMES * work.times[:1],  # which admission begins with, and cuts by
        seconds=int(WARM_UP) + len(load.rates) + 20,
        replay=asked,
        band_length=work.band_length,
        band_share=work.band_share,
        question_share=questions(len(asked_questions(load.sets)), ZIPF),
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
        cell.schedule(WARM_UP + begins, Kind.HOST_MODE, host, mode)
        cell.schedule(WARM_UP + ejected, Kind.TAKE_OUT, host, 0)
        cell.schedule(WARM_UP + ends, Kind.HOST_MODE, host, Mode.SERVES)
        cell.schedule(WARM_UP + ends, Kind.PUT_IN, host, 0)


def _behave(
    cell: Cell, memories: Memories, scenario: Scenario, number: int, second: int, rate: float, hosts: int
) -> None:
    begins, ends = second == int(FAULT), second == int(ENDS)
    if scenario.name == "host-slow" and number == 0 and (begins or ends):
        cell.set_behaviour(0, slowdown=_SLOWER if begins else 1.0)
    if scenario.name in ("cache-lost", "cache-partitioned") and begins:
        memories.keep_own(rate, hosts, WARM_UP + FAULT)
    if scenario.name in ("cache-lost", "cache-partitioned") and ends:
        memories.come_back(empty=scenario.name == "cache-lost")


def replayed(scenario: Scenario, load: Load, *, occupied: float, overhead: float) -> list[np.ndarray]:
    """Return each cell's requests as `Load.replay` of rehearsal/twin/cell.py has them, the warm-up's first: [A, 6].

    `occupied` are the seconds that handing a request over keeps a replica beyond its own time, `overhead` those that
    balancer and gateway take of its deadline. Envoy draws each request's cell, and so does this.
    """
    rows = np.vstack([_rows(warm_up_load(load.rates[0], load.sets), 0.0), _rows(load, WARM_UP)])
    rows[:, 1] += occupied
    rows[:, 3] -= overhead
    cells = np.random.default_rng(1).integers(len(CELLS), size=len(rows))
    if scenario.name == "cell-lost":
        since = rows[:, 0] - WARM_UP
        cells[(since >= FAULT) & (since < ENDS + BOOT_SECONDS)] = 1
    return [rows[cells == cell] for cell in range(len(CELLS))]


def _rows(load: Load, begins: float) -> np.ndarray:
    ranks = {question: rank for rank, question in enumerate(asked_questions(load.sets))}
    rows = np.zeros((len(load.shots), 6))
    for row, shot, question in zip(rows, load.shots, load.questions, strict=True):
        seconds, length, worth = _asked(question)
        row[:] = begins + shot.at, seconds, length, DEADLINE - REPLY_SECONDS, worth, ranks[question]
    return rows


@cache
def _asked(question: str) -> tuple[float, float, float]:
    """Return a question's service seconds, the characters of its prompt and what the model's plan of it is worth."""
    task = PlanTask(Question.parse(question), shipped_vocabulary())
    worth = _reader().read(task.question, task.vocabulary).worth
    return _recorded().seconds(task.prompt), len(task.prompt), worth


@cache
def _reader() -> Reader:
    return Reader.load(SHIPPED_MODEL)


@cache
def _recorded() -> RecordedTimes:
    return RecordedTimes.read(times=TIMES)


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


def row(
    cell: Cell, ended: np.ndarray, hosts: int, away: tuple[int, float, float], second: int, is_shared: bool
) -> dict[str, float]:
    """Return a second of a cell under the names of CloudWatch's metrics.

    `ended` are its outcomes by kind, `away` how many of its hosts are away, and from when to when.
    """
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


def minutes(rows: list[dict[str, float]], seconds: int) -> dict[str, list[Value]]:
    """Return each metric by what the rules call a minute, with calm hosts and no requests before the first one."""
    found: dict[str, list[Value]] = {}
    for name in rows[0]:
        values = [[row[name] for row in rows[at : at + seconds]] for at in range(0, len(rows), seconds)]
        last = name in _LAST
        found[name] = [rows[0][name] if last else 0.0] * BEFORE
        found[name] += [each[-1] if last else max(each) if name in _WORST else sum(each) for each in values]
    return found
