"""How instances of a group are replaced by a release, and how long that takes: the steps of an instance refresh."""

import math
from dataclasses import dataclass
from itertools import pairwise

from infra.fleet.policies import Signal
from infra.fleet.scaling import ScalingLaw
from infra.fleet.settings import FleetSettings

# This allows two minutes for the last answers and logs after the load balancer has drained an instance.
TERMINATE_MARGIN_SECONDS = 120
# A new instance is in service once its hook is through, and the balancer sends it nothing before two health checks: a
# refresh that did not wait that long would drain old instances while no new one receives anything (aws-cli#6327).
WARM_UP_SECONDS = 30


@dataclass(frozen=True)
class Replacement:
    """The preferences of an instance refresh.

    Instances of the new release stand ready before as many of the old one go: `spare_percent` of the group may run
    beside it meanwhile, and `lacking_percent` of it may lack where EC2 has no instances to spare.
    """

    checkpoints: tuple[int, ...]  # percent of the group; the refresh waits at each of them
    checkpoint_seconds: int
    spare_percent: int
    bake_seconds: int
    lacking_percent: int = 0

    @property
    def max_healthy_percent(self) -> int:
        return 100 + self.spare_percent

    def batches(self) -> int:
        """Return how many times instances are launched and waited for."""
        stages = pairwise((0, *self.checkpoints))
        at_once = self.spare_percent + self.lacking_percent
        return sum(math.ceil((until - done) / at_once) for done, until in stages)

    def seconds(self, boot_seconds: float, terminate_seconds: float) -> float:
        """Return how long a refresh takes at most where every launch succeeds.

        A batch boots cold, and the old instances that it replaces are gone before the next one begins. The warm pool
        does not count: its instances boot the release before.
        """
        waits = len(self.checkpoints) * self.checkpoint_seconds
        return self.batches() * (boot_seconds + WARM_UP_SECONDS + terminate_seconds) + waits + self.bake_seconds


# A way back takes a boot, in which what has the release still does harm.
_QUICK_BOOT_SECONDS = 600


def careful(settings: FleetSettings) -> Replacement:
    """Return how a release replaces a group: a tenth, which shows most harm under load; a larger part; then all.

    Plans that take twice as long show at the larger part only: half of the cell, or less where hosts boot slowly. Each
    wait is as long as harm takes to show in the group's alarms. The cell is watched after the last step by the deploy
    itself (rollout.canary_bake_minutes, rollout.bake_minutes).
    """
    larger = 50 if settings.boot_seconds <= _QUICK_BOOT_SECONDS else 30
    return Replacement(checkpoints=(10, larger, 100), checkpoint_seconds=600, spare_percent=50, bake_seconds=0)


# A way back must not need a second fleet of chips: a fifth may lack, less than where a zone is lost.
FAST = Replacement(checkpoints=(100,), checkpoint_seconds=0, spare_percent=80, bake_seconds=0, lacking_percent=20)


@dataclass(frozen=True)
class Stop:
    """A signal that stops a careful refresh and sends it back, once it was over its line in 3 of 5 minutes.

    The scaling law's own alarms would not do: they add hosts after ten seconds of plans by the reader, and hours of
    work are not thrown away for ten seconds.
    """

    name: str
    signal: Signal
    line: float
    period_seconds: int = 60
    breaching: int = 3
    periods: int = 5


def stops(law: ScalingLaw) -> tuple[Stop, ...]:
    """Return what stops a refresh of the law's group: no longer calm, or the reader's plans above the budget.

    Both lines have to show a release that is on a part of the hosts. A plan that takes longer than the SLO becomes one
    by the reader, so a line at the SLO is never crossed; a tenth of the hosts that spoils one plan in five is 2% of it.
    """
    calm = dict(law.removal.calm_below)
    (by_rule,) = (policy for policy in law.steps if policy.signal is Signal.BY_RULE)
    lines = {Signal.MODEL_P99: calm[Signal.MODEL_P99], Signal.BY_RULE: by_rule.threshold}
    names = {Signal.MODEL_P99: "latency", Signal.BY_RULE: "by-rule"}
    return tuple(Stop(f"refresh-stop-{names[signal]}", signal, line) for signal, line in lines.items())


def refresh_seconds(settings: FleetSettings, replacement: Replacement) -> float:
    """Return how long the instances of one cell take to be replaced; its groups are replaced side by side."""
    return replacement.seconds(settings.boot_seconds, settings.drain_seconds + TERMINATE_MARGIN_SECONDS)
