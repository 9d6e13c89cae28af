"""One group of one cell under a load that nobody announced: the scaling law against arrivals, second by second.

Small on purpose: one queue before all replicas of the group (the balancer sends to the fewest outstanding), served in
order, where a request that could not finish by its deadline is planned by rule at once. What it decides by is the
fleet's own `ScalingLaw`; telemetry is late, and hosts start from the warm pool or cold. It does not know zones, the
balancer's nodes, retries, caches or length of questions.
"""

from __future__ import annotations

import heapq
import math
import random
from collections.abc import Callable
from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta

from infra.fleet import sizing
from infra.fleet.demand import ServiceTime
from infra.fleet.parts import Group
from infra.fleet.policies import PERIOD_SECONDS, READINGS_WARM_UP_SECONDS, Metrics
from infra.fleet.scaling import ScalingLaw
from infra.fleet.settings import FleetSettings

# From a period's end until policies can see it: the hosts' next report, the agent's flush (5 s), CloudWatch's
# extraction. Stated, no document gives it.
TELEMETRY_DELAY_SECONDS = 15
# The gateway lets a request wait while nine generations in ten would still end in time (docs/decisions/0010).
ADMISSION_QUANTILE = 0.9
_Z_99 = 2.3263
_SAMPLES = 4096


@dataclass(frozen=True)
class Window:
    """Ten seconds: requests that came, those planned by rule, the longest that anybody waited for an answer (ms)."""

    ends: int
    requests: int
    by_rule: int
    longest_ms: float
    in_service: int
    desired: int
    metrics: Metrics

    @property
    def by_rule_share(self) -> float:
        """Share of the window's requests that were planned by rule."""
        return self.by_rule / self.requests if self.requests else 0.0


@dataclass
class Hosts:
    """Instances of the group: serving, starting (when each is ready), warm."""

    in_service: int
    warm: int
    starting: list[float] = field(default_factory=list)
    arrived: list[float] = field(default_factory=list)  # when the newest came into service

    def counted(self, now: float) -> int:
        """Return how many instances additions count: in service for as long as their metrics take to arrive."""
        self.arrived = [time for time in self.arrived if now - time < READINGS_WARM_UP_SECONDS]
        return max(0, self.in_service - len(self.arrived))

    @property
    def desired(self) -> int:
        """Number of instances asked for so far."""
        return self.in_service + len(self.starting)

    def ask(self, wanted: int, now: float, settings: FleetSettings) -> int:
        """Start the missing instances, warm ones first; return how many of those in service must go."""
        for _ in range(wanted - self.desired):
            takes = settings.warm_start_seconds if self.warm else settings.boot_seconds
            self.warm = max(0, self.warm - 1)
            heapq.heappush(self.starting, now + takes + sizing.HEALTH_SECONDS)
        surplus = max(0, self.desired - wanted)
        self.in_service -= surplus
        return surplus

    def arrive(self, now: float) -> int:
        """Put instances that are ready by `now` into service; return how many."""
        count = 0
        while self.starting and self.starting[0] <= now:
            heapq.heappop(self.starting)
            self.arrived.append(now)
            count += 1
        self.in_service += count
        return count


def log_normal(time: ServiceTime) -> Callable[[random.Random], float]:
    """Return how to draw the seconds of a plan: log-normal with this mean and 99th percentile."""
    ratio = math.log(time.p99_ms / time.mean_ms)  # = z s - s^2 / 2 of a log-normal
    sigma = _Z_99 - math.sqrt(max(0.0, _Z_99**2 - 2 * ratio))
    mu = math.log(time.mean_ms / 1000) - sigma**2 / 2
    return lambda random_numbers: random_numbers.lognormvariate(mu, sigma)


def service_times(settings: FleetSettings, group: Group, random_numbers: random.Random) -> list[float]:
    """Draw the seconds that plans of a group take."""
    draw = log_normal(sizing.service_time(settings, group))
    return [draw(random_numbers) for _ in range(_SAMPLES)]


@dataclass
class Cell:
    """The group's queue and replicas. `free` holds when each replica is next idle."""

    free: list[float]
    deadline: float
    patience: float
    times: list[float]
    numbers: random.Random

    def second(self, now: float, rate: float) -> tuple[int, int, float, list[float], list[float]]:
        """Simulate one second of arrivals: requests, by rule, longest answer, the model's latencies and queue times."""
        count = max(0, round(self.numbers.gauss(rate, math.sqrt(rate)))) if rate > 0 else 0
        by_rule, longest = 0, 0.0
        latencies: list[float] = []
        waits: list[float] = []
        for moment in sorted(now + self.numbers.random() for _ in range(count)):
            wait = self.free[0] - moment if self.free and self.free[0] > moment else 0.0
            if not self.free or wait > self.patience:
                by_rule += 1
                continue
            took = self.times[int(self.numbers.random() * _SAMPLES)]
            total = wait + took
            if total > self.deadline:  # cut off at the deadline: the replica is free again, rules answer
                by_rule += 1
                total, took = self.deadline, self.deadline - wait
            else:
                latencies.append(total)
                waits.append(wait)
            longest = max(longest, total)
            heapq.heapreplace(self.free, moment + wait + took)
        return count, by_rule, longest, latencies, waits

    def resize(self, count: int, replicas: int, now: float) -> None:
        """Add `count` more instances of so many replicas each, or remove some."""
        for _ in range(abs(count) * replicas):
            if count > 0:
                heapq.heappush(self.free, now)
            else:
                heapq.heappop(self.free)


def rehearse(
    settings: FleetSettings,
    group: Group,
    load: Callable[[int], float],
    seconds: int,
    *,
    law: ScalingLaw | None = None,
    start: int | None = None,
    noise: float = 0.08,
    is_heard: Callable[[int], bool] = lambda _: True,
    at: datetime = datetime(2027, 3, 3, 23, 30, tzinfo=UTC),
    seed: int = 1,
) -> list[Window]:
    """Run the group's scaling law against `load`, plans per second at each second. Deterministic for a seed.

    Args:
        settings, group: whose law, and whose hosts.
        load: plans a second that the group is asked.
        seconds: how long.
        law: another law than the group's own, to compare with.
        start: instances at the beginning, the floor at that hour when left out.
        noise: standard deviation of the load from second to second, as a share of it (gamma distributed).
        is_heard: whether the telemetry of that second reaches CloudWatch.
        at: the time of day at the beginning.
        seed: of all random numbers.
    """
    numbers = random.Random(seed)
    law = law or ScalingLaw.for_group(settings, group)
    hosts = Hosts(law.floor_at(at) if start is None else start, 0)
    hosts.warm = law.warm_pool.size(hosts.in_service)
    times = service_times(settings, group, numbers)
    replicas = sizing.replicas_per_instance(group, settings.model.tensor_parallel)
    deadline = settings.slo.p99_ms / 1000
    patience = deadline - sorted(times)[int(ADMISSION_QUANTILE * _SAMPLES)]
    cell = Cell([0.0] * hosts.in_service * replicas, deadline, patience, times, numbers)
    state, windows = law.initial_state(), list[Window]()
    gathered = _Gathered()
    shape = 1 / noise**2 if noise else 0.0
    for now in range(seconds):
        cell.resize(hosts.arrive(now), replicas, now)
        rate = load(now) * (numbers.gammavariate(shape, 1 / shape) if noise else 1.0)
        gathered.add(*cell.second(now, rate), hosts.in_service * replicas)
        if (now + 1) % PERIOD_SECONDS:
            continue
        mean = sizing.service_time(settings, group).mean_ms / 1000
        windows.append(gathered.window(now + 1, hosts, mean))
        gathered = _Gathered()
        seen = [window for window in windows if window.ends + TELEMETRY_DELAY_SECONDS <= now + 1]
        reading = seen[-1].metrics if seen and is_heard(seen[-1].ends - 1) else None
        moment = at + timedelta(seconds=now + 1)
        wanted, state = law.advance(state, reading, moment, PERIOD_SECONDS, hosts.counted(now + 1), hosts.desired)
        cell.resize(-hosts.ask(wanted, now + 1, settings), replicas, now + 1)
    return windows


@dataclass
class _Gathered:
    """The accumulated values of one window."""

    requests: int = 0
    by_rule: int = 0
    longest: float = 0.0
    replica_seconds: int = 0
    latencies: list[float] = field(default_factory=list)
    waits: list[float] = field(default_factory=list)

    def add(
        self, count: int, by_rule: int, longest: float, latencies: list[float], waits: list[float], replicas: int
    ) -> None:
        self.requests += count
        self.by_rule += by_rule
        self.longest = max(self.longest, longest)
        self.replica_seconds += replicas
        self.latencies += latencies
        self.waits += waits

    def window(self, ends: int, hosts: Hosts, mean: float) -> Window:
        metrics = Metrics(
            offered_work=self.requests * mean / self.replica_seconds if self.replica_seconds else 0.0,
            model_p99_ms=_p99(self.latencies),
            queue_p99_ms=_p99(self.waits),
            by_rule_share=self.by_rule / self.requests if self.requests else 0.0,
        )
        return Window(ends, self.requests, self.by_rule, 1000 * self.longest, hosts.in_service, hosts.desired, metrics)


def _p99(seconds: list[float]) -> float:
    return 1000 * sorted(seconds)[int(0.99 * len(seconds))] if seconds else 0.0
