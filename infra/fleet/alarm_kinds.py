"""The data model of alarms: readings of metrics, an expression over them, a threshold, a severity and runbook."""

import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from enum import StrEnum
from pathlib import Path
from typing import Literal

from infra.fleet.metrics import metrics
from infra.fleet.parts import REPOSITORY_ROOT
from infra.fleet.settings import FleetSettings

Comparison = Literal["GreaterThanThreshold", "GreaterThanOrEqualToThreshold"]
Missing = Literal["breaching", "notBreaching"]
AT_LEAST: Comparison = "GreaterThanOrEqualToThreshold"
# A period of at least this length is never empty because its data is late: assumed, no document gives a bound.
LATEST_DATA_SECONDS = 300
SLO_WINDOW_HOURS = 28 * 24
# More than half of all answers bad is an outage under any goal, even one too lax for any burn rate to reach its line.
WORST_SHARE = 0.5
_SIGNS: dict[Comparison, str] = {"GreaterThanThreshold": ">", "GreaterThanOrEqualToThreshold": ">="}


class Severity(StrEnum):
    """The recipients of an alarm."""

    PAGE = "page"  # wakes a person, through the cell's page alarm
    TICKET = "ticket"  # tells the on-call target; can wait for the morning
    PART = "part"  # sends no notification; other alarms are composed of it


@dataclass(frozen=True)
class Reading:
    """One metric of one cell. Raise MetricNameError for a metric that metrics.json does not hold.

    `dimensions` are names; the construct knows the cell's values. Where a cell has several (target groups, Auto Scaling
    groups), the reading is their sum. `fixed` gives the values of dimensions that are the same in every cell.
    """

    metric: str
    dimensions: tuple[str, ...] = ("Fleet", "Cell")
    fixed: tuple[tuple[str, str], ...] = ()
    none_is_zero: bool = True  # a missing count is zero; a missing latency is unknown
    asked: str = ""  # a statistic that overrides the metric's own

    def __post_init__(self) -> None:
        found = metrics().metric(self.metric, self.dimensions)
        for name, value in self.fixed:
            if name not in self.dimensions or value not in found.values.get(name, (value,)):
                raise ValueError(
                    f"{self.metric}: {name}={value} is not among {found.values.get(name, self.dimensions)}"
                )

    @property
    def statistic(self) -> str:
        return self.asked or metrics().metric(self.metric).statistic

    @property
    def published_name(self) -> str:
        return metrics().published_name(self.metric)

    @property
    def source(self) -> str:
        """The metric's publisher, by its key in metrics.json."""
        return metrics().metric(self.metric).source

    @property
    def namespace(self) -> str:
        return metrics().namespace(self.metric)


@dataclass(frozen=True)
class MetricAlarm:
    """An alarm that fires when `expression` is over its line in M of the last N periods.

    It raises ValueError for an evaluation in which the alarm could stick.

    A reading that is filled with 0 reads calm in the newest minute, which may never have its data yet; an alarm that
    needs every period then never fires. Source: CloudWatch user guide, Use metric math, FILL ("stuck in either the OK
    state or the ALARM state ... by using an M out of N alarm").
    """

    key: str
    meaning: str  # a sentence for the reader of the notification
    readings: Mapping[str, Reading]
    expression: str  # CloudWatch metric math over the names of `readings`
    line: float
    unit: str  # the unit of the threshold in alarm texts
    evaluation: tuple[int, int, int]  # seconds of a period, M, N
    severity: Severity
    runbook: str = ""  # docs/runbooks/<runbook>.md; the key where left out
    comparison: Comparison = "GreaterThanThreshold"
    missing: Missing = "notBreaching"

    def __post_init__(self) -> None:
        object.__setattr__(self, "runbook", self.runbook or self.key)
        filled = any(reading.none_is_zero for reading in self.readings.values())
        if filled and self.period_seconds < LATEST_DATA_SECONDS and self.breaching == self.periods:
            raise ValueError(f"{self.key}: {self.breaching} of {self.periods} periods with FILL sticks: use M of N")

    @property
    def period_seconds(self) -> int:
        return self.evaluation[0]

    @property
    def breaching(self) -> int:
        """The number of periods that must breach (M)."""
        return self.evaluation[1]

    @property
    def periods(self) -> int:
        """The number of latest periods that are evaluated (N)."""
        return self.evaluation[2]

    @property
    def when(self) -> str:
        line = f"{_SIGNS[self.comparison]} {self.line:g} {self.unit}" if self.unit else "yes"
        whole = _duration(self.period_seconds * self.periods)
        if self.periods == 1:
            return f"{line} over {whole}"
        part = _duration(self.period_seconds * self.breaching)
        return f"{line} for {whole}" if part == whole else f"{line} in {part} of {whole}"


@dataclass(frozen=True)
class CompositeAlarm:
    """An alarm on the states of other alarms of the same cell: every `all_of`, one of `any_of`, and no `none_of`."""

    key: str
    meaning: str
    severity: Severity
    runbook: str
    all_of: tuple[str, ...] = ()
    any_of: tuple[str, ...] = ()
    none_of: tuple[str, ...] = ()
    suppressed_by: str = ""  # the key of the alarm that suppresses this one's actions
    words: str = ""  # the condition in words, where the keys of its parts say little

    @property
    def parts(self) -> tuple[str, ...]:
        return self.all_of + self.any_of + self.none_of

    @property
    def when(self) -> str:
        if self.words:
            return self.words
        words = [
            " and ".join(self.all_of),
            " or ".join(self.any_of),
            " and ".join(f"not {key}" for key in self.none_of),
        ]
        return ", ".join(word for word in words if word)

    def rule(self, name: Callable[[str], str]) -> str:
        """Return CloudWatch's alarm rule; `name` returns an alarm's name from its key."""
        terms = [f'ALARM("{name(key)}")' for key in self.all_of]
        if self.any_of:
            terms.append("(" + " OR ".join(f'ALARM("{name(key)}")' for key in self.any_of) + ")")
        terms += [f'NOT ALARM("{name(key)}")' for key in self.none_of]
        return " AND ".join(terms)


Alarm = MetricAlarm | CompositeAlarm


@dataclass(frozen=True)
class Slo:
    """One service level objective: which answers break it, and the setting that says how many may."""

    prefix: str  # of its alarms' keys
    goal: str  # a field of settings.slo
    bad: str  # metric math
    what: str  # the name of the bad answers in alarm texts
    readings: Mapping[str, Reading]

    def budget(self, settings: FleetSettings) -> float:
        """Return the share of answers that may be bad, from 0 to 1."""
        return 1 - float(getattr(settings.slo, self.goal))


@dataclass(frozen=True)
class Burn:
    """A burn rate of an error budget over a long window. A short window confirms it, so that the alarm ends in time."""

    key: str
    budget_share: float  # of the 28 days' budget, gone within the long window
    long_seconds: int
    short_seconds: int
    severity: Severity

    @property
    def rate(self) -> float:
        """The factor by which the budget burns faster than the goal allows."""
        return self.budget_share * SLO_WINDOW_HOURS / (self.long_seconds / 3600)

    def bad_percent(self, budget: float) -> float:
        """Return the percentage of bad answers (0 to 100) from which the budget burns at this rate.

        `budget` is a share of all answers, from 0 to 1.
        """
        return round(100 * min(WORST_SHARE, self.rate * budget), 3)


def _duration(seconds: int) -> str:
    for unit, size in (("h", 3600), ("min", 60)):
        if seconds % size == 0:
            return f"{seconds // size} {unit}"
    return f"{seconds} s"


RUNBOOKS = REPOSITORY_ROOT / "docs" / "runbooks"
_LINK = re.compile(r"\]\(([a-z0-9-]+)\.md\)")


def page_name(settings: FleetSettings, runbook: str) -> str:
    return f"peakplan-{settings.name}-runbook-{runbook}"


def runbook_url(settings: FleetSettings, runbook: str) -> str:
    """Return the runbook's URL for notifications, which opens the page itself."""
    if settings.runbooks:
        return f"{settings.runbooks.rstrip('/')}/{runbook}.md"
    console = f"https://{settings.region}.console.aws.amazon.com/cloudwatch/home?region={settings.region}"
    return f"{console}#dashboards/dashboard/{page_name(settings, runbook)}"


def pages(settings: FleetSettings, folder: Path = RUNBOOKS) -> dict[str, str]:
    """Return every runbook's Markdown by its name, with links that lead to the other pages."""
    return {
        path.stem: _LINK.sub(
            lambda link: f"]({runbook_url(settings, link.group(1))})", path.read_text(encoding="utf-8")
        )
        for path in sorted(folder.glob("*.md"))
    }
