"""The parts of a scaling law: the signals that it watches, and the policies that a cell's group gets."""

import math
from dataclasses import dataclass
from datetime import datetime
from enum import StrEnum

# Service and law evaluate this often: the shortest period of a CloudWatch alarm, at which the service reports.
PERIOD_SECONDS = 10
# "For Auto Scaling actions, the alarm continues to invoke the action once per minute that the alarm remains in the
# new state." Source: Amazon CloudWatch user guide, Using Amazon CloudWatch alarms.
ACTION_EVERY_SECONDS = 60


# An instance warms up from InService on, after its hook: it serves at once, so the group's default is 0. Policies that
# add count it once its first readings have arrived: until then readings tell of the old size, and what they ask for,
# multiplied with the new size, would be half as much again (rehearsal/twin shows it). This delays no addition.
GROUP_WARM_UP_SECONDS = 0
READINGS_WARM_UP_SECONDS = 30


class Signal(StrEnum):
    """A signal that the law watches; the values name the fields of `Metrics`."""

    WORK = "offered_work"
    MODEL_P99 = "model_p99_ms"
    QUEUE_P99 = "queue_p99_ms"
    BY_RULE = "by_rule_share"
    OTHERS_WORK = "others_work"


@dataclass(frozen=True)
class Metrics:
    """The readings of one period of a cell's group.

    Units: service seconds that requests asked for in each second of a replica in service, refused requests included (1
    is all that the replicas can do); 99th percentiles in milliseconds, of plans by the model and of their time in the
    queue; plans by the reader as a share of all requests, 0..1; and offered work once more, of the cell's other groups,
    which a group that stands in for them watches.
    """

    offered_work: float
    model_p99_ms: float
    queue_p99_ms: float
    by_rule_share: float
    others_work: float = 0.0

    def of(self, signal: Signal) -> float:
        return float(getattr(self, signal.value))


def percent_change(instances: int, percent: float) -> int:
    """Return how many instances PercentChangeInCapacity adds to `instances`, or removes from it.

    The result is rounded towards zero, but never to zero. Source: Amazon EC2 Auto Scaling user guide, Step
    and simple scaling policies, Scaling adjustment types.
    """
    change = instances * percent / 100
    if 0 < abs(change) < 1:
        return int(math.copysign(1, change))
    return int(change)


@dataclass(frozen=True)
class TargetTracking:
    """A policy that keeps a signal, which falls as capacity rises, near a target.

    It only adds: `Removal` alone removes instances.

    Auto Scaling makes the alarms of a target tracking policy itself and does not say how long they wait at a period of
    10 seconds; `breaches` of `periods` is our assumption, 3 of 3 as documented for a minute's period.
    """

    signal: Signal
    target: float
    period_seconds: int = PERIOD_SECONDS
    breaches: int = 3
    periods: int = 3

    def is_over(self, metrics: Metrics) -> bool:
        return metrics.of(self.signal) > self.target

    def wanted(self, metrics: Metrics, in_service: int) -> int:
        """Return the instances that bring the signal to its target; never fewer than are in service."""
        return max(in_service, math.ceil(in_service * metrics.of(self.signal) / self.target - 1e-9))


@dataclass(frozen=True)
class Step:
    above: float
    percent: int


@dataclass(frozen=True)
class StepPolicy:
    """A policy that adds at once, and more the further a signal is over its threshold; the last step is the clamp.

    The alarm fires when `breaches` of the last `periods` are over the threshold, so that one late point delays nothing.
    Where `pressed_by` is not empty, the signal counts only while one of those signals is at its line or over it.
    Instances that were asked for and are not in service yet count as added already, so a breach that lasts while they
    boot adds nothing twice: Auto Scaling's step policies know no other cooldown.
    """

    name: str
    signal: Signal
    steps: tuple[Step, ...]
    breaches: int
    periods: int
    pressed_by: tuple[tuple[Signal, float], ...] = ()
    period_seconds: int = PERIOD_SECONDS

    @property
    def threshold(self) -> float:
        """The signal's value at which the alarm fires, where the first step begins."""
        return self.steps[0].above

    def _reading(self, metrics: Metrics) -> float:
        pressed = not self.pressed_by or any(metrics.of(signal) >= line for signal, line in self.pressed_by)
        return metrics.of(self.signal) if pressed else 0.0

    def is_over(self, metrics: Metrics) -> bool:
        return self._reading(metrics) >= self.threshold

    def wanted(self, metrics: Metrics, in_service: int) -> int:
        """Return the instances wanted at this reading, or `in_service` when the threshold is not reached."""
        reading = self._reading(metrics)
        percent = max((step.percent for step in self.steps if reading >= step.above), default=0)
        return in_service + percent_change(in_service, percent)


Addition = TargetTracking | StepPolicy  # what may ask for more than is in service


@dataclass(frozen=True)
class Removal:
    """A policy that removes a few instances at a time.

    It acts only after every signal was calm for long, and then not again for a cooldown.
    """

    calm_below: tuple[tuple[Signal, float], ...]
    period_seconds: int
    calm_periods: int
    percent: int
    cooldown_seconds: int

    @property
    def calm_seconds(self) -> int:
        return self.period_seconds * self.calm_periods

    def is_calm(self, metrics: Metrics) -> bool:
        return all(metrics.of(signal) < line for signal, line in self.calm_below)

    def wanted(self, in_service: int) -> int:
        return in_service + percent_change(in_service, -self.percent)


@dataclass(frozen=True)
class ScheduledFloor:
    """A scheduled action: the minimum from `at` on, or whenever `recurrence` (cron) says, from `starts` to `ends`."""

    name: str
    minimum: int
    at: datetime | None = None
    recurrence: str | None = None
    starts: datetime | None = None
    ends: datetime | None = None


@dataclass(frozen=True)
class WarmPool:
    """Stopped instances that were proven ready once: as many as make `prepared` together with those in service."""

    prepared: int

    def size(self, in_service: int) -> int:
        return max(0, self.prepared - in_service)
