"""`peakplan bench load`: measure the service under load and write docs/figures/serving.json.

Every part starts its own service, so that none inherits another's caches. `--scale 0.05` is a trial run: the same parts
in a twentieth of the time.
"""

import argparse
import asyncio
import json
import signal
import statistics
import sys
from collections.abc import Callable, Mapping, Sequence
from itertools import pairwise
from pathlib import Path
from typing import Any

import uvloop

from rehearsal.bench.machine import describe_machine, write_figure
from rehearsal.bench.questions import DATA
from rehearsal.client import Sample, Shot
from rehearsal.load import arrivals, mix
from rehearsal.load.__main__ import run
from rehearsal.load.probes import closed_loop, harmed, in_turns, warm_up
from rehearsal.load.result import latency_summary, shown, summarise
from rehearsal.server import Server, ServerError, serving
from service.planner.prompt import render_prompt

FIGURE = Path("docs/figures/serving.json")
DEADLINE_MS = 300
ORDERS = ("oldest", "newest", "adaptive")
PARTS = ("capacity", "steady", "overload", "cache", "overhead", "service_times", "faults")
_NO_CACHE = {"PEAKPLAN_CACHE_ENTRIES": 0}
_BANDS = 4  # of question lengths, each with as many questions
_QUANTILES = 200  # of each band's service times
_CALM_SECONDS = 10.0  # of observed recovery after an overload
_CALM_SHARE = 0.3  # of capacity


class Campaign:
    """The parts of the figure; each is a method that returns plain numbers."""

    def __init__(self, module: str, scale: float, data: Path) -> None:
        self._module = module
        self._scale = scale
        self._questions = mix.questions(mix.DISTINCT, data)
        self.capacity = 0.0

    def capacity_part(self) -> dict[str, Any]:
        """Measure plans per second of a model that always has the next question: 2 requests for each replica."""
        with self._serving(_NO_CACHE) as server:
            self._warm_up(server)
            result = self._capacity_of(server, 30 * self._scale)
        self.capacity = result["plans_per_second"]
        return result

    def steady_part(self) -> dict[str, Any]:
        """Run Poisson arrivals at 70% of capacity, every question different from those before."""
        return self._load(0.7, 300, _NO_CACHE)[0]

    def overload_part(self) -> dict[str, Any]:
        """Run ten times the capacity, then a low load that shows the recovery; once for each order of the queue.

        Goodput is compared with the capacity of the same processes right before and right after: over minutes the speed
        of a shared host drifts by more than the difference to show.
        """
        return {order: self._overload(order) for order in ORDERS}

    def cache_part(self) -> dict[str, Any]:
        """Measure hit ratio and latency at 70% of capacity when questions repeat as search queries do."""
        result, server = self._load(0.7, 120, {}, zipf=mix.ZIPF)
        hits, misses = server["peakplan_cache_hits_total"], server["peakplan_cache_misses_total"]
        return result | {
            "hit_ratio": round(hits / max(hits + misses, 1), 4),
            "zipf_exponent": mix.ZIPF,
            "distinct_questions": len(self._questions),
        }

    def overhead_part(self) -> dict[str, Any]:
        """Measure what the gateway adds to the engine at concurrency 1: each answer's time less the model's time.

        The engine alone, in this process and with a replica of its own, has such an overhead too: the round trip to the
        replica, prompt and grammar, parsing the plan. Subtracting its median leaves the gateway's part. They take turns
        of 25 questions: after every single one each would find the processor's caches full of the other.
        """
        count = max(int(500 * self._scale), 20)
        with self._serving(_NO_CACHE) as server:
            self._warm_up(server)
            served, bare = uvloop.run(in_turns(server.url, self._questions[:count]))
        engine = statistics.median(bare)
        return {
            "requests": count,
            "service_less_model_ms": latency_summary(served),
            "engine_less_model_ms": latency_summary(bare),
            "gateway_ms": latency_summary([seconds - engine for seconds in served]),
        }

    def service_times_part(self) -> dict[str, Any]:
        """Measure how long replicas take for questions of different lengths, at half of the capacity.

        `rehearsal/twin` draws from this. A band holds a quarter of the questions, from the shortest prompts on; its
        quantiles are evenly spaced, each the middle of a two-hundredth.
        """
        length = 240 * self._scale
        times = arrivals.poisson(0.5 * self.capacity, length)
        asked = mix.draw(self._questions, len(times), 0.0)
        with self._serving(_NO_CACHE) as server:
            self._warm_up(server)
            samples = run(server.url, self._shots(times))
        found = sorted(
            (len(render_prompt(question)), answer.model_seconds)
            for question, answer in zip(asked, map(shown, samples), strict=True)
            if answer.model_seconds is not None
        )
        edges = [round(number * len(found) / _BANDS) for number in range(_BANDS + 1)]
        bands = [_band(found[begin:end], len(found)) for begin, end in pairwise(edges) if end > begin]
        lag = latency_summary([sample.sent - sample.at for sample in samples])["p99"]
        return {"share_of_capacity": 0.5, "seconds": length, "requests": len(found), "lag_p99_ms": lag, "bands": bands}

    def faults_part(self) -> dict[str, Any]:
        """Kill replicas at half of the capacity; measure what was lost, and how soon all are back."""
        return {
            "kill one": self._fault(signal.SIGKILL, 1),
            "stop one": self._fault(signal.SIGSTOP, 1),
            "kill all": self._fault(signal.SIGKILL, None),
        }

    def _overload(self, order: str) -> dict[str, Any]:
        seconds = 60 * self._scale
        rate, calm = 10 * self.capacity, _CALM_SHARE * self.capacity
        times = arrivals.poisson(rate, seconds)
        after = [seconds + at for at in arrivals.poisson(calm, _CALM_SECONDS)]
        shots = self._shots([*times, *after])
        with self._serving({**_NO_CACHE, "PEAKPLAN_ORDER": order}) as server:
            self._warm_up(server)
            capacities = [self._capacity_of(server, 15 * self._scale)["plans_per_second"]]
            before = server.memory_mib()
            samples = run(server.url, shots)
            grown = server.memory_mib() - before
            capacities.append(self._capacity_of(server, 15 * self._scale)["plans_per_second"])
        loaded, calm_samples = samples[: len(times)], samples[len(times) :]
        result = summarise(loaded, seconds)
        return result | {
            "times_capacity": 10,
            "capacity_before_and_after": capacities,
            "goodput_share_of_capacity": round(result["goodput_per_second"] / statistics.mean(capacities), 4),
            "mean_body_bytes": _lengths(shots, loaded),
            "server_memory_grown_mib": round(grown, 1),
            "recovered_after_seconds": _recovery(calm_samples, seconds),
        }

    def _capacity_of(self, server: Server, seconds: float) -> dict[str, Any]:
        """Measure the model's plans per second with 2 requests at a time for each replica."""
        callers = 2 * max(len(server.replicas()), 1)
        latencies = asyncio.run(closed_loop(server.url, self._questions, callers, seconds))
        return {
            "plans_per_second": round(len(latencies) / seconds, 2),
            "callers": callers,
            "seconds": seconds,
            "latency_ms": latency_summary(latencies),
        }

    def _fault(self, number: signal.Signals, victims: int | None) -> dict[str, Any]:
        seconds = max(20 * self._scale, 6.0)
        with self._serving(_NO_CACHE) as server:
            self._warm_up(server)
            shots = self._shots(arrivals.poisson(self.capacity / 2, seconds))
            samples, recovered = asyncio.run(harmed(server, shots, number, server.replicas()[:victims]))
        return summarise(samples, seconds) | {"full_capacity_after_seconds": recovered}

    def _load(
        self, share: float, seconds: float, environment: Mapping[str, object], zipf: float = 0.0
    ) -> tuple[dict[str, Any], dict[str, float]]:
        length = seconds * self._scale
        times = arrivals.poisson(share * self.capacity, length)
        with self._serving(environment) as server:
            self._warm_up(server)
            samples = run(server.url, self._shots(times, zipf))
            metrics = {
                name: server.metric(name) for name in ("peakplan_cache_hits_total", "peakplan_cache_misses_total")
            }
        return summarise(samples, length) | {"share_of_capacity": share}, metrics

    def _shots(self, times: Sequence[float], zipf: float = 0.0) -> list[Shot]:
        asked = mix.draw(self._questions, len(times), zipf)
        return [
            Shot(at, mix.body(question, DEADLINE_MS), DEADLINE_MS / 1000)
            for at, question in zip(times, asked, strict=True)
        ]

    def _warm_up(self, server: Server) -> None:
        warm_up(server.url, self._questions[-20:])

    def _serving(self, environment: Mapping[str, object]) -> Any:
        return serving(environment, self._module)


def main() -> int:
    """Return 0 once the figure is written."""
    parser = argparse.ArgumentParser(prog="python -m rehearsal.load.figures", description=__doc__)
    parser.add_argument("--scale", type=float, default=1.0, help="share of the full length; the figure says so")
    parser.add_argument("--module", default="service", help="what serves: python -m MODULE")
    parser.add_argument("--data", type=Path, default=DATA)
    parser.add_argument("--output", type=Path, default=FIGURE)
    parser.add_argument("--only", choices=PARTS, help="measure one part anew; the rest of the figure stays")
    options = parser.parse_args()
    campaign = Campaign(options.module, options.scale, options.data)
    parts: dict[str, Callable[[], dict[str, Any]]] = {name: getattr(campaign, f"{name}_part") for name in PARTS}
    figure: dict[str, Any] = {
        "command": "peakplan bench load",
        "machine": describe_machine(),
        "module": options.module,
        "scale": options.scale,
    }
    if options.only:
        figure = json.loads(options.output.read_text(encoding="utf-8"))
        campaign.capacity = figure["capacity"]["plans_per_second"]
    try:
        for name in [options.only] if options.only else parts:
            print(f"measuring: {name}", file=sys.stderr)
            figure[name] = parts[name]()
    except ServerError as error:
        print(f"no figure: {error}", file=sys.stderr)
        return 1
    write_figure(options.output, figure)
    print(f"written: {options.output}")
    return 0


def _lengths(shots: Sequence[Shot], samples: Sequence[Sample]) -> dict[str, float]:
    """Return the mean body length of all requests and of those that the model answered: which the order prefers."""
    lengths = [len(shot.body) for shot in shots[: len(samples)]]
    by_model = [length for length, sample in zip(lengths, samples, strict=True) if shown(sample).source == "model"]
    return {
        "all": round(statistics.fmean(lengths), 1),
        "by_model": round(statistics.fmean(by_model or [0.0]), 1),
    }


def _band(found: Sequence[tuple[int, float]], of: int) -> dict[str, Any]:
    """Return one band of lengths and seconds: its share of `of` requests, and evenly spaced quantiles."""
    seconds = sorted(each for _, each in found)
    middles = [int((number + 0.5) / _QUANTILES * len(seconds)) for number in range(_QUANTILES)]
    return {
        "share": round(len(found) / of, 4),
        "mean_characters": round(statistics.fmean(length for length, _ in found), 1),
        "mean_ms": round(1000 * statistics.fmean(seconds), 3),
        "quantiles_ms": [round(1000 * seconds[middle], 3) for middle in middles],
    }


def _recovery(samples: Sequence[Sample], end: float) -> float | None:
    """Return the seconds from the overload's end until almost all plans were the model's and in time."""
    answers = [shown(sample) for sample in samples]
    for index, answer in enumerate(answers):
        rest = [other.is_good for other in answers[index:]]
        if answer.is_good and statistics.fmean(rest) >= 0.97:
            return round(max(answer.at - end, 0.0), 2)
    return None


if __name__ == "__main__":
    sys.exit(main())
