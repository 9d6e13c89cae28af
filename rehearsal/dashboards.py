"""`python -m rehearsal.dashboards FLEET cdk.out` draws the fleet's dashboards with a rehearsal's data.

The boards are those that `make synth FLEET=...` wrote, every graph with its own metric math; the data are a simulation
of the busiest hour in which a zone of the first cell is lost. What the simulation does not know is left empty.
"""

from __future__ import annotations

import argparse
import json
import re
import sys
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from infra.fleet.__main__ import fleet_file
from infra.fleet.dashboard_lines import whole
from infra.fleet.settings import FleetSettings
from rehearsal.cloudwatch import Value, compute
from rehearsal.twin.__main__ import TRAFFIC
from rehearsal.twin.alarms import OF_STAND_INS, minutes_of
from rehearsal.twin.board import draw
from rehearsal.twin.curves import at_hand, read_curve
from rehearsal.twin.rehearsal import Plan
from rehearsal.twin.scenarios import SCENARIOS, Scenario
from rehearsal.twin.simulation import simulate
from rehearsal.twin.situation import Course
from rehearsal.twin.work import stated

FAULT, CALM, NODES = "zone-lost", "nominal", 24
FIGURES = Path("docs/figures")
_KNOWN_BY = {"Fleet", "Cell", "Group", "LoadBalancer", "TargetGroup", "AutoScalingGroupName"}
Series = dict[str, list[Value]]  # a metric's values by minute
Widget = dict[str, Any]


def boards(template: Path) -> dict[str, list[Widget]]:
    """Return the widgets of each dashboard of a synthesised stack; what only a deploy knows stays as it is."""
    resources = json.loads(template.read_text(encoding="utf-8"))["Resources"].values()
    found = {}
    for each in resources:
        if each["Type"] == "AWS::CloudWatch::Dashboard" and "-runbook-" not in each["Properties"]["DashboardName"]:
            body = each["Properties"]["DashboardBody"]
            parts = body["Fn::Join"][1] if isinstance(body, dict) else [body]
            text = "".join(part if isinstance(part, str) else re.sub(r'["\\]', "", json.dumps(part)) for part in parts)
            found[each["Properties"]["DashboardName"]] = whole(json.loads(text))["widgets"]
    return found


def rehearsed(settings: FleetSettings, traffic: str) -> dict[str, Series]:
    """Return each cell's metrics by minute: the first loses a zone, and the others have a seed of their own."""
    plan = Plan(settings, read_curve(traffic), stated(settings))
    found = {}
    for seed, cell in enumerate(settings.cell_names, start=1):
        scenario = SCENARIOS[FAULT if seed == 1 else CALM]
        course = simulate(plan.situation(scenario, NODES, seed))
        found[cell] = minutes_of(course, scenario) | _by_group(course, scenario, settings)
    length = min(len(next(iter(series.values()))) for series in found.values())
    return {cell: {name: values[:length] for name, values in series.items()} for cell, series in found.items()}


def _by_group(course: Course, scenario: Scenario, settings: FleetSettings) -> Series:
    """Return the hosts of each Auto Scaling group: the simulation counts a cell's together, so they are shared out."""
    paid, minutes = sum(course.mean_hosts), minutes_of(course, scenario)
    return {
        f"{name} {group.chip}": [None if value is None else value * hosts / paid for value in minutes[name]]
        for name in ("GroupInServiceInstances", "GroupDesiredCapacity")
        for group, hosts in zip(settings.groups, course.mean_hosts, strict=True)
    }


def curves(widget: Widget, data: Mapping[str, Series]) -> dict[str, tuple[list[Value], bool]]:
    """Return the curves of a widget by label, each with its values by minute and whether its axis is the right one."""
    length = len(next(iter(next(iter(data.values())).values())))
    known: dict[str, list[Value]] = {}
    shown: dict[str, tuple[list[Value], bool]] = {}
    for entry in widget["properties"].get("metrics", []):
        if isinstance(entry[0], str):
            known[entry[-1]["id"]] = _published(entry, data, length)
            continue
        values = _computed(entry[0]["expression"], known, length)
        known[entry[0]["id"]] = values
        if entry[0].get("visible", True) and any(value is not None for value in values):
            shown[entry[0]["label"]] = (values, entry[0].get("yAxis") == "right")
    return shown


def _published(entry: list[Any], data: Mapping[str, Series], length: int) -> list[Value]:
    """Return a metric's values, or nothing where the simulation knows none: it has no zones, and of latency the p99."""
    namespace, name, *dimensions, options = entry
    cell = re.search(r"cell-?(\d+)", " ".join(dimensions), re.IGNORECASE)
    is_known = set(dimensions[::2]) <= _KNOWN_BY and (name != "TargetResponseTime" or options["stat"] == "p99")
    if cell is None or not is_known:
        return [None] * length
    if namespace == "AWS/AutoScaling":
        name = f"{name} {dimensions[1].rpartition('-')[2]}"
    if "Group" in dimensions:  # the simulation tells what stands in from the rest, and no more
        name = OF_STAND_INS if name == "ReplicaSeconds" else f"{name} of a group"
    return data[f"cell-{cell[1]}"].get(name, [None] * length)


def _computed(expression: str, known: Mapping[str, list[Value]], length: int) -> list[Value]:
    """Return an expression's value in each minute; nothing for what only CloudWatch can search or look up."""
    names = set(re.findall(r"[a-z]\w*", expression))
    if "SEARCH" in expression or "SERVICE_QUOTA" in expression:
        return [None] * length
    used = {name: known[name] for name in names if name in known}
    if all(value is None for values in used.values() for value in values):
        return [None] * length
    return [compute(expression, {name: values[minute] for name, values in used.items()}) for minute in range(length)]


def main(words: Sequence[str] | None = None) -> int:
    """Draw the fleet's board and the first cell's. Return 2 where there is no synthesised fleet."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("fleet", help="the fleet that was synthesised")
    parser.add_argument("assembly", type=Path, help="where: cdk.out")
    parser.add_argument("--traffic", default=at_hand(TRAFFIC), help="a trace by name, or a CSV file of second,requests")
    parser.add_argument("--output", type=Path, default=FIGURES, help="folder of the pictures")
    given = parser.parse_args(words)
    settings = FleetSettings.from_yaml(fleet_file(given.fleet))
    template = given.assembly / "Observability.template.json"
    if not template.exists():
        print(f"{template}: no such file; make synth FLEET={given.fleet} writes it", file=sys.stderr)
        return 2
    found, data = boards(template), rehearsed(settings, given.traffic)
    name = f"peakplan-{settings.name}"
    for board, file in ((name, "dashboard-fleet.png"), (f"{name}-{settings.cell_names[0]}", "dashboard-cell.png")):
        draw(found[board], [curves(widget, data) for widget in found[board]], given.output / file)
        print(given.output / file)
    return 0


if __name__ == "__main__":
    sys.exit(main())
