"""The scaling law of one group in one cell, as one pure object that CDK renders and a simulator evaluates.

docs/decisions/0022-scaling-on-offered-work.md says why each signal is in it.
"""

import math
from collections.abc import Iterator
from dataclasses import dataclass, replace
from datetime import datetime
from typing import Self

from infra.fleet import sizing
from infra.fleet.calendar import Calendar
from infra.fleet.parts import Group
from infra.fleet.policies import (
    ACTION_EVERY_SECONDS,
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

# After a removal of one instance from the smallest group that may lose one, the signal must still be under its target
# by a fifth. That is enough for the steepest queue, M/M/1 a replica; tests/infra/fleet/test_scaling.py proves it.
CALM_MARGIN = 0.8
CALM_AT_MOST = 0.7
# Where offered work is so many times its target, a surge is under way: (from, the size to go to). An alarm acts when it
# goes off and then once a minute only, so each step has an alarm of its own: a load that grows tenfold within a minute
# passes them one after another, and each acts at once.
SURGE_STEPS = ((1.2, 1.5), (1.8, 2.25), (2.7, 3.35), (4.0, 5.0), (6.0, 8.0))
# What the others' offered work is, in times their full use, where a group that stands in goes to which share of its
# maximum. It takes long steps because it is small: a share of its few hosts would be one host a minute.
STAND_IN_STEPS = ((1.0, 1 / 3), (1.5, 2 / 3), (2.2, 1.0))
# While plans by the model are slow or queue for long, the law aims this much lower.
TIGHTENED = 0.8


@dataclass(frozen=True)
class LawState:
    """The law's memory between readings.

    For each policy that adds: which of its last readings were over its line, newest last, and how long ago it acted;
    for removal: how long everything has been calm, and how long ago something was removed.
    """

    over: tuple[tuple[bool, ...], ...]
    since_action: tuple[float, ...]
    calm_seconds: float = 0.0
    since_removal: float = math.inf


@dataclass(frozen=True)
class ScalingLaw:
    """The law that decides a group's capacity. All results are instances; times are aware datetimes.

    `wanted_capacity` is the law without memory: what one reading asks for. `advance` adds the alarms' evaluation (M of
    N, one action a minute) and the cooldown, reading by reading, as CloudWatch and Auto Scaling do.
    """

    minimum: int
    maximum: int
    tracking: TargetTracking
    steps: tuple[StepPolicy, ...]
    removal: Removal
    warm_pool: WarmPool
    calendar: Calendar

    @classmethod
    def for_group(cls, settings: FleetSettings, group: Group) -> Self:
        """Return the law of `group`, which is the same in every cell of the fleet."""
        utilisation = sizing.target_utilisation(settings, group)
        calendar = Calendar.of_group(settings, group)
        return cls(
            minimum=group.minimum,
            maximum=group.maximum,
            tracking=TargetTracking(Signal.WORK, round(utilisation, 3)),
            steps=(*_step_policies(settings, group, utilisation), *_standing_in(group)),
            removal=_removal(settings, group, utilisation),
            warm_pool=_warm_pool(settings, group, calendar),
            calendar=calendar,
        )

    @property
    def additions(self) -> tuple[Addition, ...]:
        """Every policy that may add instances, target tracking first."""
        return (self.tracking, *self.steps)

    @property
    def schedule(self) -> tuple[ScheduledFloor, ...]:
        return tuple(self.calendar.actions())

    def floor_at(self, time: datetime) -> int:
        return max(self.minimum, self.calendar.floor_at(time))

    def wanted_capacity(
        self, metrics: Metrics, time: datetime, in_service: int, *, desired: int | None = None, may_remove: bool = False
    ) -> int:
        """Return the instances wanted for one reading at `time`, between the floor in force and the maximum.

        Args:
            metrics: the reading; its alarms are taken to have gone off.
            time: decides which scheduled floor is in force.
            in_service: instances that serve and are read.
            desired: instances asked for so far, those still booting included; `in_service` when none boots.
            may_remove: whether the group was calm for long and no cooldown runs.
        """
        return self._wanted(self.additions, metrics, time, in_service, desired, may_remove)

    def initial_state(self) -> LawState:
        count = len(self.additions)
        return LawState(over=((),) * count, since_action=(math.inf,) * count)

    def advance(
        self, state: LawState, metrics: Metrics | None, time: datetime, seconds: float, in_service: int, desired: int
    ) -> tuple[int, LawState]:
        """Return the capacity wanted after `seconds` more of this reading, and the new state.

        Without a reading (None: no telemetry) nothing is known, so nothing is added and nothing removed: the size is
        held between the floor in force and the maximum.
        """
        since = tuple(before + seconds for before in state.since_action)
        if metrics is None:
            held = replace(state, since_action=since, calm_seconds=0.0, since_removal=state.since_removal + seconds)
            return self._bounded(desired, time), held
        over = tuple(
            _newest(before, policy.is_over(metrics), max(1, round(seconds / self.tracking.period_seconds)), policy)
            for policy, before in zip(self.additions, state.over, strict=True)
        )
        acting = tuple(
            sum(seen) >= policy.breaches and (waited >= ACTION_EVERY_SECONDS or sum(before) < policy.breaches)
            for policy, seen, before, waited in zip(self.additions, over, state.over, since, strict=True)
        )
        since = tuple(0.0 if acts else waited for acts, waited in zip(acting, since, strict=True))
        calm = state.calm_seconds + seconds if self.removal.is_calm(metrics) else 0.0
        now = LawState(over, since, calm, state.since_removal + seconds)
        may_remove = calm >= self.removal.calm_seconds and now.since_removal >= self.removal.cooldown_seconds
        firing = tuple(policy for policy, acts in zip(self.additions, acting, strict=True) if acts)
        wanted = self._wanted(firing, metrics, time, in_service, desired, may_remove)
        return wanted, replace(now, since_removal=0.0) if wanted < desired else now

    def _wanted(
        self,
        policies: tuple[Addition, ...],
        metrics: Metrics,
        time: datetime,
        in_service: int,
        desired: int | None,
        may_remove: bool,
    ) -> int:
        asked = in_service if desired is None else desired
        wanted = max([asked, *(policy.wanted(metrics, in_service) for policy in policies)])
        if may_remove and wanted == in_service == asked and self.removal.is_calm(metrics):
            wanted = self.removal.wanted(in_service)
        return self._bounded(wanted, time)

    def _bounded(self, instances: int, time: datetime) -> int:
        return min(self.maximum, max(self.floor_at(time), instances))


def _newest(before: tuple[bool, ...], is_over: bool, count: int, policy: Addition) -> tuple[bool, ...]:
    return (*before, *(is_over,) * count)[-policy.periods :]


def _between(settings: FleetSettings, group: Group, share: float) -> float:
    """Return the milliseconds at `share` of the way from the p99 of an unqueued plan (0) to the SLO (1)."""
    unqueued = sizing.service_time(settings, group).p99_ms
    return round(unqueued + share * (settings.slo.p99_ms - unqueued), 1)


def _step_policies(settings: FleetSettings, group: Group, utilisation: float) -> tuple[StepPolicy, ...]:
    def line(share: float) -> float:
        return _between(settings, group, share)

    def waited(share: float) -> float:
        return round(line(share) - line(0), 1)

    def steps(lowest: int, aim: float) -> tuple[Step, ...]:
        return tuple(Step(round(aim * over, 3), round(100 * (size - 1))) for over, size in SURGE_STEPS[lowest:])

    surge = (StepPolicy(f"surge-{number + 1}", Signal.WORK, steps(number, utilisation), 2, 3)
             for number in range(len(SURGE_STEPS)))  # fmt: skip
    aim = TIGHTENED * utilisation
    pressed = ((Signal.MODEL_P99, line(0.5)), (Signal.QUEUE_P99, waited(0.5)))
    budget = 1 - settings.slo.model_goal
    return (
        *surge,
        # Slow answers tighten the target, because the usual capacity is then not enough.
        StepPolicy("pressed", Signal.WORK, (Step(round(aim, 3), 10), *steps(0, aim)), 3, 5, pressed),
        # Below capacity, latency shows what offered work does not: a slow release, a bad host, a queue at one host.
        StepPolicy("latency", Signal.MODEL_P99, (Step(line(0.75), 10), Step(line(1), 25), Step(line(1.5), 50)), 3, 5),
        StepPolicy("queue", Signal.QUEUE_P99, (Step(waited(0.75), 10), Step(waited(1), 25)), 3, 5),
        # Shoppers who get the reader's plans are the harm itself, so a share above the budget acts at once.
        StepPolicy(
            "by-rule",
            Signal.BY_RULE,
            (Step(round(budget, 6), 15), Step(round(max(0.05, 2 * budget), 6), 30), Step(0.2, 60)),
            1,
            2,
        ),
    )


def _standing_in(group: Group) -> Iterator[StepPolicy]:
    """Yield what a group that stands in watches beside its own hosts: whether those it stands in for are full.

    Its own hosts do not show it. A balancer gives each host as many outstanding requests, so that sixteen processors
    are nearly idle while a chip's two replicas answer by the reader (`make rehearse SCENARIO=no-chips`).
    """
    if group.stands_in:
        steps = tuple(
            Step(
                round(sizing.FULL_UTILISATION * full, 3),
                max(100, round(100 * (share * group.maximum / group.minimum - 1))),
            )
            for full, share in STAND_IN_STEPS
        )
        yield StepPolicy("stand-in", Signal.OTHERS_WORK, steps, 2, 3)


def _removal(settings: FleetSettings, group: Group, utilisation: float) -> Removal:
    calm = min(CALM_AT_MOST, CALM_MARGIN * group.minimum / (group.minimum + 1))
    others = min(sizing.target_utilisation(settings, each) for each in settings.groups if not each.stands_in)
    return Removal(
        calm_below=(
            *(((Signal.OTHERS_WORK, round(calm * others, 3)),) if group.stands_in else ()),
            (Signal.WORK, round(calm * utilisation, 3)),
            (Signal.MODEL_P99, _between(settings, group, 0.5)),
            (Signal.BY_RULE, round((1 - settings.slo.model_goal) / 10, 6)),
        ),
        period_seconds=60,
        calm_periods=15,
        percent=5,
        cooldown_seconds=600,
    )


def _warm_pool(settings: FleetSettings, group: Group, calendar: Calendar) -> WarmPool:
    """Return the pool that carries the promised surge together with the instances in service.

    There is none where it gains no time.
    """
    if settings.warm_start_seconds >= settings.boot_seconds:
        return WarmPool(0)
    if group.stands_in:  # when it is needed, and how much of it, is unknown
        return WarmPool(group.maximum)
    return WarmPool(min(group.maximum, max(sizing.surge_instances(settings, group), calendar.highest)))
