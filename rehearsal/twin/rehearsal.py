"""A rehearsal: scenarios, seeds and numbers of balancer nodes over a pool of processes, and what they say together."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ProcessPoolExecutor
from contextlib import contextmanager
from dataclasses import dataclass, replace

from infra.fleet.settings import FleetSettings
from rehearsal.twin.alarms import Fired, fired
from rehearsal.twin.curves import Curve
from rehearsal.twin.scenarios import SCENARIOS, Scenario
from rehearsal.twin.simulation import simulate
from rehearsal.twin.situation import Course, Situation
from rehearsal.twin.verdict import Verdict, judge
from rehearsal.twin.work import Work

NODES = (12, 24)  # of a balancer: nobody is told how many there are
SEEDS = 3
_HIGHEST = 4.0  # times the forecast, beyond which nobody looks for the breaking point
_STEPS = 6
_BREAK_AFTER = 300  # seconds after the fault: whoever breaks, breaks by then
BREAKS = ("nominal", "zone-lost")


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


@contextmanager
def processes() -> Iterator[ProcessPoolExecutor]:
    """Yield a process for each core, which import the simulator once."""
    with ProcessPoolExecutor(
        max_workers=len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else None
    ) as pool:
        yield pool


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
    trials = dict(zip(situations_keys(situations), pool.map(attempt, situations), strict=True))
    breaking = {name: pool.submit(breaking_point, plan, SCENARIOS[name]) for name in BREAKS}
    outcomes = []
    for scenario in scenarios:
        mine = tuple(trial for key, trial in trials.items() if key[0] == scenario.name)
        outcome = Outcome(scenario, mine, ())
        heard = fired(outcome.worst.course, scenario, plan.settings)
        found = breaking[scenario.name].result() if scenario.name in breaking and outcome.holds else None
        outcomes.append(replace(outcome, alarms=tuple(heard), breaks_at=found))
        say(f"{'PASS' if outcome.holds else 'FAIL'}  {scenario.name}: {scenario.words}")
    return outcomes


def situations_keys(situations: Sequence[Situation]) -> list[tuple[str, int, int]]:
    """Return what tells the situations of one rehearsal apart: scenario, nodes and seed."""
    return [(each.scenario.name, each.nodes, each.seed) for each in situations]


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
