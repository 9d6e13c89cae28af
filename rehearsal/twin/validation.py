"""`peakplan rehearse validate`: the twin against the live service, asked the same, side by side.

The service is the real one with replicas that sleep for a drawn time (light_host.py). The twin replays the same
arrivals and the same times; what the gateway adds is fitted at half load and judged elsewhere. Then the twin draws its
own arrivals and times from the same distribution, as a rehearsal does. A run whose load generator lags is void.
"""

from __future__ import annotations

import json
import sys
import tempfile
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from statistics import fmean
from typing import Any

import numpy as np

from rehearsal.bench.machine import describe_machine
from rehearsal.client import Sample, Shot
from rehearsal.light_host import RecordedTimes
from rehearsal.load import arrivals
from rehearsal.load.__main__ import run as fire
from rehearsal.load.result import latency_summary, shown
from rehearsal.server import ServerError, serving
from rehearsal.twin.cell import BINS_PER_SECOND, BY_RULE, MODEL, Cell, Constants, Load, percentile
from rehearsal.twin.work import log_normal
from service.api.routes import REPLY_SECONDS
from service.planner.prompt import render_prompt
from service.planner.question import Question

MODULE = "rehearsal.light_host"
MEAN, P99 = 0.040, 0.120  # seconds
TIMES = RecordedTimes((), (tuple(log_normal(MEAN, P99)),))
REPLICAS, DEADLINE = 4, 0.3
BUSY, OVERLOADED = (0.5, 0.7, 0.85, 0.95), (1.5, 3.0)
SECONDS = 60.0
MOST_OCCUPIED = 0.005  # seconds that handing a request over may keep a replica beyond its own time
# Microseconds decide whom a full queue refuses, so a replay is the mean of several: so many times that handing over.
REPLAYS = (0.9, 0.925, 0.95, 0.975, 1.0, 1.025, 1.05, 1.075, 1.1)
SHARES = {"p50": 0.5, "p90": 0.9, "p99": 0.99}
MOST_LAG = 0.05  # of the mean service time, at the 99th percentile
MOST_NOMINAL, MOST_RULE_POINTS, MOST_PLANS = 0.15, 1.0, 0.02


@dataclass(frozen=True)
class Live:
    """What the live service did in one run: latencies in seconds, and how much of it was void."""

    busy: float
    seconds: float
    latencies: dict[str, float]
    by_rule: float  # share
    plans: float  # by the model, a second
    lag: float  # p99 of the generator, seconds
    queued: float  # mean seconds that the model's plans waited for a replica
    shots: np.ndarray  # [A, 2]: at, service seconds

    @property
    def is_void(self) -> bool:
        """Whether the generator was too late for the run to say anything."""
        return self.lag > MOST_LAG * MEAN


@dataclass(frozen=True)
class Twin:
    """What the twin did in the same run."""

    latencies: dict[str, float]
    by_rule: float
    plans: float
    queued: float


def validate(scale: float, folder: Path, *, as_json: bool = False) -> int:
    """Run, print and write the comparison; return 0 where every figure is within its limit and no run is void."""
    try:
        lives = [_live(busy, max(SECONDS * scale, 5.0), number) for number, busy in enumerate((*BUSY, *OVERLOADED))]
    except ServerError as error:
        print(f"no validation: {error}", file=sys.stderr)
        return 1
    occupied, overhead = fit(lives[0])
    rows = [row for live in lives for row in _compare(live, occupied, overhead)]
    void = [live.busy for live in lives if live.is_void]
    holds = not void and all(row["holds"] for row in rows)
    folder.mkdir(parents=True, exist_ok=True)
    figure: dict[str, Any] = {"command": "peakplan rehearse validate", "machine": describe_machine(), "scale": scale}
    figure |= {"replicas": REPLICAS, "mean_ms": 1000 * MEAN, "p99_ms": 1000 * P99, "void": void}
    figure |= {"overhead_ms": round(1000 * overhead, 3), "occupied_ms": round(1000 * occupied, 3), "rows": rows}
    (folder / "validation.json").write_text(json.dumps(figure, indent=1) + "\n", encoding="utf-8")
    if as_json:
        print(json.dumps({**figure, "holds": holds}))
    else:
        _print(lives, rows)
        print("PASS" if holds else "VOID" if void else "FAIL")
    return 0 if holds else 1


def _print(lives: Sequence[Live], rows: Sequence[Mapping[str, Any]]) -> None:
    for live in lives:
        if live.is_void:
            print(f"VOID: at {live.busy:g} busy the generator's p99 lag was {1000 * live.lag:.2f} ms: an idle machine?")
    print(f"{'busy':>5}  {'what':<22} {'live':>9} {'twin':>9} {'off':>8} {'limit':>7}")
    for row in rows:
        print(
            f"{row['busy']:>5g}  {row['what']:<22} {row['live']:>9.4g} {row['twin']:>9.4g} "
            f"{row['off']:>+8.2%} {row['limit']:>7.0%}{'' if row['holds'] else '  OUTSIDE'}"
        )


def fit(live: Live) -> tuple[float, float]:
    """Return what a generation adds to a replica's time, and what a request's way adds to its latency, in seconds.

    The first, which is oversleeping and the way to the replica and back, is what makes the same requests wait as long.
    """
    low, high = 0.0, MOST_OCCUPIED
    for _ in range(12):
        middle = (low + high) / 2
        low, high = (middle, high) if _replayed(live, middle, 0.0).queued < live.queued else (low, middle)
    occupied = (low + high) / 2
    twin = _replayed(live, occupied, 0.0)
    return occupied, max(live.latencies["p50"] - twin.latencies["p50"], 0.0)


def question(number: int) -> str:
    """Return the question of this number; all are of one length."""
    return f"q{number:09d} shoes"


def taken(number: int) -> float:
    """Return the seconds that a replica is busy with a question."""
    return TIMES.seconds(render_prompt(Question.parse(question(number))))


def _live(busy: float, seconds: float, number: int) -> Live:
    """Load the live service; each run has a service of its own."""
    rate = busy * REPLICAS / MEAN
    times = arrivals.poisson(rate, seconds, seed=number + 1)
    first = 1_000_000 * (number + 1)
    shots = [
        Shot(at, json.dumps({"query": question(first + index)}).encode(), DEADLINE) for index, at in enumerate(times)
    ]
    environment = {
        "PEAKPLAN_REPLICAS": REPLICAS,
        "PEAKPLAN_OVERSUBSCRIBE": 1,  # they sleep
        "PEAKPLAN_CACHE_ENTRIES": 0,
    }
    print(f"the live service at {busy:g} busy, {seconds:g} s", file=sys.stderr, flush=True)
    with tempfile.NamedTemporaryFile("w", encoding="utf-8") as figure:
        band = {"mean_characters": 0, "quantiles_ms": [1000 * each for each in TIMES.quantiles[0]]}
        json.dump({"service_times": {"bands": [band]}}, figure)
        figure.flush()
        with serving({**environment, "LIGHT_FIGURE": figure.name}, MODULE) as server:
            samples = fire(server.url, shots, progress=False)
    drawn = [taken(first + index) for index in range(len(times))]
    return _summary(busy, seconds, samples, np.column_stack((times, drawn)))


def _summary(busy: float, seconds: float, samples: Sequence[Sample], shots: np.ndarray) -> Live:
    answers = [shown(sample) for sample in samples]
    by_model = [answer for answer in answers if answer.source == "model"]
    queued = [answer.queue_seconds or 0.0 for answer in by_model] or [0.0]
    summary = latency_summary([answer.latency for answer in answers])
    return Live(
        busy=busy,
        seconds=seconds,
        latencies={name: summary[name] / 1000 for name in SHARES},
        by_rule=sum(answer.source == "fallback" for answer in answers) / len(answers),
        plans=len(by_model) / seconds,
        lag=latency_summary([sample.sent - sample.at for sample in samples])["p99"] / 1000,
        queued=fmean(queued) - min(queued),  # asking takes a moment where a replica is idle, too
        shots=shots,
    )


def _replayed(live: Live, occupied: float, overhead: float) -> Twin:
    """Let the twin have the same requests at the same moments, for the same times."""
    twins = [_replayed_once(live, share * occupied, overhead) for share in REPLAYS]
    return Twin(
        {name: fmean(twin.latencies[name] for twin in twins) for name in SHARES},
        fmean(twin.by_rule for twin in twins),
        fmean(twin.plans for twin in twins),
        fmean(twin.queued for twin in twins),
    )


def _replayed_once(live: Live, occupied: float, overhead: float) -> Twin:
    replay = np.zeros((len(live.shots), 6))
    replay[:, 0], replay[:, 1] = live.shots[:, 0], live.shots[:, 1] + occupied
    replay[:, 2], replay[:, 3] = len(question(0)) + 2, DEADLINE - REPLY_SECONDS
    replay[:, 5] = -1  # nothing is remembered
    load = Load(
        times=np.full((1, 1, 1), MEAN),
        seconds=live.seconds + 10,
        replay=replay,
        by_worth=True,  # as the service's own setting is; all questions are worth the same
        deadline=DEADLINE,
    )
    return _twin(load, live.seconds, overhead)


def _nominal(live: Live, occupied: float, overhead: float) -> Twin:
    """Let the twin draw its own arrivals and times, for long."""
    seconds = 2000.0
    rates = np.full(int(seconds), live.busy * REPLICAS / MEAN)
    times = np.array(TIMES.quantiles[0])[None, None, :] + occupied
    return _twin(
        Load(times=times, seconds=seconds + 10, rates=rates, by_worth=True, deadline=DEADLINE), seconds, overhead
    )


def _twin(load: Load, seconds: float, overhead: float) -> Twin:
    constants = replace(Constants(), overhead=overhead, refit_every=1)
    cell = Cell(load, nodes=1, hosts=1, constants=constants)
    cell.bring_in(0, 0, REPLICAS, np.full(8 * REPLICAS, MEAN))
    cell.put_in_everywhere(0, 0.0)
    cell.advance(seconds + 9)
    outcomes = cell.outcomes.sum(axis=0)
    latencies = {name: percentile(cell.latencies, share) for name, share in SHARES.items()}
    waits = cell.queue_times.sum(axis=0)
    queued = float(waits @ np.arange(len(waits)) / max(waits.sum(), 1) / BINS_PER_SECOND)
    by_rule = float(outcomes[BY_RULE] / max(outcomes.sum(), 1))
    return Twin(latencies, by_rule, float(outcomes[MODEL] / seconds), queued)


def _compare(live: Live, occupied: float, overhead: float) -> list[dict[str, Any]]:
    """Return the figures of one run beside the twin's: each with how far off it is, and how far it may be."""
    replayed = _replayed(live, occupied, overhead)
    rows: list[dict[str, Any]] = []

    def add(what: str, seen: float, mine: float, limit: float, off: float | None = None) -> None:
        found = (mine / seen - 1 if seen else 0.0) if off is None else off
        rows.append({"busy": live.busy, "what": what, "live": seen, "twin": mine, "off": found, "limit": limit})
        rows[-1]["holds"] = abs(found) <= limit

    if live.busy in OVERLOADED:
        points = replayed.by_rule - live.by_rule
        add("by rule, % (points)", 100 * live.by_rule, 100 * replayed.by_rule, MOST_RULE_POINTS / 100, points)
        add("model plans a second", live.plans, replayed.plans, MOST_PLANS)
        return rows
    limit = 0.10 if live.busy > 0.85 else 0.05
    for name in SHARES:
        add(f"{name} ms", 1000 * live.latencies[name], 1000 * replayed.latencies[name], limit)
    if live.busy <= 0.85:
        nominal = _nominal(live, occupied, overhead)
        for name in SHARES:
            add(f"{name} ms, drawn", 1000 * live.latencies[name], 1000 * nominal.latencies[name], MOST_NOMINAL)
    return rows
