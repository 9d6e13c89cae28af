"""How fast an error budget goes, and the alarms that say so.

The error budget is what the SLO's goal leaves over 28 days. A burn rate says how many times too fast it is being spent.
Source: Google, The Site Reliability Workbook, Alerting on SLOs, "Multiwindow, Multi-Burn-Rate Alerts".
"""

from __future__ import annotations

from dataclasses import dataclass

from infra.fleet.alarm_kinds import CompositeAlarm, MetricAlarm, Reading, Severity
from infra.fleet.settings import FleetSettings

SLO_WINDOW_HOURS = 28 * 24
# Fewer requests than this in a window say nothing about a share of them.
FEWEST_REQUESTS = 20
# More than half of all answers late is an outage under any goal, also one so lax that no burn rate reaches its line.
WORST_SHARE = 0.5


@dataclass(frozen=True)
class Burn:
    """A rate of spending the budget, seen over a long window and confirmed by a short one, so that it ends in time."""

    key: str
    budget_share: float  # of the 28 days' budget, gone within the long window
    long_seconds: int
    short_seconds: int
    severity: Severity

    @property
    def rate(self) -> float:
        """How many times faster than the goal allows."""
        return self.budget_share * SLO_WINDOW_HOURS / (self.long_seconds / 3600)

    def bad_percent(self, settings: FleetSettings) -> float:
        """The share of bad answers, 0 to 100, from which the budget burns at this rate."""
        return round(100 * min(WORST_SHARE, self.rate * (1 - settings.slo.goal)), 3)


FAST = Burn("fast-burn", 0.02, 3600, 300, Severity.PAGE)
SLOW = Burn("slow-burn", 0.05, 6 * 3600, 1800, Severity.TICKET)

# The balancer's own 5xx are bad answers that no replica lived to count.
GOOD = Reading("SloGood")
BAD = {"late": Reading("SloBad"), "refused": Reading("HTTPCode_ELB_5XX_Count", ("LoadBalancer",))}
ALL, BAD_ONES = "(good + late + refused)", "(late + refused)"


def percent(part: str, whole: str, fewest: int) -> str:
    """Metric math for a share in percent, 0 where the whole is too small to have one; never divides by zero."""
    return f"IF({whole} >= {fewest}, 100 * {part} / IF({whole} == 0, 1, {whole}), 0)"


def burn_alarms(settings: FleetSettings, burn: Burn) -> tuple[MetricAlarm | CompositeAlarm, ...]:
    """The alarms of the two windows, and the one that needs both."""

    def window(seconds: int, suffix: str) -> MetricAlarm:
        return MetricAlarm(
            key=f"{burn.key}-{suffix}",
            meaning=f"The error budget burned {burn.rate:.3g} times too fast over {suffix}.",
            readings={"good": GOOD, **BAD},
            expression=percent(BAD_ONES, ALL, FEWEST_REQUESTS),
            line=burn.bad_percent(settings),
            unit="% bad answers",
            period_seconds=seconds,
            periods=1,
            breaching=1,
            severity=Severity.PART,
            runbook=burn.key,
        )

    long, short = window(burn.long_seconds, "long"), window(burn.short_seconds, "short")
    hours, minutes = f"{burn.long_seconds // 3600} h", f"{burn.short_seconds // 60} min"
    both = CompositeAlarm(
        key=burn.key,
        meaning=f"At this rate {burn.budget_share:.0%} of 28 days' error budget goes in {hours}, and it still burns.",
        severity=burn.severity,
        runbook=burn.key,
        all_of=(long.key, short.key),
        words=f"> {burn.bad_percent(settings):g} % bad answers over {hours} and over {minutes}",
    )
    return long, short, both
