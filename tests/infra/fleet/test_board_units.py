"""The unit of each Grafana panel is that of its query, as the metrics' own units make it."""

import ast
import json
from dataclasses import dataclass
from typing import Any

import pytest

from infra.fleet.alarm_kinds import MetricAlarm, Reading
from infra.fleet.alarms import cell_alarms
from infra.fleet.metrics import metrics
from infra.fleet.monitoring import grafana_dashboard
from infra.fleet.settings import FLEETS, FleetSettings

SETTINGS = FleetSettings.from_yaml(FLEETS / "prime-day.yaml")
SHOWN = {
    alarm.key: alarm for alarm in cell_alarms(SETTINGS) if isinstance(alarm, MetricAlarm) and alarm.key != "deploying"
}
COUNT, SECONDS, SHARE = "Count", "Seconds", "share"


@dataclass(frozen=True)
class Quantity:
    """What an expression is: a unit's power, times `scale`. `number` is a constant's value, `flags` how many conditions
    are added up."""

    powers: tuple[tuple[str, int], ...] = ()
    scale: float = 1.0
    number: float | None = None
    flags: int = 0

    def times(self, other: "Quantity", sign: int = 1) -> "Quantity":
        """Return the product; the quotient where `sign` is -1."""
        powers = dict(self.powers)
        for unit, power in other.powers:
            powers[unit] = powers.get(unit, 0) + sign * power
        left = tuple(sorted((unit, power) for unit, power in powers.items() if power))
        scales = [each.scale if each.number is None else each.number for each in (self, other)]
        return Quantity(left, scales[0] * scales[1] ** sign)


def _of(reading: Reading) -> Quantity:
    unit = metrics().metric(reading.metric).unit
    if unit == "Percent":
        return Quantity(scale=100)
    if unit == "None" and metrics().metric(reading.metric).statistic == "Average":
        return Quantity()  # the share of hosts that say 1
    return Quantity(((unit, 1),))


def _quantity(node: ast.expr, alarm: MetricAlarm) -> Quantity:
    if isinstance(node, ast.Constant):
        assert isinstance(node.value, int | float)
        return Quantity(number=node.value)
    if isinstance(node, ast.Name):
        return _of(alarm.readings[node.id])
    if isinstance(node, ast.Compare | ast.BoolOp):
        return Quantity(flags=1)
    if isinstance(node, ast.Call):
        _, *both = (_quantity(each, alarm) for each in node.args)
        return _either(*both)
    assert isinstance(node, ast.BinOp), ast.unparse(node)
    left, right = _quantity(node.left, alarm), _quantity(node.right, alarm)
    if isinstance(node.op, ast.Mult | ast.Div):
        return left.times(right, 1 if isinstance(node.op, ast.Mult) else -1)
    if left.flags and right.flags:
        return Quantity(flags=left.flags + right.flags)
    assert (left.powers, left.scale) == (right.powers, right.scale), f"{ast.unparse(node)} adds what is not alike"
    return left


def _either(then: Quantity, otherwise: Quantity) -> Quantity:
    """Return what IF gives; of 1 and 0 it makes a condition."""
    if then.number is not None and otherwise.number is not None:
        assert {then.number, otherwise.number} == {0, 1}
        return Quantity(flags=1)
    return otherwise if then.number is not None else then


def _fitting(quantity: Quantity) -> set[str]:
    """Return Grafana's ids of the units that fit."""
    if quantity.flags:
        return {"bool_yes_no"} if quantity.flags == 1 else {"bool_yes_no", "short"}
    powers = dict(quantity.powers)
    if powers == {SECONDS: 1}:  # over the seconds that a host's replicas have, which an alarm says as a number: hosts
        return {"s"} if quantity.scale == 1 else {"short"}
    if not powers:
        return {"percent" if quantity.scale == 100 else "percentunit"}
    assert set(powers) == {COUNT}, powers
    return {"short"}


def _panels(settings: FleetSettings = SETTINGS) -> dict[str, dict[str, Any]]:
    board = json.loads(grafana_dashboard(cell_alarms(settings), "https://runbooks"))
    return {panel["title"]: panel["fieldConfig"]["defaults"] for panel in board["panels"]}


@pytest.mark.parametrize("key", SHOWN)
def test_a_panels_unit_is_its_querys(key: str) -> None:
    alarm = SHOWN[key]
    tree = ast.parse(alarm.expression.replace(" AND ", " and ").replace(" OR ", " or "), mode="eval").body

    assert _panels()[key]["unit"] in _fitting(_quantity(tree, alarm))


def test_lines_follow_the_settings() -> None:
    slo = SETTINGS.slo
    stricter = SETTINGS.model_copy(update={"slo": slo.model_copy(update={"p99_ms": 150})})

    def line(settings: FleetSettings) -> float:
        steps = _panels(settings)["p99"]["thresholds"]["steps"]
        assert [step["value"] for step in steps[:1]] == [None]
        found: float = steps[1]["value"]
        return found

    assert (line(SETTINGS), line(stricter)) == (slo.p99_ms / 1000, 0.15)
