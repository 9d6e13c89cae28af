"""A bad release in the twin: what it does to hosts, how it spreads over them, and the alarms that stop it."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from infra.fleet.policies import PERIOD_SECONDS, Metrics
from infra.fleet.replacement import Stop, careful
from infra.fleet.settings import FleetSettings

SLOWDOWN, FAILING = 2.0, 0.2  # of a bad release


def waves(settings: FleetSettings) -> list[tuple[int, float]]:
    """Return (seconds into the deploy, share of hosts) of each step of a release.

    The time that instances take to boot is left out: harm comes early.
    """
    replacement = careful(settings)
    return [(step * replacement.checkpoint_seconds, share / 100) for step, share in enumerate(replacement.checkpoints)]


def goes_off(stop: Stop, readings: Sequence[Metrics | None]) -> bool:
    """Return whether the alarm of `stop` goes off, by the readings of every period since the run began.

    A reading of its longer period is the mean of those in it: of shares that is nearly exact, and of percentiles
    somewhat low where they differ, so the twin stops no release sooner than CloudWatch would.
    """
    each = stop.period_seconds // PERIOD_SECONDS
    whole = len(readings) // each
    over = 0
    for period in range(max(0, whole - stop.periods), whole):
        values = [reading.of(stop.signal) for reading in readings[period * each : (period + 1) * each] if reading]
        over += bool(values) and float(np.mean(values)) >= stop.line
    return over >= stop.breaching
