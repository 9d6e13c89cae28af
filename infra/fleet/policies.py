"""The parts of a scaling law: what is watched, and the policies that a cell's group gets. Data and arithmetic."""

from __future__ import annotations

import math
from dataclasses import dataclass
from datetime import datetime
from enum import StrEnum
from typing import Protocol


class Signal(StrEnum):
    """What the law watches; the values name the fields of `Metrics`."""

    OUTSTANDING = "outstanding_per_replica"
    P90 = "p90_ms"
    P99 = "p99_ms"
    DEGRADED = "degraded_share"


@dataclass(frozen=True)
class Metrics:
    """One reading of a cell's group.

    Units: outstanding requests a replica in service (queued ones included), mean over the group; the balancer's target
    response times in milliseconds; degraded answers as a share of all, 0..1.
    """

    outstanding_per_replica: float
    p90_ms: float
    p99_ms: float
    degraded_share: float

    def of(self, signal: Signal) -> float:
        """The reading of one signal."""
        return float(getattr(self, signal.value))


def percent_change(instances: int, percent: float) -> int:
    """Instances that PercentChangeInCapacity adds (or removes) to `instances`.

    Rounded as Auto Scaling rounds: towards zero, but never to nothing. Source: Amazon EC2 Auto Scaling user guide, Step
    and simple scaling policies, Scaling adjustment types.
    """
    change = instances * percent / 100
    if 0 < abs(change) < 1:
        return int(math.copysign(1, change))
    return int(change)


@dataclass(frozen=True)
class TargetTracking:
    """Keep a signal that falls as capacity rises near a target. It only adds: removing is `Removal`'s alone.

    `highest` clamps the signal, so that one evaluation multiplies capacity by highest / target at most.
    """

    signal: Signal
    target: float
    highest: float
    period_seconds: int

    def wanted(self, metrics: Metrics, in_service: int) -> int:
        """Instances that bring the signal to its target; never fewer than are in service."""
        reading = min(metrics.of(self.signal), self.highest)
        return max(in_service, math.ceil(in_service * reading / self.target - 1e-9))


class Addition(Protocol):
    """A policy that may ask for more than is in service."""

    def wanted(self, metrics: Metrics, in_service: int) -> int:
        """Instances wanted at this reading; `in_service` when none are to be added."""
        ...


@dataclass(frozen=True)
class Step:
    """From `above` on (in the signal's unit), `percent` of the instances in service are added."""

    above: float
    percent: int


@dataclass(frozen=True)
class StepPolicy:
    """Add at once, the more the further a signal is over its threshold; the last step is the clamp.

    The alarm fires after `breaches` periods in a row. Instances still warming up count as added already, so a breach
    that lasts while they boot adds nothing twice: Auto Scaling's step policies know no other cooldown.
    """

    name: str
    signal: Signal
    steps: tuple[Step, ...]
    period_seconds: int
    breaches: int

    @property
    def threshold(self) -> float:
        """Where the alarm fires: where the first step begins."""
        return self.steps[0].above

    def wanted(self, metrics: Metrics, in_service: int) -> int:
        """Instances wanted at this reading; `in_service` when the threshold is not reached."""
        reading = metrics.of(self.signal)
        percent = max((step.percent for step in self.steps if reading >= step.above), default=0)
        return in_service + percent_change(in_service, percent)


@dataclass(frozen=True)
class Removal:
    """Remove slowly: a few at a time, only after every signal was calm for long, and then not again for a cooldown."""

    calm_below: tuple[tuple[Signal, float], ...]
    period_seconds: int
    calm_periods: int
    percent: int
    cooldown_seconds: int

    @property
    def calm_seconds(self) -> int:
        """How long every signal must have been calm."""
        return self.period_seconds * self.calm_periods

    def is_calm(self, metrics: Metrics) -> bool:
        """Whether every signal is below its line."""
        return all(metrics.of(signal) < line for signal, line in self.calm_below)

    def wanted(self, in_service: int) -> int:
        """Instances left after one removal."""
        return in_service + percent_change(in_service, -self.percent)


@dataclass(frozen=True)
class ScheduledFloor:
    """From `at` on, the group's minimum is `minimum`."""

    name: str
    at: datetime
    minimum: int


@dataclass(frozen=True)
class WarmPool:
    """Stopped instances that were proven ready once: at least `size`, and `prepared` with those in service at most."""

    size: int
    prepared: int
