"""A load test of a deployed fleet, weeks before its event: how much is sent when, and what it can cost at most.

Functions in a caller's own network send the load: they come to the fleet as its callers do, by routes, PrivateLink and
names, and the fleet opens nothing for them. A state machine starts them minute by minute. Before each minute it looks
at the alarms of harm and ends where one has fired, so that what a stop leaves behind is the minute that runs. Time is
bounded by the list of minutes and by the machine's own limit, and cost by both and by the functions' concurrency.
"""

from __future__ import annotations

import csv
import math
from collections.abc import Sequence
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

from infra.fleet import sizing
from infra.fleet.alarms import alarm_name
from infra.fleet.cost import Prices, bill
from infra.fleet.host_names import service_name
from infra.fleet.rollout_states import MOST_HISTORY
from infra.fleet.settings import FleetSettings

MINUTE = 60
MOST_MINUTES = 120
RATE_A_WORKER = 250.0  # stated, not measured in Lambda: a worker's line says how late it was itself (Lag)
MEMORY_MIB = 1769  # at which a function has one whole processor (AWS Lambda developer guide, Configure memory)
AHEAD_SECONDS = 15  # a minute's functions are started before it: a new one takes seconds to be there
ENDING_SECONDS = 15  # for the last answers, and for the lines about them
# An account runs 1,000 functions at once unless it has asked for more, and two minutes' functions overlap.
MOST_WORKERS = 400
HISTORY_A_WORKER, HISTORY_A_MINUTE = 9, 20  # events of an execution's history
# What ends a load: shoppers who get late answers, none, or mostly rules' plans. Past capacity, rules plan by design.
HARM, HARM_WITHIN_CAPACITY = ("fast-burn", "mostly-degraded"), ("model-fast-burn",)
QUIET_HOURS = 48  # before an event, in which nobody loads the fleet
SETTLING_MINUTES = 30  # stated: until the hosts that came for the load are gone
WORKERS_NAMESPACE = "Peakplan/Load"
_CURVE = ["second", "requests"]


class EventLoadError(Exception):
    """A load that cannot be had, or not now. The message says why and what to do."""


@dataclass(frozen=True)
class Bound:
    """What a load costs at most, in the prices' currency: its functions, and the hosts that the fleet starts for it."""

    workers: float
    fleet: float

    @property
    def total(self) -> float:
        """Both together."""
        return self.workers + self.fleet


@dataclass(frozen=True)
class EventLoad:
    """A load of one fleet: `share` of what `multiplier` times its ordinary traffic is at the peak, for `minutes`.

    `curve` holds the course, one value for the end of each minute and the beginning of the first, of any unit; without
    one the load grows for half of the time, and stays. `fresh` is the share of questions that no cache can know.
    """

    settings: FleetSettings
    multiplier: float
    share: float = 1.0
    minutes: int = 30
    fresh: float = 0.5
    caller: str = ""
    curve: tuple[float, ...] = ()

    def __post_init__(self) -> None:
        if not 1 <= self.minutes <= MOST_MINUTES:
            raise EventLoadError(f"{self.minutes} minutes: 1 to {MOST_MINUTES} are possible")
        if not 0 < self.share <= 3 or not 0 <= self.fresh <= 1:
            raise EventLoadError(f"PEAK={self.share:g}, fresh={self.fresh:g}: above 0 to 3, and 0 to 1, are possible")
        if self.caller and self.caller not in {each.name for each in self.settings.callers}:
            raise EventLoadError(f"{self.caller}: no caller of {self.settings.name} has that name")
        if self.workers > MOST_WORKERS:
            raise EventLoadError(
                f"{self.workers} workers of {RATE_A_WORKER:g} requests a second for {max(self.rates):,.0f}: "
                f"{MOST_WORKERS} are possible in a region; lower PEAK"
            )
        if self.minutes > (longest := MOST_HISTORY // (HISTORY_A_MINUTE + HISTORY_A_WORKER * self.workers)):
            raise EventLoadError(
                f"{self.minutes} minutes of {self.workers} workers are more than one execution's history holds: "
                f"MINUTES={longest} at most"
            )

    @property
    def name(self) -> str:
        """What the load's state machine and function are called."""
        return f"peakplan-{self.settings.name}-load"

    @property
    def url(self) -> str:
        """Where the workers ask: all cells, or those of one caller."""
        return f"https://{service_name(self.settings, self.caller or None)}"

    @property
    def rates(self) -> tuple[float, ...]:
        """Requests a second of the whole load: at the first minute's beginning, then at every minute's end."""
        top = sizing.fleet_rate(self.settings, self.multiplier) * self.share
        growing = max(self.minutes // 2, 1)
        course = self.curve or tuple(min(minute / growing, 1.0) for minute in range(self.minutes + 1))
        return tuple(top * each / max(course) for each in course)

    @property
    def workers(self) -> int:
        """How many functions send each minute's load."""
        return max(math.ceil(max(self.rates) / RATE_A_WORKER), 1)

    @property
    def most_at_once(self) -> int:
        """How many of them run at once: the next minute's are started before a minute ends."""
        return 2 * self.workers

    @property
    def alarms(self) -> list[str]:
        """The alarms that end the load, of every cell."""
        return [alarm_name(self.settings.name, cell, key) for cell in self.settings.cell_names for key in self.harm]

    @property
    def harm(self) -> tuple[str, ...]:
        """Their keys."""
        return HARM + (HARM_WITHIN_CAPACITY if self.share <= 1 else ())

    @property
    def timeout_seconds(self) -> int:
        """After which the state machine is ended, whatever it does."""
        return (self.minutes + 5) * MINUTE

    def bound(self, prices: Prices) -> Bound:
        """Return what the load costs at most: functions run for their whole limit, hosts for the whole time."""
        seconds = self.minutes * self.workers * function_seconds()
        functions = seconds * MEMORY_MIB / 1024 * prices.function_gib_second
        steps = self.minutes * (5 + 2 * self.workers)
        calls = steps * prices.state_transition + self.minutes * self.workers * prices.function_call
        peak = bill(self.settings, prices, "load", max(self.multiplier * self.share, 1.0)).hourly
        usual = bill(self.settings, prices, "ordinary", None).hourly
        hours = (self.minutes + SETTLING_MINUTES) / 60
        return Bound(functions + calls, max(peak - usual, 0.0) * hours)

    def input(self, now: datetime) -> dict[str, Any]:
        """Return the state machine's input for a load that begins a minute after `now`."""
        begin = math.ceil(now.timestamp()) + MINUTE
        minutes = []
        for number in range(self.minutes):
            starts = begin + number * MINUTE
            sent = datetime.fromtimestamp(starts - AHEAD_SECONDS, UTC)
            minutes.append(
                {
                    "sent_at": f"{sent:%Y-%m-%dT%H:%M:%SZ}",
                    "starts_at": starts,
                    "begins": round(self.rates[number] / self.workers, 3),
                    "ends": round(self.rates[number + 1] / self.workers, 3),
                }
            )
        return {"minutes": minutes, "workers": list(range(self.workers))}

    def refuse_near_an_event(self, now: datetime) -> None:
        """Raise EventLoadError where an event is on, or so near that nobody should load the fleet."""
        for event in self.settings.events:
            if event.start - timedelta(hours=QUIET_HOURS) <= now < event.end:
                raise EventLoadError(
                    f"{event.name} begins {event.start.isoformat()}: from {QUIET_HOURS} hours before an event until "
                    "its end nobody loads the fleet"
                )


def function_seconds() -> int:
    """Return the time limit of a worker."""
    return AHEAD_SECONDS + MINUTE + ENDING_SECONDS


def read_curve(path: Path, minutes: int) -> tuple[float, ...]:
    """Return a recorded course (CSV, columns second,requests) at the ends of so many minutes. Raises EventLoadError."""
    try:
        with path.open(encoding="utf-8", newline="") as file:
            reader = csv.DictReader(file)
            if reader.fieldnames != _CURVE:
                raise EventLoadError(f"{path}: the first line must be {','.join(_CURVE)}")
            rows = sorted((int(row["second"]), float(row["requests"])) for row in reader)
    except (OSError, ValueError, TypeError) as error:
        raise EventLoadError(f"{path}: {error}") from error
    if not rows or max(count for _, count in rows) <= 0 or min(count for _, count in rows) < 0:
        raise EventLoadError(f"{path}: holds no arrivals")
    return _means(rows, minutes)


def _means(rows: Sequence[tuple[int, float]], minutes: int) -> tuple[float, ...]:
    """Return the mean of the rows around each of the moments between equal parts of their time."""
    first, span = rows[0][0], rows[-1][0] - rows[0][0] + 1
    parts: list[list[float]] = [[] for _ in range(minutes + 1)]
    for second, count in rows:
        parts[round((second - first) / span * minutes)].append(count)
    found: list[float] = []
    for part in parts:
        found.append(sum(part) / len(part) if part else found[-1])
    return tuple(found)
