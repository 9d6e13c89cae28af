"""What a rehearsal puts a fleet through: named scenarios, the situations of their runs, and the course of a run."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from typing import Literal
from zoneinfo import ZoneInfo

import numpy as np

from infra.fleet import sizing
from infra.fleet.calendar import Calendar
from infra.fleet.policies import PERIOD_SECONDS
from infra.fleet.settings import FleetSettings
from rehearsal.twin.cell import OUTCOMES, Array
from rehearsal.twin.curves import Curve
from rehearsal.twin.work import Work

BEFORE, AFTER = 300, 1500  # seconds of a scenario before its fault and after it
# Columns of a course: what each window of ten seconds looked like at its end.
COLUMNS = (
    "requests", *OUTCOMES, "p99_ms", "desired", "in_service", "needed", "warm", "healthy", "offered", "replica_seconds",
    "answered", "degraded", "reported_shed", "stand_in_seconds",
)  # fmt: skip

Load = Literal["event", "ordinary"]
Fault = Literal[
    "",
    "black-hole",
    "refuse",
    "fail-fast",
    "cold-cache",
    "lost-cache",
    "lost-reservation",
    "no-chips",
    "slow-release",
    "failing-release",
    "silence",
    "cell-out",
]


@dataclass(frozen=True)
class Scenario:
    """A load and what happens at its peak.

    `flash`: times the forecast within 60 s, unannounced. `boots`: factor of boot and warm start. `warm`: whether the
    pool is full. `retries`: attempts of a client after one that failed. `remembers`: whether hosts cache plans.
    """

    name: str
    words: str
    load: Load = "event"
    fault: Fault = ""
    flash: float = 1.0
    boots: float = 1.0
    warm: bool = True
    retries: int = 0
    remembers: bool = False

    @property
    def is_surge(self) -> bool:
        """Whether load comes that nobody scheduled."""
        return self.flash > 1


class ScenarioError(ValueError):
    """An unknown scenario, or one that the fleet cannot be put through. The message names it."""


_EVERY = (
    Scenario("nominal", "the forecast, and nothing goes wrong"),
    Scenario(
        "zone-lost", "a zone swallows requests without an answer, and its balancer nodes are gone", fault="black-hole"
    ),
    Scenario("zone-refused", "a zone refuses every connection: its hosts look idle and attract", fault="refuse"),
    Scenario("retries", "a zone is lost, and clients ask up to three times more", fault="black-hole", retries=3),
    Scenario("fail-fast", "one host in twenty answers every request with an error at once", fault="fail-fast"),
    Scenario("slow-boots", "a zone is lost while starts take three times as long", fault="black-hole", boots=3),
    Scenario("empty-pool", "a zone is lost while the warm pool is empty and stays so", fault="black-hole", warm=False),
    Scenario("cold-cache", "hosts remember plans, and all of them forget at once", fault="cold-cache", remembers=True),
    Scenario(
        "lost-cache",
        "hosts share a cache of plans, and it is gone for good: each has what it answered itself",
        fault="lost-cache",
        remembers=True,
    ),
    Scenario(
        "lost-reservation",
        "a zone's reservation was refused: its chips never started for the event, and no others can be had",
        fault="lost-reservation",
    ),
    Scenario(
        "no-chips",
        "an ordinary day's peak grows fourfold within a minute, and no chip can be started: processors take over",
        "ordinary",
        fault="no-chips",
        flash=4,
    ),
    Scenario("slow-release", "a deploy at the peak: plans take twice as long on new hosts", fault="slow-release"),
    Scenario("failing-release", "a deploy at the peak: one plan in five fails on new hosts", fault="failing-release"),
    Scenario("silence", "telemetry is lost for ten minutes", fault="silence"),
    Scenario("cell-out", "another cell is moved out, and its callers come here", fault="cell-out"),
    Scenario("flash-x4", "an ordinary day's peak grows fourfold within a minute, unannounced", "ordinary", flash=4),
    Scenario("flash-x10", "an ordinary day's peak grows tenfold within a minute, unannounced", "ordinary", flash=10),
    Scenario(
        "flash-x10-empty-pool",
        "the same while the warm pool is empty and stays so",
        "ordinary",
        flash=10,
        warm=False,
    ),
)
SCENARIOS = {scenario.name: scenario for scenario in _EVERY}
# No fleet file promises this one: it is there to be looked at, not to stop a deploy.
_BEYOND = ("flash-x10-empty-pool",)


def chosen(name: str, settings: FleetSettings) -> tuple[list[Scenario], dict[str, str]]:
    """Return the scenarios that `name` stands for (`all`, or one of them), and why others are left out.

    Raises:
        ScenarioError: there is no such scenario, or this fleet cannot be put through it.
    """
    if name != "all":
        if name not in SCENARIOS:
            raise ScenarioError(f"{name}: no such scenario; there are all, {', '.join(SCENARIOS)}")
        if why := _impossible(SCENARIOS[name], settings):
            raise ScenarioError(f"{name}: {why}")
        return [SCENARIOS[name]], {}
    left_out = {
        scenario.name: why
        for scenario in _EVERY
        if (why := _impossible(scenario, settings) or _not_promised(scenario, settings))
    }
    return [scenario for scenario in _EVERY if scenario.name not in left_out], left_out


def _impossible(scenario: Scenario, settings: FleetSettings) -> str:
    if scenario.fault == "cell-out" and len(settings.serving_cells) == 1:
        return f"{settings.name} has one cell, and no other can be moved out"
    if scenario.fault == "lost-cache" and not settings.shared_cache.enabled:
        return f"{settings.name} has no shared cache to lose"
    if scenario.fault == "lost-reservation" and not any(group.reserve for group in settings.groups):
        return f"{settings.name} reserves nothing"
    if scenario.fault == "no-chips" and not any(group.stands_in for group in settings.groups):
        return f"{settings.name} has no group that stands in for chips"
    return ""


def _not_promised(scenario: Scenario, settings: FleetSettings) -> str:
    if scenario.name in _BEYOND:
        return "beyond every promise; ask for it by name"
    if scenario.flash > settings.surge.times:
        return f"the fleet file promises a surge of {settings.surge.times:g} times, not {scenario.flash:g}"
    if scenario.fault == "failing-release" and settings.cells == 1:
        return f"{settings.name} has one cell, its own canary: a bad release is found there; ask for it by name"
    return ""


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
