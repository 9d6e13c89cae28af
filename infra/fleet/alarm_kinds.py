"""What an alarm is, as data: readings of metrics, an expression over them, a threshold, periods, and whom it tells."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from enum import StrEnum
from typing import Literal

from infra.fleet.metrics import metrics

Comparison = Literal["GreaterThanThreshold", "GreaterThanOrEqualToThreshold"]
Missing = Literal["breaching", "notBreaching"]
_SIGNS: dict[Comparison, str] = {"GreaterThanThreshold": ">", "GreaterThanOrEqualToThreshold": ">="}


class Severity(StrEnum):
    """Whom an alarm tells."""

    PAGE = "page"  # wakes a person, through the cell's page alarm
    TICKET = "ticket"  # tells the on-call target; can wait for the morning
    PART = "part"  # tells nobody: other alarms are made of it


@dataclass(frozen=True)
class Reading:
    """One metric of one cell. Raises MetricNameError for what metrics.json does not hold.

    `dimensions` are names; the construct knows the cell's values. Where a cell has several (target groups, Auto Scaling
    groups), the reading is their sum. `fixed` gives the values of dimensions that are the same in every cell.
    """

    metric: str
    dimensions: tuple[str, ...] = ("Fleet", "Cell")
    fixed: tuple[tuple[str, str], ...] = ()
    none_is_zero: bool = True  # a count that nobody sent is a count of zero; a latency that nobody sent is unknown
    asked: str = ""  # a statistic other than the metric's own

    def __post_init__(self) -> None:
        found = metrics().metric(self.metric, self.dimensions)
        for name, value in self.fixed:
            if name not in self.dimensions or value not in found.values.get(name, (value,)):
                raise ValueError(
                    f"{self.metric}: {name}={value} is not among {found.values.get(name, self.dimensions)}"
                )

    @property
    def statistic(self) -> str:
        """CloudWatch's name of the statistic."""
        return self.asked or metrics().metric(self.metric).statistic

    @property
    def namespace(self) -> str:
        """The metric's CloudWatch namespace."""
        return metrics().namespace(self.metric)


@dataclass(frozen=True)
class MetricAlarm:
    """Fires when `expression` is over its line in `breaching` of the last `periods` periods."""

    key: str
    meaning: str  # a sentence for whoever reads the notification
    readings: Mapping[str, Reading]
    expression: str  # CloudWatch metric math over the names of `readings`
    line: float
    unit: str  # of the line, for people
    period_seconds: int
    periods: int
    breaching: int
    severity: Severity
    runbook: str  # docs/runbooks/<runbook>.md
    comparison: Comparison = "GreaterThanThreshold"
    missing: Missing = "notBreaching"

    @property
    def when(self) -> str:
        """The condition in words."""
        line = f"{_SIGNS[self.comparison]} {self.line:g} {self.unit}" if self.unit else "yes"
        whole = _duration(self.period_seconds * self.periods)
        if self.periods == 1:
            return f"{line} over {whole}"
        part = _duration(self.period_seconds * self.breaching)
        return f"{line} for {whole}" if part == whole else f"{line} in {part} of {whole}"


@dataclass(frozen=True)
class CompositeAlarm:
    """Fires by the states of other alarms of the same cell: every `all_of`, one of `any_of`, and no `none_of`."""

    key: str
    meaning: str
    severity: Severity
    runbook: str
    all_of: tuple[str, ...] = ()
    any_of: tuple[str, ...] = ()
    none_of: tuple[str, ...] = ()
    suppressed_by: str = ""  # the key of the alarm that holds this one's actions back
    words: str = ""  # the condition in words, where the keys of its parts say little

    @property
    def parts(self) -> tuple[str, ...]:
        """Keys of the alarms that it looks at."""
        return self.all_of + self.any_of + self.none_of

    @property
    def when(self) -> str:
        """The condition in words."""
        if self.words:
            return self.words
        words = [
            " and ".join(self.all_of),
            " or ".join(self.any_of),
            " and ".join(f"not {key}" for key in self.none_of),
        ]
        return ", ".join(word for word in words if word)

    def rule(self, name: Callable[[str], str]) -> str:
        """CloudWatch's alarm rule, with `name` giving an alarm's name from its key."""
        terms = [f'ALARM("{name(key)}")' for key in self.all_of]
        if self.any_of:
            terms.append("(" + " OR ".join(f'ALARM("{name(key)}")' for key in self.any_of) + ")")
        terms += [f'NOT ALARM("{name(key)}")' for key in self.none_of]
        return " AND ".join(terms)


Alarm = MetricAlarm | CompositeAlarm


def _duration(seconds: int) -> str:
    """The largest unit that comes out even."""
    for unit, size in (("h", 3600), ("min", 60)):
        if seconds % size == 0:
            return f"{seconds // size} {unit}"
    return f"{seconds} s"
