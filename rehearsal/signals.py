"""`python -m rehearsal.signals [--check]`: what each signal shows past capacity, and how soon each law recovers.

Writes docs/figures/scaling.json, from which decision 22 argues. First the gateway's own admission control in simulated
time, at loads from half of what its replicas can do to ten times that. Then the prime-day fleet's scaling law against
ten times the load within a minute, beside the same law without some of its parts. Both are arithmetic with fixed seeds
and measure nothing: `--check` computes them anew and fails where the file says something else.
"""

from __future__ import annotations

import argparse
import json
import math
import random
import sys
from collections.abc import Sequence
from dataclasses import replace
from itertools import accumulate, takewhile
from typing import Any

from infra.fleet import sizing
from infra.fleet.cost_report import cpu_service_time
from infra.fleet.demand import ServiceTime
from infra.fleet.parts import REPOSITORY_ROOT, Group
from infra.fleet.policies import Signal, TargetTracking, WarmPool
from infra.fleet.scaling import ScalingLaw
from infra.fleet.settings import FLEETS, FleetSettings
from rehearsal.simulated_gateway import Arrival, Outcome, Simulation
from rehearsal.surge import log_normal, rehearse

FIGURE = REPOSITORY_ROOT / "docs" / "figures" / "scaling.json"
COMMAND = "python -m rehearsal.signals"
LOADS = (0.5, 0.8, 1.0, 1.2, 1.5, 2.0, 3.0, 10.0)  # times what the replicas can do
SECONDS, WARM_UP = 30.0, 10.0  # of each load; what happens in the first ten is not counted
BEFORE = 60  # seconds of the ordinary peak before a surge
HORIZONS = (300, 700, 1300)  # seconds that a law gets to recover: the first that shows it
STEADY = 100  # seconds without a bad window at its end
GOOD = 0.01  # of plans by rule: the model plans for the other 99%
_SEED = 1


def gateway_curve(time: ServiceTime, replicas: int, deadline: float) -> list[dict[str, float]]:
    """Return the signals of one host's gateway at each load. `deadline` is in seconds; the result says its units."""
    return [_at_load(load, time, replicas, deadline) for load in LOADS]


def _at_load(load: float, time: ServiceTime, replicas: int, deadline: float) -> dict[str, float]:
    numbers = random.Random(_SEED)
    mean = time.mean_ms / 1000
    rate = load * replicas / mean
    gaps = iter(lambda: numbers.expovariate(rate), None)
    moments = takewhile(lambda moment: moment < SECONDS, accumulate(gaps))
    draw = log_normal(time)
    arrivals = [Arrival(moment, draw(numbers), allowed=deadline) for moment in moments]
    outcomes = [each for each in Simulation(replicas).run(arrivals) if each.arrival.at >= WARM_UP]
    served = [each for each in outcomes if each.request.refusal is None]
    by_model = [each for each in outcomes if each.by_model]
    span = SECONDS - WARM_UP
    return {
        "load": load,
        "offered_work": round(len(outcomes) * mean / (replicas * span), 2),
        "by_rule_share": round(1 - len(by_model) / len(outcomes), 3),
        "answers_p99_ms": _p99([_latency(each) for each in outcomes]),
        "model_p99_ms": _p99([_latency(each) for each in by_model]),
        "queue_p99_ms": _p99([1000 * (each.began - each.arrival.at) for each in by_model]),
        # Little's law: the time that requests spend with the gateway, over the time that passes.
        "outstanding_per_replica": round(sum(_latency(each) for each in served) / 1000 / span / replicas, 2),
    }


def _latency(outcome: Outcome) -> float:
    """Return the milliseconds until the answer, by whom it may be."""
    return 1000 * (outcome.ended - outcome.arrival.at)


def _p99(milliseconds: list[float]) -> float:
    return round(sorted(milliseconds)[int(0.99 * len(milliseconds))], 1)


def laws(settings: FleetSettings, group: Group) -> dict[str, ScalingLaw]:
    """Return the group's law, and the same without some of its parts, by what is left."""
    whole = ScalingLaw.for_group(settings, group)
    deaf = TargetTracking(Signal.WORK, math.inf)  # a target that no work reaches

    def only(*signals: Signal) -> ScalingLaw:
        steps = tuple(policy for policy in whole.steps if policy.signal in signals)
        return replace(whole, tracking=deaf, steps=steps)

    late = (Signal.MODEL_P99, Signal.QUEUE_P99)
    return {
        "offered work, a warm pool for the promised surge": whole,
        "the same without a warm pool": replace(whole, warm_pool=WarmPool(0)),
        "plans by rule, latency and queue, with the warm pool": only(Signal.BY_RULE, *late),
        "latency and queue, with the warm pool": only(*late),
    }


def recovery_seconds(settings: FleetSettings, group: Group, law: ScalingLaw, times: float, seed: int) -> int | None:
    """Return the seconds from a surge's start until the model plans for 99% and goes on so; None if it never does."""
    rate, grows = sizing.group_rate(settings, group), (times - 1) / settings.surge.within
    load = [rate * min(times, 1 + max(0, second - BEFORE) * grows) for second in range(HORIZONS[-1])]
    for horizon in HORIZONS:
        windows = rehearse(settings, group, load.__getitem__, horizon, law=law, seed=seed)
        last = max((window.ends for window in windows if window.by_rule_share > GOOD), default=BEFORE)
        if last <= horizon - STEADY:
            return last - BEFORE
    return None


def figure() -> dict[str, Any]:
    """Return the content of the figure."""
    settings = FleetSettings.from_yaml(FLEETS / "prime-day.yaml")
    group = settings.groups[0]
    deadline = settings.slo.p99_ms / 1000
    replicas = sizing.replicas_per_instance(group, settings.model.tensor_parallel)
    hosts = {f"{group.instance_type}, {replicas} replicas": (sizing.service_time(settings, group), replicas)}
    if (processor := cpu_service_time()) is not None:
        hosts["two processor cores, 2 replicas"] = (processor, 2)
    times = settings.surge.times
    return {
        "command": COMMAND,
        "seconds_a_load": SECONDS - WARM_UP,
        "deadline_ms": settings.slo.p99_ms,
        "gateways": {
            name: {
                "mean_ms": time.mean_ms,
                "p99_ms": time.p99_ms,
                "source": time.source,
                "loads": gateway_curve(time, replicas, deadline),
            }
            for name, (time, replicas) in hosts.items()
        },
        "surge": {
            "group": f"{group.instance_type} of one {settings.name} cell",
            "times": times,
            "within_seconds": settings.surge.within,
            "recovered_after_seconds": {
                name: [recovery_seconds(settings, group, law, times, seed) for seed in (1, 2)]
                for name, law in laws(settings, group).items()
            },
        },
    }


def main(words: Sequence[str] | None = None) -> int:
    """Run the command line. Return 1 where `--check` finds another figure than it computes."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--check", action="store_true", help="change nothing; fail where the file says something else")
    given = parser.parse_args(words)
    text = json.dumps(figure(), indent=1) + "\n"
    if not given.check:
        FIGURE.write_text(text, encoding="utf-8")
        print(f"wrote {FIGURE.relative_to(REPOSITORY_ROOT)}; show it by `python -m rehearsal.tools.readme`")
    elif FIGURE.read_text(encoding="utf-8") != text:
        print(f"{FIGURE.relative_to(REPOSITORY_ROOT)} is stale: run `{COMMAND}`", file=sys.stderr)
        return 1
    return 0


if __name__ == "__main__":
    sys.exit(main())
