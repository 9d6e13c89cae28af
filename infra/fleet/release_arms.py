"""The two releases of a deploy beside each other, as arms: do shoppers click or buy less with the new one?

The alarms on shoppers compare one cell with all others, of which ever more have the new release themselves. While a
cell bakes, this compares all cells that have it with those that still have the one before. The queries below are metric
math from the moment on that the cell began to bake; a deploy reads them at every look at the cell. What
they compare with is a confidence sequence, so that looking often costs nothing: the bound is that of `value.intervals`,
of which a test says that both agree. Not run in AWS: moto computes no metric math, and tests have a computation of
their own.
"""

from collections.abc import Iterator, Sequence
from math import log
from typing import Any

from infra.fleet.alarms import FEWEST_CHOSEN, HERE
from infra.fleet.metrics import metrics

ALPHA = 0.01  # of the comparisons of a whole deploy, the share in which chance alone stops one that does no harm
PLANNED = 100_000  # plans shown in both arms at which the bound is narrowest
MEASURES = {"clicks": "AnswersClicked", "purchases": "AnswersBought"}
SHOWN = "AnswersShown"
PERIOD_SECONDS = 60
Query = dict[str, Any]


def arms_of(cell: str, waves: Sequence[Sequence[str]]) -> tuple[list[str], list[str]]:
    """Return the cells that have the new release while this one bakes, and those that still have the one before.

    The others of its wave are changing, and are in neither.
    """
    own = next(number for number, wave in enumerate(waves) if cell in wave)
    return [one for wave in waves[:own] for one in wave] + [cell], [one for wave in waves[own + 1 :] for one in wave]


def queries(fleet: str, new: Sequence[str], before: Sequence[str], cells: int) -> list[Query]:
    """Return the queries for GetMetricData: `clicks` and `purchases`, each 1 where shoppers lose beyond chance, else 0.

    Nothing where there is no cell to compare with. Each of the fleet's cells makes as many comparisons at most, the
    last one none.
    """
    if not new or not before:
        return []
    alpha = ALPHA / len(MEASURES) / (cells - 1)
    found = [query for arm, of in (("1", new), ("0", before)) for query in _arm(fleet, arm, of)]
    return found + [{"Id": name, "Expression": harm(name[0], alpha), "ReturnData": True} for name in MEASURES]


def harm(measure: str, alpha: float) -> str:
    """Return metric math that is 1 where the new release's share lies below the other's beyond a bound, else 0.

    n1 and n0 are plans shown with the new release and the one before, k1 and k0 those of them with what is measured.
    The logarithm of the shares' ratio has the standard error sqrt(1/k1 - 1/n1 + 1/k0 - 1/n0); the bound is of Waudby-
    Smith et al. (arXiv 2103.06476), squared. Enough is known once the share before would lead to FEWEST_CHOSEN here.
    """
    n1, n0, k1, k0 = "s1", "s0", f"IF({measure}1 < 1, 1, {measure}1)", f"{measure}0"
    widening = (-2 * log(alpha) + log(-2 * log(alpha)) + 1) / PLANNED
    grown = f"(({n1} + {n0}) * {widening:.6g})"
    bound = f"2 * ({grown} + 1) / {grown} * (LOG({grown} + 1) / 2 + {-log(alpha):.6g})"
    error = f"(1 / {k1} - 1 / {n1} + 1 / {k0} - 1 / {n0})"
    loss = f"LOG({k0} * {n1} / ({k1} * {n0}))"
    enough = f"{k0} >= {FEWEST_CHOSEN} AND {k0} * {n1} >= {FEWEST_CHOSEN} * {n0}"
    return f"IF({enough} AND {loss} > 0 AND {loss} * {loss} > {bound} * {error}, 1, 0)"


def _arm(fleet: str, arm: str, cells: Sequence[str]) -> Iterator[Query]:
    """Yield the queries that sum what the cells of an arm had since the beginning: s1, c1 and p1, or s0, c0 and p0."""
    for name, metric in (("s", SHOWN), *((name[0], metric) for name, metric in MEASURES.items())):
        ids = []
        for number, cell in enumerate(cells):
            yield _of_cell(f"{name}{arm}r{number}", metric, fleet, cell)
            ids.append(f"{name}{arm}f{number}")
            yield {"Id": ids[-1], "Expression": f"FILL({name}{arm}r{number}, 0)", "ReturnData": False}
        # Cells without clicks publish none. They count as 0 wherever plans were shown.
        if name != "s":
            ids.append(f"s{arm}z")
        yield {"Id": f"{name}{arm}", "Expression": f"RUNNING_SUM(SUM([{', '.join(ids)}]))", "ReturnData": False}
        if name == "s":
            yield {"Id": f"s{arm}z", "Expression": f"SUM([{', '.join(ids)}]) * 0", "ReturnData": False}


def _of_cell(name: str, metric: str, fleet: str, cell: str) -> Query:
    values = {"Fleet": fleet, "PlannedIn": cell}
    published = metrics().metric(metric)
    return {
        "Id": name,
        "MetricStat": {
            "Metric": {
                "Namespace": metrics().namespace(metric),
                "MetricName": metric,
                "Dimensions": [{"Name": each, "Value": values[each]} for each in HERE],
            },
            "Period": PERIOD_SECONDS,
            "Stat": published.statistic,
        },
        "ReturnData": False,
    }
