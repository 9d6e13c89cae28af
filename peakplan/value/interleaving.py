"""Which of two searches shoppers prefer, from lists that mix both by team draft.

A plan's list goes to the team whose products were chosen more (Radlinski, Kurup and Joachims, CIKM 2008); a shopper's
credit is the mean over their lists, from -1 to 1, and the preference is the mean over shoppers, so that one who asks
often does not count as many. Its interval holds at every look, as those of `value.intervals`.
"""

import math
from collections.abc import Sequence
from typing import Any

import numpy as np

from peakplan.value.intervals import ALPHA, FEWEST_CHOSEN, POWER_Z, boundary

PLANNED_SHARE = 0.02  # of the shoppers that a test of arms is planned for: an interleaving needs a small part of them
WORTH_KNOWING = 0.05  # a preference: of 100 shoppers with one, 5 more prefer this search than prefer the other
_MOST_SHOPPERS = 1e12

# One row a clicked product of a team, once however often it was clicked.
CHOSEN = """
CREATE TABLE chosen AS
SELECT DISTINCT plan, unit, one.experiment AS experiment, one.team AS team, one.place AS place
FROM (SELECT plan, coalesce(shopper, plan) AS unit, unnest(drafted) AS one FROM judged WHERE drafted IS NOT NULL)
"""
TEAMS = "SELECT experiment, list(DISTINCT team ORDER BY team) AS teams FROM chosen GROUP BY ALL ORDER BY experiment"
CREDITS = """
SELECT count(*) AS shoppers, sum(wins)::BIGINT AS wins, sum(losses)::BIGINT AS losses, sum(ties)::BIGINT AS ties,
  sum(credit) AS total, sum(credit * credit) AS squares, count(*) FILTER (credit <> 0) AS deciding
FROM (SELECT unit, avg(sign) AS credit, count(*) FILTER (sign > 0) AS wins, count(*) FILTER (sign < 0) AS losses,
        count(*) FILTER (sign = 0) AS ties
      FROM (SELECT unit, plan, sign(count(*) FILTER (team = $team) - count(*) FILTER (team <> $team))::INT AS sign
            FROM chosen WHERE experiment = $experiment GROUP BY unit, plan)
      GROUP BY unit)
"""


def preferred(
    shoppers: Any, total: Any, squares: Any, deciding: Any, *, planned: float, alpha: float = ALPHA
) -> tuple[Any, Any, Any, Any]:
    """Return the preference, the ends of its interval, and the verdict: 1, -1, or 0 for not known yet.

    Takes sums of credits over shoppers, and how many shoppers preferred either; numbers, or arrays of equal shapes.
    """
    count = np.maximum(shoppers, 1)
    mean = total / count
    reach = boundary(count, planned, alpha) * np.sqrt(np.maximum(squares / count - mean**2, 0) / count)
    low, high = np.maximum(mean - reach, -1), np.minimum(mean + reach, 1)
    verdict = np.where(deciding >= FEWEST_CHOSEN, np.where(low > 0, 1, np.where(high < 0, -1, 0)), 0)
    return mean, low, high, verdict


def needed(deviation: float, effect: float, *, planned: float, alpha: float = ALPHA) -> float:
    """Return the shoppers with whom a preference of `effect` is found in 80% of tests."""
    low, high = 1.0, _MOST_SHOPPERS
    while high / low > 1.001:
        middle = math.sqrt(low * high)
        found = (boundary(middle, planned, alpha) + POWER_Z) * deviation / math.sqrt(middle) <= effect
        low, high = (low, middle) if found else (middle, high)
    return high


def told(rows: Sequence[dict[str, Any]], *, planned: float) -> list[dict[str, Any]]:
    """Return what the report says of every interleaving; rows as `value.reading` sums them."""
    return [_told(row, planned * PLANNED_SHARE) for row in rows]


def _told(row: dict[str, Any], planned: float) -> dict[str, Any]:
    said: dict[str, Any] = {"name": row["experiment"], "teams": row["teams"]}
    if len(row["teams"]) != 2:
        return said | {"note": "clicks name not two teams but another number: an interleaving has two"}
    other, ours = row["teams"]
    mean, low, high, verdict = preferred(
        row["shoppers"], row["total"], row["squares"], row["deciding"], planned=planned
    )
    said |= {
        "shoppers": row["shoppers"], "lists": {ours: row["wins"], other: row["losses"], "neither": row["ties"]},
        "preference": {"for": ours, "over": other, "mean": round(float(mean), 6)},
        "interval": [round(float(low), 6), round(float(high), 6)], "confidence": 1 - ALPHA,
        "verdict": {1: f"{ours} is preferred", -1: f"{other} is preferred", 0: "not known yet"}[int(verdict)],
    }  # fmt: skip
    if not verdict:
        deviation = math.sqrt(max(row["squares"] / row["shoppers"] - float(mean) ** 2, 0.0)) or 1.0
        more = needed(deviation, WORTH_KNOWING, planned=planned) - row["shoppers"]
        said |= {"more_shoppers_needed": max(0, round(more)), "for_a_preference_of": WORTH_KNOWING}
    return said
