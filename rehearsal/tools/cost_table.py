"""The tables of docs/cost.md, by the functions that print `peakplan fleet cost`."""

import json

from infra.fleet.cost import Prices, bills
from infra.fleet.cost_report import CPU_TYPES, NEURON_TYPES, Option, by_routing, cpu_service_time, options
from infra.fleet.instances import catalogue
from infra.fleet.neuron_estimate import BATCHES, Deployed, Loop, busy_ms, plans_per_second
from infra.fleet.parts import REPOSITORY_ROOT
from infra.fleet.planners import MISTRAL
from infra.fleet.settings import FLEETS, FleetSettings
from infra.fleet.sizes import KINDS, SLO_MS, Way, pays_from, table
from infra.fleet.sizing import target_utilisation

SHOWN = FLEETS / "prime-day.yaml"
SEED = FLEETS / "mistral-7b.yaml"
REHEARSED = REPOSITORY_ROOT / "docs" / "figures" / "rehearsals.json"


def ordinary_peak() -> str:
    """Return which instances carry the shown fleet's ordinary peak, the cheapest first, and the basis of each."""
    settings, prices = FleetSettings.from_yaml(SHOWN), Prices.from_json()
    rows = [
        f"| an ordinary peak of {settings.traffic.plans_per_minute:,} plans per minute on | instances "
        f"| {prices.currency} per hour | per million plans | service time |",
        "|---|---:|---:|---:|---|",
    ]
    rows += [_row(option, settings.name) for option in options(settings, prices)]
    return "\n".join([*rows, "", *_grounds()])


def _row(option: Option, fleet: str) -> str:
    counts = " + ".join(str(count) for _, count in option.counts)
    name = option.name.replace(" alone", "").replace("the file", fleet)
    return f"| {name} | {counts} | {option.hourly:.0f} | {option.per_million:.2f} | {option.ground} |"


def _grounds() -> list[str]:
    """Return what the processors' times are taken from."""
    kinds: dict[str, list[str]] = {}
    for kind in CPU_TYPES:
        if (time := cpu_service_time(kind)) is not None:
            kinds.setdefault(f"{time.mean_ms:g} ms of a core, {time.source}", []).append(kind)
    return [f"- {' and '.join(names)}: {ground}." for ground, names in kinds.items()]


def routing() -> str:
    """Return the shown fleet's bills with routing off and with always."""
    settings, prices = FleetSettings.from_yaml(SHOWN), Prices.from_json()
    rows = [
        f"| {settings.name}, {prices.currency} per hour | plans per minute | `off`, `overload` | `always` | less |",
        "|---|---:|---:|---:|---:|",
    ]
    rows += [
        f"| {off.load} | {off.plans_per_minute:,.0f} | {off.hourly:,.0f} | {always.hourly:,.0f} | "
        f"{1 - always.hourly / off.hourly:.0%} |"
        for off, always in by_routing(settings, prices)
    ]
    left = f"With `always`, {settings.model.work_by_choice:.1%} of the model's work is left (`worth.json`)."
    return "\n".join([*rows, "", left])


def seed_fleet() -> str:
    """Return what the fleet of the seed's case is by formulae, what it costs, and what its rehearsal said."""
    settings, prices = FleetSettings.from_yaml(SEED), Prices.from_json()
    model = settings.model
    rows = [
        "| group | a step | a plan, mean | p99 | a replica busy at most "
        f"| {prices.currency} per million plans at full use |",
        "|---|---:|---:|---:|---:|---:|",
    ]
    for group in settings.groups:
        deployed = Deployed(MISTRAL, group.chip, model.batch_size, model.tensor_parallel, model.speculation_length)
        loop = Loop.read(rows=model.speculation_length)
        rate = deployed.plans_per_second(group.instance_type, loop)
        rows.append(
            f"| {group.instance_type} | {deployed.step_ms:.1f} ms | {deployed.busy_ms(loop):.0f} ms | "
            f"{deployed.p99_ms(loop):.0f} ms | {target_utilisation(settings, group):.0%} | "
            f"{prices.instance_hour[group.instance_type] / 3600 / rate * 1e6:.0f} |"
        )
    costs = [
        f"{bill.load}: {bill.hourly:,.0f} {prices.currency} per hour, {bill.per_million_plans:.0f} per million plans"
        for bill in bills(settings, prices)
    ]
    said = json.loads(REHEARSED.read_text(encoding="utf-8"))["fleets"][settings.name]
    failed = [name for name, each in said["scenarios"].items() if not each["holds"]]
    verdict = (
        f"Rehearsed {said['at']} on {said['trace']}: {said['verdict']}; of {len(said['scenarios'])} scenarios failed: "
        f"{', '.join(failed) or 'none'}; p99 of the worst 10 s of the forecast: "
        f"{said['scenarios']['nominal']['worst_p99_ms']:.0f} ms"
    )
    return "\n".join([*rows, "", *(f"- {each}." for each in [*costs, verdict])])


def at_full_use() -> str:
    """Return the plans a second of each kind of instance at full use, by formulae and by measured processors."""
    prices, loop = Prices.from_json(), Loop.read()
    rates = {
        f"{kind}, batches of {batch} ({busy_ms(loop, batch):.0f} ms of a NeuronCore)": plans_per_second(
            kind, loop, batch
        )
        for batch in BATCHES
        for kind in NEURON_TYPES
    }
    for kind in CPU_TYPES:
        instance = catalogue().types[kind]
        if (time := cpu_service_time(kind)) is not None:
            rates[f"{kind}, int8 kernels"] = instance.cores * 1000 / time.mean_ms
    rows = [f"| at full utilisation | plans per second | {prices.currency} per million plans |", "|---|---:|---:|"]
    for name, rate in rates.items():
        million = prices.instance_hour[name.partition(",")[0]] / 3600 / rate * 1e6
        rows.append(f"| {name} | {rate:.0f} | {million:.2f} |")
    return "\n".join(rows)


def planner_sizes() -> str:
    """Return what a million plans cost by size of planner and instance, and from which size each instance pays."""
    prices = Prices.from_json()
    rows = table(prices)
    lines = [f"| {prices.currency} per million plans | {' | '.join(KINDS)} |", f"|---|{'---|' * len(KINDS)}"]
    for planner, ways in rows:
        cells = [
            f"{each.per_million:.2f}: {each.mean_ms:.0f} ms, p99 {each.p99_ms:.0f}; {each.how}"
            if isinstance(each, Way)
            else f"no: {each.reason}"
            for each in ways
        ]
        lines.append(f"| **{planner.name}**, {planner.layer_bytes / 1e9:.2f} GB of layers | {' | '.join(cells)} |")
    firsts = {kind: pays_from(rows, kind) for kind in KINDS}
    said = [f"{kind} from {first.name.partition(' ')[0]}" for kind, first in firsts.items() if first]
    never = [kind for kind, first in firsts.items() if first is None]
    last = f"Cheapest of what a fleet may run on: {', '.join(said)}; never of these sizes: {', '.join(never)}."
    return "\n".join([*lines, "", f"{last} All within {SLO_MS:g} ms at p99."])
