"""`make load-figures`: what the service shows under load, measured into docs/figures/serving.json.

Every part starts its own service, so that none inherits another's caches. `--scale 0.05` is a rehearsal of the
rehearsal: the same parts in a twentieth of the time.
"""

import argparse
import asyncio
import json
import os
import signal
import statistics
import sys
import time
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

import uvloop

from benchmarks.machine import describe_machine
from benchmarks.questions import DATA
from rehearsal.load import arrivals, mix
from rehearsal.load.__main__ import run
from rehearsal.load.client import Gunner, Sample, Shot
from rehearsal.load.result import latency_summary, shown, summarise
from rehearsal.load.server import Server, ServerError, serving
from service.api.app import replica_engine, settings_source
from service.planner.planner import Planner
from service.planner.question import Question
from service.settings import Settings

FIGURE = Path("docs/figures/serving.json")
DEADLINE_MS = 300
ORDERS = ("oldest", "newest", "adaptive")
_NO_CACHE = {"PEAKPLAN_CACHE_ENTRIES": 0}
_CALM_SECONDS = 10.0  # of watched recovery after an overload
_CALM_SHARE = 0.3  # of capacity


class Campaign:
    """The parts of the figure; each is a method that returns plain numbers."""

    def __init__(self, module: str, scale: float, data: Path) -> None:
        self._module = module
        self._scale = scale
        self._questions = mix.questions(mix.DISTINCT, data)
        self.capacity = 0.0

    def capacity_part(self) -> dict[str, Any]:
        """Plans a second that the model makes when it always has the next question: 2 requests a replica at a time."""
        seconds = 30 * self._scale
        with self._serving(_NO_CACHE) as server:
            self._warm_up(server)
            callers = 2 * max(len(server.replicas()), 1)
            latencies = asyncio.run(_closed_loop(server.url, self._questions, callers, seconds))
        self.capacity = len(latencies) / seconds
        return {
            "plans_per_second": round(self.capacity, 2),
            "callers": callers,
            "seconds": seconds,
            "latency_ms": latency_summary(latencies),
        }

    def steady_part(self) -> dict[str, Any]:
        """Poisson arrivals at 70% of capacity, every question different from those before."""
        return self._load(0.7, 300, _NO_CACHE)[0]

    def overload_part(self) -> dict[str, Any]:
        """Ten times the capacity, then a calm that shows the recovery; once for each order of the line."""
        return {order: self._overload(order) for order in ORDERS}

    def cache_part(self) -> dict[str, Any]:
        """Hit ratio and latency at 70% of capacity when questions repeat as search queries do."""
        result, server = self._load(0.7, 120, {}, zipf=mix.ZIPF)
        hits, misses = server["peakplan_cache_hits_total"], server["peakplan_cache_misses_total"]
        return result | {
            "hit_ratio": round(hits / max(hits + misses, 1), 4),
            "zipf_exponent": mix.ZIPF,
            "distinct_questions": len(self._questions),
        }

    def overhead_part(self) -> dict[str, Any]:
        """What the gateway adds to the engine at concurrency 1: each answer's time less what the model took.

        The engine alone, in this process and with a replica of its own, has such a rest too: the way to the replica
        and back, prompt and grammar, reading the plan. Asked in turns, its median taken off leaves the gateway's part.
        """
        count = max(int(500 * self._scale), 20)
        with self._serving(_NO_CACHE) as server:
            self._warm_up(server)
            served, bare = uvloop.run(_in_turns(server.url, self._questions[:count]))
        engine = statistics.median(bare)
        return {
            "requests": count,
            "service_less_model_ms": latency_summary(served),
            "engine_less_model_ms": latency_summary(bare),
            "gateway_ms": latency_summary([seconds - engine for seconds in served]),
        }

    def faults_part(self) -> dict[str, Any]:
        """Half of the capacity while replicas die: what was lost, and how soon all are back."""
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
        with self._serving({**_NO_CACHE, "PEAKPLAN_ORDER": order}) as server:
            self._warm_up(server)
            before = server.memory_mib()
            samples = run(server.url, self._shots([*times, *after]))
            grown = server.memory_mib() - before
        loaded, calm_samples = samples[: len(times)], samples[len(times) :]
        result = summarise(loaded, seconds)
        return result | {
            "times_capacity": 10,
            "goodput_share_of_capacity": round(result["goodput_per_second"] / self.capacity, 4),
            "server_memory_grown_mib": round(grown, 1),
            "recovered_after_seconds": _recovery(calm_samples, seconds),
        }

    def _fault(self, number: signal.Signals, victims: int | None) -> dict[str, Any]:
        seconds = max(20 * self._scale, 6.0)
        with self._serving(_NO_CACHE) as server:
            self._warm_up(server)
            shots = self._shots(arrivals.poisson(self.capacity / 2, seconds))
            samples, recovered = asyncio.run(_harmed(server, shots, number, server.replicas()[:victims]))
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
        shots = [Shot(0.0, mix.body(question, 2000), 2.0) for question in self._questions[-20:]]
        asyncio.run(_one_at_a_time(server.url, shots))

    def _serving(self, environment: Mapping[str, object]) -> Any:
        return serving(environment, self._module)


def main() -> int:
    """Exit code 0 once the figure is written."""
    parser = argparse.ArgumentParser(prog="python -m rehearsal.load.figures", description=__doc__)
    parser.add_argument("--scale", type=float, default=1.0, help="share of the full length; the figure says so")
    parser.add_argument("--module", default="service", help="what serves: python -m MODULE")
    parser.add_argument("--data", type=Path, default=DATA)
    parser.add_argument("--output", type=Path, default=FIGURE)
    options = parser.parse_args()
    campaign = Campaign(options.module, options.scale, options.data)
    parts: dict[str, Callable[[], dict[str, Any]]] = {
        "capacity": campaign.capacity_part,
        "steady": campaign.steady_part,
        "overload": campaign.overload_part,
        "cache": campaign.cache_part,
        "overhead": campaign.overhead_part,
        "faults": campaign.faults_part,
    }
    figure: dict[str, Any] = {
        "command": "make load-figures",
        "machine": describe_machine(),
        "module": options.module,
        "scale": options.scale,
    }
    try:
        for name, part in parts.items():
            print(f"measuring: {name}", file=sys.stderr)
            figure[name] = part()
    except ServerError as error:
        print(f"no figure: {error}", file=sys.stderr)
        return 1
    options.output.write_text(json.dumps(figure, indent=1) + "\n", encoding="utf-8")
    print(f"written: {options.output}")
    return 0


async def _closed_loop(url: str, questions: Sequence[Question], callers: int, seconds: float) -> list[float]:
    """Seconds that each plan of the model took, with so many callers who each wait for their answer."""
    gunner, end = Gunner(url, keep=True), time.monotonic() + seconds
    latencies: list[float] = []

    async def call(first: int) -> None:
        number = first
        while time.monotonic() < end:
            question = questions[number % len(questions)]
            number += callers
            (sample,) = await gunner.fire([Shot(0.0, mix.body(question, 2000), 2.0)])
            if shown(sample).rung == "model":
                latencies.append(sample.latency)

    await asyncio.gather(*(call(number) for number in range(callers)))
    gunner.close()
    return latencies


async def _one_at_a_time(url: str, shots: Sequence[Shot]) -> list[float]:
    """For each plan of the model: the round trip less what the replica itself took, in seconds."""
    gunner = Gunner(url, keep=True)
    added: list[float] = []
    for shot in shots:
        (sample,) = await gunner.fire([shot])
        answer = shown(sample)
        if answer.model_seconds is not None:
            added.append(sample.ended - sample.sent - answer.model_seconds)
    gunner.close()
    return added


async def _in_turns(url: str, questions: Sequence[Question]) -> tuple[list[float], list[float]]:
    """For each question: the service's round trip and the bare engine's time, less what the model itself took."""
    settings = Settings()
    engine = replica_engine(settings, settings_source(settings), 0)
    await engine.start()
    planner, gunner = Planner(engine, settings.strategy), Gunner(url, keep=True)
    served: list[float] = []
    bare: list[float] = []
    for question in questions:
        (sample,) = await gunner.fire([Shot(0.0, mix.body(question, 2000), 2.0)])
        answer = shown(sample)
        started = time.perf_counter()
        result = (await planner.plan_with_model(question)).result
        seconds = time.perf_counter() - started
        if answer.model_seconds is not None and result is not None:
            served.append(sample.ended - sample.sent - answer.model_seconds)
            bare.append(seconds - result.seconds)
    gunner.close()
    await engine.close()
    return served, bare


async def _harmed(
    server: Server, shots: Sequence[Shot], number: signal.Signals, victims: Sequence[int]
) -> tuple[list[Sample], float | None]:
    """Fire; a fifth of the way in, signal the victims. The samples, and how long until as many serve as before."""
    count = len(server.replicas())
    firing = asyncio.create_task(Gunner(server.url).fire(shots))
    await asyncio.sleep(shots[-1].at / 5)
    for pid in victims:
        os.kill(pid, number)
    harmed = time.monotonic()
    recovered: float | None = None
    lost = False
    while time.monotonic() - harmed < 60 and recovered is None:
        await asyncio.sleep(0.05)
        up = await asyncio.to_thread(server.metric, "peakplan_replicas_in_service")
        lost = lost or up < count
        if lost and up == count:
            recovered = round(time.monotonic() - harmed, 2)
    return await firing, recovered


def _recovery(samples: Sequence[Sample], end: float) -> float | None:
    """Seconds after the overload's end from which on all plans but a few in a hundred were the model's and in time."""
    answers = [shown(sample) for sample in samples]
    for index, answer in enumerate(answers):
        rest = [other.is_good for other in answers[index:]]
        if answer.is_good and statistics.fmean(rest) >= 0.97:
            return round(max(answer.at - end, 0.0), 2)
    return None


if __name__ == "__main__":
    sys.exit(main())
