"""Write figures, costs and settings into the documents that show them.

`--check` fails where one is stale.

A block starts with a line `<!-- figure: NAME -->` and ends with `<!-- end of figure -->`.
"""

import argparse
import json
import re
import sys
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any

from pydantic import BaseModel, SecretStr
from pydantic_core import PydanticUndefined

from infra.fleet.cost import Prices, bills
from infra.fleet.cost_report import (
    CPU_TYPES,
    KINDS,
    SLO_MS,
    NoWay,
    Option,
    Way,
    by_routing,
    cpu_service_time,
    options,
    pays_from,
    table,
)
from infra.fleet.model_folder import MISTRAL
from infra.fleet.neuron_estimate import Deployed, Loop
from infra.fleet.settings import FLEETS, FleetSettings
from infra.fleet.sizing import target_utilisation
from rehearsal.bench.tables import render
from rehearsal.tools.first_answer import render as render_first_answer
from rehearsal.tools.gallery import render as render_gallery
from rehearsal.tools.licences import listed as licence_list
from service.environment import Variable, variables
from service.settings import Settings

FIGURES = Path("docs/figures")
README = Path("README.md")
DOCS = Path("docs")
SHOWN = FLEETS / "prime-day.yaml"
SEED = FLEETS / "mistral-7b.yaml"
_BLOCK = re.compile(r"(<!-- figure: (\w+) -->\n).*?(<!-- end of figure -->)", re.DOTALL)


def every_setting() -> str:
    """Return all environment variables of the service by group, each with its default, as a list."""
    lines = ["## General", ""]
    lines += [_listed(variable) for variable in variables(Settings) if len(variable.path) == 1]
    for name, field in Settings.model_fields.items():
        if not (isinstance(field.annotation, type) and issubclass(field.annotation, BaseModel)):
            continue
        purpose = (field.annotation.__doc__ or "").partition("\n")[0]
        lines += ["", f"## {name}", "", purpose, ""]
        lines += [_listed(variable) for variable in variables(Settings) if variable.path[0] == name]
    return "\n".join(lines)


def decisions() -> str:
    """Return the list of docs/decisions, by number."""
    pages = sorted((DOCS / "decisions").glob("[0-9]*.md"))
    headings = [(page.name, page.read_text(encoding="utf-8").partition("\n")[0]) for page in pages]
    return "\n".join(f"- [{heading.removeprefix('# ')}]({name})" for name, heading in headings)


def _listed(variable: Variable) -> str:
    default = _default(variable.field.default).strip("`")
    return f"- `{variable.name}{f'={default}' if default else ''}`: {variable.field.description}"


def _default(value: Any) -> str:
    if value is PydanticUndefined:
        return "`~/.cache/peakplan`"
    if isinstance(value, Path):
        return f"`{value.relative_to(Path(__file__).parents[2])}`"
    if isinstance(value, bool):
        return str(int(value))
    return "" if value in (None, "") or isinstance(value, SecretStr) else f"`{value}`"


def ordinary_peak() -> str:
    """Return which instances carry the shown fleet's ordinary peak, the cheapest first, and the basis of each."""
    settings, prices = FleetSettings.from_yaml(SHOWN), Prices.from_json()
    rows = [
        f"| an ordinary peak of {settings.traffic.plans_per_minute:,} plans per minute on | instances "
        f"| {prices.currency} per hour | per million plans | service time |",
        "|---|---:|---:|---:|---|",
    ]
    rows += [_row(option, settings.name) for option in options(settings, prices)]
    return "\n".join([*rows, "", _core_times()])


def _row(option: Option, fleet: str) -> str:
    counts = " + ".join(str(count) for _, count in option.counts)
    name = option.name.replace(" alone", "").replace("the file", fleet)
    return f"| {name} | {counts} | {option.hourly:.0f} | {option.per_million:.2f} | {option.ground} |"


def _core_times() -> str:
    """Return how long a plan keeps a core of each processor busy."""
    times = {kind: time for kind in CPU_TYPES if (time := cpu_service_time(kind)) is not None}
    shown = ", ".join(f"{kind} {time.mean_ms:g}" for kind, time in times.items())
    return f"Milliseconds of a core a plan: {shown}. No arm64 core was timed."


def routing() -> str:
    """Return the shown fleet's bills with routing off and with always."""
    settings, prices = FleetSettings.from_yaml(SHOWN), Prices.from_json()
    rows = [
        f"| {settings.name}, {prices.currency} per hour | plans per minute | `off`, `overload` | `always` | less |",
        "|---|---:|---:|---:|---:|",
    ]
    loads: dict[str, list[str]] = {}  # those that cost the same share a row
    for off, always in by_routing(settings, prices):
        less = f"{1 - always.hourly / off.hourly:.0%}"
        row = f"{off.plans_per_minute:,.0f} | {off.hourly:,.0f} | {always.hourly:,.0f} | {less}"
        loads.setdefault(row, []).append(off.load)
    rows += [f"| {', '.join(named)} | {row} |" for row, named in loads.items()]
    left = f"With `always`, {settings.model.work_by_choice:.1%} of the model's work is left (`reader.json`)."
    return "\n".join([*rows, "", left])


def seed_fleet() -> str:
    """Return what the fleet of the seed's case is by formulae, and what it costs."""
    settings, prices = FleetSettings.from_yaml(SEED), Prices.from_json()
    model = settings.model
    rows = [
        "| group | ms a step | ms a plan, mean | p99 | a replica busy at most "
        f"| {prices.currency} per million plans at full use |",
        "|---|---:|---:|---:|---:|---:|",
    ]
    for group in settings.groups:
        deployed = Deployed(MISTRAL, group.chip, model.batch_size, model.tensor_parallel, model.speculation_length)
        loop = Loop.read(rows=model.speculation_length)
        rate = deployed.plans_per_second(group.instance_type, loop)
        rows.append(
            f"| {group.instance_type} | {deployed.step_ms:.1f} | {deployed.busy_ms(loop):.0f} | "
            f"{deployed.p99_ms(loop):.0f} | {target_utilisation(settings, group):.0%} | "
            f"{prices.instance_hour[group.instance_type] / 3600 / rate * 1e6:.0f} |"
        )
    costs = [
        f"{bill.load}: {bill.hourly:,.0f} {prices.currency} per hour, {bill.per_million_plans:.0f} per million plans"
        for bill in bills(settings, prices)
    ]
    return "\n".join([*rows, "", *(f"- {each}." for each in costs)])


def _ways(ways: list[Way | NoWay]) -> list[str]:
    """Return the instances of each time with their prices, then those on which the planner does not run."""
    kinds: dict[str, list[str]] = {}
    for each in ways:
        if isinstance(each, Way):
            time = f"{each.mean_ms:.0f} ms, p99 {each.p99_ms:.0f}; {each.how}"
            kinds.setdefault(time, []).append(f"{each.kind} {each.per_million:.2f}")
    shown = [f"{', '.join(named)}: {time}" for time, named in kinds.items()]
    no = [f"{each.kind} ({each.reason})" for each in ways if isinstance(each, NoWay)]
    return [*shown, f"not {', '.join(no)}"] if no else shown


def planner_sizes() -> str:
    """Return what a million plans cost by size of planner and instance, and from which size each instance pays."""
    prices = Prices.from_json()
    rows = table(prices)
    lines = [f"By planner, {prices.currency} per million plans on each instance, and how long a plan takes there:", ""]
    names: dict[tuple[str, ...], list[str]] = {}
    for planner, ways in rows:
        names.setdefault(tuple(_ways(ways)), []).append(f"**{planner.name}**, {planner.layer_bytes / 1e9:.2f} GB")
    for each, planners in names.items():
        lines += [f"- {'; '.join(planners)}", *(f"  - {shown}" for shown in each)]
    firsts = {kind: pays_from(rows, kind) for kind in KINDS}
    said = [f"{kind} from {first.name.partition(' ')[0]}" for kind, first in firsts.items() if first]
    last = f"Cheapest of what a fleet may run on: {', '.join(said)}. All within {SLO_MS:g} ms at p99."
    return "\n".join([*lines, "", last])


# Blocks that show no file of docs/figures, then those that show one by other means or under another name.
TABLES: dict[str, Callable[[], str]] = {
    "licences": licence_list,
    "every_setting": every_setting,
    "decisions": decisions,
    "ordinary_peak": ordinary_peak,
    "planner_sizes": planner_sizes,
    "seed_fleet": seed_fleet,
    "routing_bill": routing,
}
_WAYS: dict[str, Callable[[dict[str, Any]], str]] = {
    "first_answer": render_first_answer,
    "gallery": render_gallery,
    "neuron_graphs": partial(render, "neuron_loop"),
}
_FILES = {"every_decoding": "decoding", "behaviour_classes": "quality"}


def rewrite(text: str, figures: Path = FIGURES) -> str:
    """Return a document with every block rewritten. Raises FileNotFoundError or AttributeError for a missing figure."""

    def block(match: re.Match[str]) -> str:
        name = match.group(2)
        if name in TABLES:
            shown = TABLES[name]()
        else:
            figure = json.loads((figures / f"{_FILES.get(name, name)}.json").read_text(encoding="utf-8"))
            shown = _WAYS[name](figure) if name in _WAYS else render(name, figure)
        return f"{match.group(1)}{shown}\n{match.group(3)}"

    return _BLOCK.sub(block, text)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--check", action="store_true", help="change nothing; fail where a document is stale")
    arguments = parser.parse_args()
    for document in (README, *sorted(DOCS.rglob("*.md"))):
        current = document.read_text(encoding="utf-8")
        wanted = rewrite(current)
        if current == wanted:
            continue
        if arguments.check:
            sys.exit(
                f"{document} does not show its figures or settings as they are: run `python -m rehearsal.tools.readme`"
            )
        document.write_text(wanted, encoding="utf-8")


if __name__ == "__main__":
    main()
