"""The alarms on what shoppers do with a cell's plans, beside what they do with the other cells' in the same hour.

A release goes to one cell first, and callers are spread over cells by chance, so that the other cells are its control.
Both alarms are read every minute for as long as the fleet stands. So the line is not one for a single look: at LINE, z
of 5, chance alone crosses it with 3 in ten million looks, and by the union bound over a year of minutes a cell has 0.15
false alarms. A cell without others, or with too few shoppers, has none of either kind.
"""

from __future__ import annotations

from collections.abc import Iterator

from infra.fleet.alarm_kinds import MetricAlarm, Reading, Severity

HOUR_SECONDS = 3600
LINE = 25.0  # z squared, because metric math and Prometheus then need no roots
FEWEST_SHOWN, FEWEST_CHOSEN = 1000, 100  # below these a share is not near enough to normal
HERE, EVERYWHERE = ("Fleet", "PlannedIn"), ("Fleet",)
# Those that a deploy's bake looks at; the keys of their alarms.
CLICKS, PURCHASES = "shoppers-click-less", "shoppers-buy-less"


def readings(metric: str) -> dict[str, Reading]:
    """Return plans shown (n) and those of them with this outcome (k), of a cell and of the fleet."""
    return {
        "n": Reading("AnswersShown", HERE),
        "k": Reading(metric, HERE),
        "n_all": Reading("AnswersShown", EVERYWHERE),
        "k_all": Reading(metric, EVERYWHERE),
    }


def loss_squared() -> str:
    """Return metric math for the z score, squared, of two shares: 0 where the cell's is not the smaller one.

    z = (k'/n' - k/n) / sqrt(p (1 - p) (1/n + 1/n')), with n' and k' of the other cells and p = k_all / n_all.
    """
    loss = "(k_all * n - k * n_all)"  # k' n - k n'
    spread = "(k_all * (n_all - k_all) * n * (n_all - n))"
    safe = f"IF({spread} == 0, 1, {spread})"
    enough = f"n >= {FEWEST_SHOWN} AND n_all - n >= {FEWEST_SHOWN} AND k_all >= {FEWEST_CHOSEN} AND n_all > k_all"
    return f"IF({enough} AND {loss} > 0, {loss} * {loss} * n_all / {safe}, 0)"


def shoppers() -> Iterator[MetricAlarm]:
    """Yield the alarms that tell harm to shoppers which neither latency nor errors show."""
    for key, metric, verb in ((CLICKS, "AnswersClicked", "click"), (PURCHASES, "AnswersBought", "buy")):
        yield MetricAlarm(
            key=key,
            meaning=f"Shoppers {verb} less after this cell's plans than after the other cells', beyond chance.",
            readings=readings(metric),
            expression=loss_squared(),
            line=LINE,
            unit="(the difference's z score, squared)",
            evaluation=(HOUR_SECONDS, 1, 1),
            severity=Severity.TICKET,
            runbook="shoppers-harmed",
        )
