"""The scaling law of one group in one cell, one pure object: CDK renders it into policies, a simulator evaluates it."""

from __future__ import annotations

import math
from collections.abc import Iterator
from dataclasses import dataclass, field, replace
from datetime import datetime, timedelta

from infra.fleet import sizing
from infra.fleet.parts import Group
from infra.fleet.policies import (
    Addition,
    Metrics,
    Removal,
    ScheduledFloor,
    Signal,
    Step,
    StepPolicy,
    TargetTracking,
    WarmPool,
)
from infra.fleet.settings import FleetSettings

# Target tracking at most doubles capacity in one evaluation: an exploding queue says little about how much is missing.
HIGHEST_OVER_TARGET = 2.0
# After a removal of one instance from the smallest group that may lose one, the signal must still be under its target
# by a fifth. That is enough for the steepest queue, M/M/1 a replica; tests/infra/fleet/test_scaling.py proves it.
CALM_MARGIN = 0.8
CALM_AT_MOST = 0.7


@dataclass(frozen=True)
class LawState:
    """What the law remembers between readings: how long each step policy was in breach, and what removal waits for."""

    breach_seconds: tuple[float, ...]
    calm_seconds: float = 0.0
    since_removal: float = math.inf


@dataclass(frozen=True)
class ScalingLaw:
    """What capacity a group gets. Instances throughout; times are aware datetimes.

    `wanted_capacity` is the law without memory: what one reading asks for. `advance` adds the alarms' evaluation
    periods and the cooldown, reading by reading, as CloudWatch and Auto Scaling do.
    """

    minimum: int
    maximum: int
    tracking: TargetTracking
    steps: tuple[StepPolicy, ...]
    removal: Removal
    warm_pool: WarmPool
    schedule: tuple[ScheduledFloor, ...] = field(default=())

    @classmethod
    def for_group(cls, settings: FleetSettings, group: Group) -> ScalingLaw:
        """The law of `group`, which is the same in every cell of the fleet."""
        minimum = max(group.minimum, sizing.instances_wanted(settings, group))
        utilisation = sizing.target_utilisation(settings)
        return cls(
            minimum=minimum,
            maximum=group.maximum,
            # Work in progress is at least utilisation (Little), so holding it there holds utilisation too.
            tracking=TargetTracking(
                Signal.OUTSTANDING, round(utilisation, 3), round(HIGHEST_OVER_TARGET * utilisation, 3), 10
            ),
            steps=_step_policies(settings),
            removal=_removal(settings, utilisation, minimum),
            warm_pool=_warm_pool(settings, group, minimum),
            schedule=tuple(_schedule(settings, group, minimum)),
        )

    def floor_at(self, time: datetime) -> int:
        """The minimum in force at `time`: the last scheduled one, or the ordinary one before any."""
        passed = [floor for floor in self.schedule if floor.at <= time]
        return max(passed, key=lambda floor: floor.at).minimum if passed else self.minimum

    def wanted_capacity(
        self, metrics: Metrics, time: datetime, in_service: int, *, desired: int | None = None, may_remove: bool = False
    ) -> int:
        """Instances wanted for one reading at `time`, between the floor in force and the maximum.

        Args:
            metrics: the reading; its alarms' evaluation periods are taken as satisfied.
            time: decides which scheduled floor is in force.
            in_service: instances that serve and are read.
            desired: instances asked for so far, those still booting included; `in_service` when none boots.
            may_remove: whether the group was calm for long and no cooldown runs.
        """
        asked = in_service if desired is None else desired
        policies: tuple[Addition, ...] = (self.tracking, *self.steps)
        wanted = max(asked, *(policy.wanted(metrics, in_service) for policy in policies))
        if may_remove and wanted == in_service == asked and self.removal.is_calm(metrics):
            wanted = self.removal.wanted(in_service)
        return self._bounded(wanted, time)

    def initial_state(self) -> LawState:
        """Nothing seen yet."""
        return LawState(breach_seconds=(0.0,) * len(self.steps))

    def advance(
        self, state: LawState, metrics: Metrics, time: datetime, seconds: float, in_service: int, desired: int
    ) -> tuple[int, LawState]:
        """The capacity wanted after `seconds` more of this reading, and what to remember."""
        breached = tuple(
            before + seconds if metrics.of(policy.signal) >= policy.threshold else 0.0
            for policy, before in zip(self.steps, state.breach_seconds, strict=True)
        )
        calm = state.calm_seconds + seconds if self.removal.is_calm(metrics) else 0.0
        now = LawState(breached, calm, state.since_removal + seconds)
        firing = tuple(
            policy
            for policy, lasted in zip(self.steps, breached, strict=True)
            if lasted >= policy.breaches * policy.period_seconds
        )
        rested = now.since_removal >= self.removal.cooldown_seconds
        may_remove = calm >= self.removal.calm_seconds and rested
        law = replace(self, steps=firing)
        wanted = law.wanted_capacity(metrics, time, in_service, desired=desired, may_remove=may_remove)
        return wanted, replace(now, since_removal=0.0) if wanted < desired else now

    def _bounded(self, instances: int, time: datetime) -> int:
        return min(self.maximum, max(self.floor_at(time), instances))


def _between(settings: FleetSettings, share: float) -> float:
    """Milliseconds: `share` of the way from the p99 of an unqueued plan (0) to the SLO (1)."""
    unqueued = settings.model.service_time.p99_ms
    return round(unqueued + share * (settings.slo.p99_ms - unqueued), 1)


def _step_policies(settings: FleetSettings) -> tuple[StepPolicy, ...]:
    """Latency and degraded answers add capacity. Both are late signs that target tracking was too slow."""
    near, late, at_slo = (_between(settings, share) for share in (0.5, 0.75, 1.0))
    return (
        # The balancer's percentiles come once a minute; p90 is steady enough to act on one.
        StepPolicy("p90", Signal.P90, (Step(near, 10), Step(late, 20), Step(at_slo, 40)), 60, 1),
        StepPolicy("p99", Signal.P99, (Step(late, 10), Step(at_slo, 25), Step(_between(settings, 1.5), 50)), 60, 2),
        StepPolicy("degraded", Signal.DEGRADED, (Step(0.01, 15), Step(0.05, 30), Step(0.2, 60)), 10, 2),
    )


def _removal(settings: FleetSettings, utilisation: float, minimum: int) -> Removal:
    calm = min(CALM_AT_MOST, CALM_MARGIN * minimum / (minimum + 1))
    return Removal(
        calm_below=(
            (Signal.OUTSTANDING, round(calm * utilisation, 3)),
            (Signal.P99, _between(settings, 0.5)),
            (Signal.DEGRADED, 0.001),
        ),
        period_seconds=60,
        calm_periods=15,
        percent=5,
        cooldown_seconds=600,
    )


def _warm_pool(settings: FleetSettings, group: Group, minimum: int) -> WarmPool:
    """Instances for a surge that builds up over one cold boot: what it needs before a cold instance can be there.

    What a surge needs after boot_seconds may be launched cold; before that, all but the first warm_start_seconds' worth
    must come from the pool. Sized for the biggest load that is scheduled.
    """
    rate = sizing.group_rate(settings, group, sizing.peak_multiplier(settings))
    carried = sizing.instances_for(settings, group, rate)
    early = max(0.0, 1 - settings.warm_start_seconds / settings.boot_seconds)
    size = min(group.maximum - minimum, math.ceil(carried * (settings.surge_factor - 1) * early - 1e-9))
    return WarmPool(size=size, prepared=minimum + size)


def _schedule(settings: FleetSettings, group: Group, minimum: int) -> Iterator[ScheduledFloor]:
    """The floor in force from each moment at which an event's capacity is due or no longer needed.

    One entry a moment, because Auto Scaling refuses two scheduled actions of a group at the same time.
    """
    spans = [(event, event.start - timedelta(minutes=event.lead_minutes)) for event in settings.events]
    moments = {event.end: f"{event.name}-ends" for event, _ in spans}
    moments |= {due: f"{event.name}-begins" for event, due in spans}
    for moment in sorted(moments):
        due_now = [event.multiplier for event, due in spans if due <= moment < event.end]
        floors = [sizing.instances_wanted(settings, group, multiplier) for multiplier in due_now]
        yield ScheduledFloor(moments[moment], moment, max([minimum, *floors]))
