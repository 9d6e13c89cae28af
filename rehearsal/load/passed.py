"""`peakplan bench passed FILE...`: how many plans pass, not only how many are made, at 1 to 10 times the capacity.

Behaviour cases are replayed at two services in turns, one that lets chance decide who gets the model (routing off) and
one that goes by worth, with the same questions at the same moments. Every answer is scored by its case's assertions.
Intervals are of 95%, by bootstrap over the cases.
"""

import argparse
import asyncio
import json
import random
import statistics
import sys
from collections import defaultdict
from collections.abc import Mapping, Sequence
from contextlib import ExitStack
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np

from rehearsal.bench.machine import describe_machine, write_figure
from rehearsal.bench.quality import Case, Holds, checker, read_cases
from rehearsal.bench.tables import render
from rehearsal.client import Sample, Shot
from rehearsal.load import arrivals, mix
from rehearsal.load.__main__ import run
from rehearsal.load.probes import closed_loop, warm_up
from rehearsal.load.result import ALLOWANCE, shown
from rehearsal.server import Server, ServerError, serving

FIGURE = Path("docs/figures/passed.json")
CHECK = Path("../shared/behaviour/check.py")
TIMES_CAPACITY = (1, 2, 5, 10)
DEADLINE_MS = 300
ARMS: dict[str, Mapping[str, object]] = {
    "chance": {"PEAKPLAN_ROUTING": "off"},
    "worth": {"PEAKPLAN_ROUTING": "overload"},
}
_ALONE = {"PEAKPLAN_CACHE_ENTRIES": 0, "PEAKPLAN_REPLICAS": 1}  # the load generator takes a core of its own
_DRAWS = 2000


@dataclass
class Answers:
    """What one service answered at one load, over all its turns."""

    seconds: float = 0.0
    passed: dict[int, list[bool]] = field(default_factory=lambda: defaultdict(list))  # by number of the case
    by_model: int = 0
    good: int = 0  # plans by the model in time
    late: int = 0  # answers after the deadline and its allowance, or none
    latencies: list[float] = field(default_factory=list)

    def add(self, samples: Sequence[Sample], asked: Sequence[int], cases: Sequence[Case], holds: Holds) -> None:
        """Score the answers to the cases of these numbers."""
        for sample, number in zip(samples, asked, strict=True):
            answer = shown(sample)
            plan = json.loads(sample.body)["plan"] if sample.status == 200 else None
            in_time = answer.latency <= answer.deadline
            right = plan is not None and all(holds(plan, wanted) for wanted in cases[number].assertions)
            self.passed[number].append(right and in_time)
            self.by_model += answer.source == "model"
            self.good += answer.is_good
            self.late += plan is None or answer.latency > answer.deadline + ALLOWANCE
            self.latencies.append(answer.latency)

    @property
    def summary(self) -> dict[str, Any]:
        """The figures of this service and load: shares of 1, and rates a second."""
        passed = [each for every in self.passed.values() for each in every]
        return {
            "requests": len(passed),
            "passed_share": round(statistics.fmean(passed), 4),
            "passed_per_second": round(sum(passed) / self.seconds, 2),
            "model_share": round(self.by_model / len(passed), 4),
            "model_plans_in_time_per_second": round(self.good / self.seconds, 2),
            "past_deadline": self.late,
            "p99_ms": round(1000 * float(np.quantile(self.latencies, 0.99)), 1),
        }


def main() -> int:
    """Return 0 once the figure is written."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("cases", nargs="+", help="files of cases, or sets of rehearsal/bench/cases/written.jsonl")
    parser.add_argument("--check", type=Path, default=CHECK, help="the program that says what assertions mean")
    parser.add_argument("--times", type=float, nargs="+", default=TIMES_CAPACITY, help="loads, in capacities")
    parser.add_argument("--turns", type=int, default=4, help="of each service at each load")
    parser.add_argument("--seconds", type=float, default=8.0, help="of a turn")
    parser.add_argument("--module", default="service", help="what serves: python -m MODULE")
    parser.add_argument("--output", type=Path, default=FIGURE)
    given = parser.parse_args()
    try:
        holds = checker(given.check)
        cases = [case for name in given.cases for case in read_cases(name)]
        figure = measure(cases, holds, given.times, given.turns, given.seconds, given.module)
    except (FileNotFoundError, ServerError) as error:
        print(f"no figure: {error}", file=sys.stderr)
        return 1
    figure["sets"] = [Path(name).name for name in given.cases]
    write_figure(given.output, figure)
    print(render("passed", figure))
    return 0


def measure(
    cases: Sequence[Case], holds: Holds, times: Sequence[float], turns: int, seconds: float, module: str = "service"
) -> dict[str, Any]:
    """Replay the cases at every load, the services in turns. Raises ServerError."""
    with ExitStack() as stack:
        servers = {arm: stack.enter_context(serving({**_ALONE, **own}, module)) for arm, own in ARMS.items()}
        for server in servers.values():
            warm_up(server.url, [case.question for case in cases[:20]])
        capacity = statistics.fmean(_capacity(server, cases, seconds) for server in servers.values())
        loads = []
        for load in times:
            answers = {arm: Answers() for arm in ARMS}
            for turn in range(turns):
                at = arrivals.poisson(load * capacity, seconds, seed=turn)
                asked = random.Random(turn).choices(range(len(cases)), k=len(at))
                shots = [Shot(when, mix.body(cases[n].question, DEADLINE_MS), DEADLINE_MS / 1000)
                         for when, n in zip(at, asked, strict=True)]  # fmt: skip
                for arm in ARMS if turn % 2 else reversed(ARMS):
                    answers[arm].add(run(servers[arm].url, shots, progress=False), asked, cases, holds)
                    answers[arm].seconds += seconds
            loads.append({"times": load, **{arm: each.summary for arm, each in answers.items()}, **_beside(answers)})
    return {
        "command": "peakplan bench passed FILE...",
        "machine": describe_machine(),
        "cases": len(cases),
        "capacity": round(capacity, 2),
        "seconds": turns * seconds,
        "loads": loads,
    }


def _capacity(server: Server, cases: Sequence[Case], seconds: float) -> float:
    """Return the plans of the model a second while it always has the next question."""
    questions = [case.question for case in cases]
    random.Random(0).shuffle(questions)
    return len(asyncio.run(closed_loop(server.url, questions, 2, seconds))) / seconds


def _beside(answers: Mapping[str, Answers]) -> dict[str, Any]:
    """Return how many more pass by worth than by chance, of all requests, with an interval."""
    numbers = sorted(answers["worth"].passed)
    sums = {arm: np.array([sum(each.passed[n]) for n in numbers], float) for arm, each in answers.items()}
    counts = np.array([len(answers["worth"].passed[n]) for n in numbers], float)
    rng = np.random.default_rng(0)
    draws = [np.arange(len(numbers)), *(rng.integers(0, len(numbers), len(numbers)) for _ in range(_DRAWS))]
    more = [float((sums["worth"][d] - sums["chance"][d]).sum() / counts[d].sum()) for d in draws]
    return {"more_by_worth": [round(float(v), 4) for v in (more[0], *np.quantile(more[1:], (0.025, 0.975)))]}


if __name__ == "__main__":
    sys.exit(main())
