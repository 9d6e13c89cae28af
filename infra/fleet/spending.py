"""What a fleet may cost before somebody is told: a month's budget, and a day's surprise."""

from __future__ import annotations

from dataclasses import dataclass

from infra.fleet.cost import HOURS_A_MONTH, Prices, bills
from infra.fleet.settings import FleetSettings

ROOM = 1.2  # prices are list prices, and traffic is a forecast
DAYS_A_MONTH = 30


@dataclass(frozen=True)
class Spending:
    """The limits of a fleet's bill, in the currency of its prices."""

    month: int  # told when it is spent, and as soon as it is forecast
    surprise: int  # told when so much more than is usual was spent


def spending(settings: FleetSettings, prices: Prices | None = None) -> Spending:
    """Return the fleet file's budget, or that of an ordinary month with its dearest event and a fifth above.

    A surprise is half an ordinary day: an event is none, because anomalies are judged over days.
    """
    ordinary, *events = bills(settings, prices or Prices.from_json())
    hours = [(event.end - event.start).total_seconds() / 3600 for event in settings.events]
    more = (max(0.0, bill.hourly - ordinary.hourly) * length for bill, length in zip(events, hours, strict=True))
    expected = ordinary.hourly * HOURS_A_MONTH + max(more, default=0.0)
    month = settings.monthly_budget or ROOM * expected
    return Spending(round(month), max(1, round(ordinary.hourly * HOURS_A_MONTH / DAYS_A_MONTH / 2)))
