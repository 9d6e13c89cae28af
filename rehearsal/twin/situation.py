"""A situation, everything that decides a run, and the course of a run."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from zoneinfo import ZoneInfo

import numpy as np

from infra.fleet import sizing
from infra.fleet.calendar import Calendar
from infra.fleet.policies import PERIOD_SECONDS
from infra.fleet.settings import FleetSettings
from rehearsal.twin.cell import OUTCOMES, Array
from rehearsal.twin.curves import Curve
from rehearsal.twin.scenarios import Scenario
from rehearsal.twin.work import Work

BEFORE, AFTER = 300, 1500  # seconds of a scenario before its fault and after it
# Columns of a course: what each window of ten seconds looked like at its end.
COLUMNS = (
    "requests", *OUTCOMES, "p99_ms", "desired", "in_service", "needed", "warm", "healthy", "offered", "replica_seconds",
    "answered", "degraded", "reported_shed", "model_p99_ms", "queue_p99_ms", "stand_in_seconds",
)  # fmt: skip


@dataclass(frozen=True)
class Situation:
    """Everything that decides a run: the same situation gives the same course, byte by byte."""

    settings: FleetSettings
    curve: Curve
    work: Work
    scenario: Scenario
    peak: float = 1.0  # times the forecast
    nodes: int = 24
    seed: int = 1
    hosts: int | None = None  # a cell's hosts instead of the fleet file's, never more and never fewer
    whole: bool = False  # the whole curve, instead of the time around its peak
    after: int = AFTER  # seconds that are simulated after the fault


@dataclass(frozen=True)
class Course:
    """What happened. `values` holds a row of COLUMNS for each window; seconds count from the beginning of the run."""

    values: Array
    fault: float | None
    begins: datetime
    offset: int  # seconds into the curve at which the run begins
    day_requests: float  # expected in a day like the curve
    left_in_flight: int
    arrived: int
    mean_hosts: tuple[float, ...]  # of each group that are paid for: in service, starting, booting for the pool

    @property
    def hits(self) -> tuple[float, float]:
        """The shares of requests that were answered from a cache, before the fault and after it."""
        cached, asked = self.column("cache"), self.column("requests")
        ends = (np.arange(len(asked)) + 1) * PERIOD_SECONDS
        before = ends <= (np.inf if self.fault is None else self.fault)
        return tuple(float(cached[each].sum() / max(asked[each].sum(), 1.0)) for each in (before, ~before))  # type: ignore[return-value]

    def column(self, name: str) -> Array:
        """Return one column of the course."""
        return self.values[:, COLUMNS.index(name)]


def event_of(settings: FleetSettings) -> tuple[datetime, float] | None:
    """Return when the fleet's greatest scheduled event starts, and its multiple of ordinary traffic."""
    events = sorted(settings.events, key=lambda event: (-event.multiplier, event.start))
    return (events[0].start, events[0].multiplier) if events else None


def peak_rate(situation: Situation) -> float:
    """Return the plans a second of one cell at the curve's peak."""
    event = event_of(situation.settings) if situation.scenario.load == "event" else None
    return sizing.cell_rate(situation.settings, event[1] if event else 1.0) * situation.peak


def begins(situation: Situation) -> datetime:
    """Return the moment of the curve's first second: the event's start, or where an ordinary day's peak is forecast."""
    settings, event = situation.settings, event_of(situation.settings)
    if situation.scenario.load == "event" and event:
        return event[0]
    zone = ZoneInfo(settings.traffic.time_zone)
    monday = datetime(2027, 3, 1, tzinfo=zone)
    calendar = Calendar.of_group(settings, settings.groups[0])
    floors = [calendar.floor_at(monday + timedelta(hours=hour)) for hour in range(24 * 6)]
    # The forecast's fullest hours: the peak falls into the third of at least five that have the highest floor.
    hour = next(hour for hour in range(24 * 5) if set(floors[hour : hour + 5]) == {max(floors)})
    return (monday + timedelta(hours=hour + 2) - timedelta(seconds=situation.curve.peak_second)).astimezone(UTC)
