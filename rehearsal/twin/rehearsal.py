"""A rehearsal: scenarios, seeds and numbers of balancer nodes, and whether a fleet kept the limits in each."""

from __future__ import annotations

import os
from collections.abc import Callable, Sequence
from concurrent.futures import ProcessPoolExecutor
from dataclasses import dataclass, replace

import numpy as np

from infra.fleet.cost import mean_share
from infra.fleet.policies import PERIOD_SECONDS
from infra.fleet.settings import FleetSettings
from rehearsal.twin.alarms import Fired, fired
from rehearsal.twin.curves import Curve
from rehearsal.twin.scenarios import SCENARIOS, Course, Scenario, Situation
from rehearsal.twin.simulation import simulate
from rehearsal.twin.work import Work

NODES = (12, 24)  # of a balancer: nobody is told how many there are
SEEDS = 3
_HIGHEST = 4.0  # times the forecast, beyond which nobody looks for the breaking point
_STEPS = 6
_BREAK_AFTER = 300  # seconds after the fault: a fleet that breaks has broken by then
BREAKS = ("nominal", "zone-lost")
# Shares of plans by the reader outside an unscheduled surge, and of failures always; `judge` says of what.
MOST_BY_RULE, MOST_FAILED = 0.001, 0.0005
FAULT_SECONDS = 30  # after a fault in which a window's p99 may be above the SLO
_CALM = 0.01  # share without the model below which a window counts as recovered
_LAST_WINDOWS = (
    12  # in which all must be well again, whatever the shares: 25 minutes after a fault nothing is left of it
)
_SLO_DAYS = 28


@dataclass(frozen=True)
class Judgement:
    """One limit and what was found; both in `unit`."""

    what: str
    found: float
    limit: float
    unit: str

    @property
    def holds(self) -> bool:
        """Whether the limit was kept."""
        return self.found <= self.limit

    def __str__(self) -> str:
        return f"{self.what}: {self.found:.4g} {self.unit} (at most {self.limit:g})"


@dataclass(frozen=True)
class Verdict:
    """What one run showed."""

    judgements: tuple[Judgement, ...]
    recovery_minutes: float | None  # from the fault until nobody was harmed any more; None where it never ended
    budget_spent: float  # share of 28 days' bad answers in this cell
    model_budget_spent: float  # share of 28 days' plans without the model
    worst_p99_ms: float

    @property
    def holds(self) -> bool:
        """Whether every limit was kept."""
        return all(judgement.holds for judgement in self.judgements)


def judge(course: Course, scenario: Scenario, settings: FleetSettings) -> Verdict:
    """Judge a course.

    Plans by the reader are a share of what is asked in the simulated time, half an hour around a fault: where one
    stays, so may they. A deploy that is rolled back ends by itself and comes once a day, like failures, which end as
    soon as the nodes have noticed: both are a share of a day like the curve.
    """
    starts = np.arange(len(course.values)) * float(PERIOD_SECONDS)
    since = np.full(len(starts), np.inf) if course.fault is None else starts + PERIOD_SECONDS - course.fault
    after = since > 0
    seen = max(float(course.column("requests").sum()), 1.0)
    day = seen if course.fault is None else max(course.day_requests, seen)
    surging = after & (since <= settings.surge.recover + PERIOD_SECONDS) & scenario.is_surge
    rolled_back = scenario.fault.endswith("release")
    by_rule = float(course.column("rules")[~surging].sum()) / (day if rolled_back else seen)
    bad = course.column("failed") + course.column("shed")
    excused = after & (since <= FAULT_SECONDS + PERIOD_SECONDS) & bool(scenario.fault)
    p99 = np.where(excused, 0.0, course.column("p99_ms"))
    # The window in which the twin stops may hold answers to few requests; a percentile of fewer than these is none.
    p99 = np.where(course.column("requests") >= 1, p99, 0.0)
    outside = " outside the surge" if scenario.is_surge else ""
    days = mean_share(settings) * settings.traffic.plans_per_minute * 60 * 24 * _SLO_DAYS / settings.cells
    harmed = (course.column("rules") + bad)[-_LAST_WINDOWS:].sum()
    last = float(harmed / max(course.column("requests")[-_LAST_WINDOWS:].sum(), 1.0))
    without = float((course.column("rules") + bad).sum())
    return Verdict(
        judgements=(
            Judgement(f"plans by rule{outside}", 100 * by_rule, 100 * MOST_BY_RULE, "%"),
            Judgement("failed requests", 100 * float(bad.sum()) / day, 100 * MOST_FAILED, "%"),
            Judgement("p99 of the worst 10 s", float(p99.max(initial=0.0)), float(settings.slo.p99_ms), "ms"),
            Judgement("without the model in the last two minutes", 100 * last, 100 * _CALM, "%"),
        ),
        recovery_minutes=_recovery(course, bad, settings),
        budget_spent=float(bad.sum()) / (days * (1 - settings.slo.goal)),
        model_budget_spent=without / (days * (1 - settings.slo.model_goal)),
        worst_p99_ms=float(p99.max(initial=0.0)),
    )


def _recovery(course: Course, bad: np.ndarray, settings: FleetSettings) -> float | None:
    """Return the minutes from the fault until the last window in which shoppers were harmed; None: they still are."""
    if course.fault is None:
        return 0.0
    requests = np.maximum(course.column("requests"), 1.0)
    harmed = (course.column("rules") + bad) / requests > _CALM
    harmed |= course.column("p99_ms") > settings.slo.p99_ms
    windows = np.flatnonzero(harmed & ((np.arange(len(harmed)) + 1) * PERIOD_SECONDS > course.fault))
    if not len(windows):
        return 0.0
    if windows[-1] == len(harmed) - 1:
        return None
    return float((windows[-1] + 1) * PERIOD_SECONDS - course.fault) / 60


@dataclass(frozen=True)
class Plan:
    """What to rehearse, but for scenario, nodes and seed."""

    settings: FleetSettings
    curve: Curve
    work: Work
    peak: float = 1.0
    hosts: int | None = None

    def situation(self, scenario: Scenario, nodes: int, seed: int) -> Situation:
        """Return one situation of the plan."""
        return Situation(self.settings, self.curve, self.work, scenario, self.peak, nodes, seed, hosts=self.hosts)


@dataclass(frozen=True)
class Trial:
    """One run: its situation, its course and its verdict."""

    situation: Situation
    course: Course
    verdict: Verdict


@dataclass(frozen=True)
class Outcome:
    """Everything about one scenario; the worst trial stands for it."""

    scenario: Scenario
    trials: tuple[Trial, ...]
    alarms: tuple[Fired, ...]
    breaks_at: float | None = None  # times the forecast; infinity: not up to the highest that was tried

    @property
    def holds(self) -> bool:
        """Whether every seed held at every number of nodes."""
        return all(trial.verdict.holds for trial in self.trials)

    @property
    def worst(self) -> Trial:
        """The trial that came nearest to a limit, or went furthest beyond it."""
        return max(self.trials, key=_strain)


def _strain(trial: Trial) -> float:
    return max(judgement.found / judgement.limit for judgement in trial.verdict.judgements)


def processes() -> ProcessPoolExecutor:
    """Return a process for each core that is ours, which import the simulator once."""
    return ProcessPoolExecutor(len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else None)


def attempt(situation: Situation) -> Trial:
    """Run and judge one situation."""
    course = simulate(situation)
    return Trial(situation, course, judge(course, situation.scenario, situation.settings))


def rehearse(
    plan: Plan, scenarios: Sequence[Scenario], seeds: int, pool: ProcessPoolExecutor, say: Callable[[str], None]
) -> list[Outcome]:
    """Return the outcome of each scenario.

    The nominal day is simulated whole with the first seed, and around its peak with the others. The breaking point is
    looked for in the scenarios of BREAKS where they hold.
    """
    situations = [
        replace(plan.situation(scenario, nodes, seed), whole=not scenario.fault and not scenario.is_surge and seed == 1)
        for scenario in scenarios
        for nodes in NODES
        for seed in range(1, seeds + 1)
    ]
    situations.sort(key=lambda each: not each.whole)  # the longest first
    trials = list(pool.map(attempt, situations))
    breaking = {name: pool.submit(breaking_point, plan, SCENARIOS[name]) for name in BREAKS}
    outcomes = []
    for scenario in scenarios:
        mine = tuple(trial for trial in trials if trial.situation.scenario.name == scenario.name)
        outcome = Outcome(scenario, mine, ())
        heard = fired(outcome.worst.course, scenario, plan.settings)
        found = breaking[scenario.name].result() if scenario.name in breaking and outcome.holds else None
        outcomes.append(replace(outcome, alarms=tuple(heard), breaks_at=found))
        say(f"{'PASS' if outcome.holds else 'FAIL'}  {scenario.name}: {scenario.words}")
    return outcomes


def breaking_point(plan: Plan, scenario: Scenario) -> float:
    """Return the smallest multiple of the forecast that fails, to some hundredths, by bisection at 24 nodes.

    Infinity where even the highest that is tried holds.
    """

    def holds(times: float) -> bool:
        situation = plan.situation(scenario, max(NODES), 1)
        return attempt(replace(situation, peak=times, after=_BREAK_AFTER)).verdict.holds

    low, high = plan.peak, _HIGHEST * plan.peak
    if holds(high):
        return float("inf")
    for _ in range(_STEPS):
        middle = (low + high) / 2
        low, high = (middle, high) if holds(middle) else (low, middle)
    return round(high, 2)
