"""The text of `peakplan fleet cost`: sizes with their arithmetic, bills, grounds, alternatives, other planners.

For each planner size and instance it takes the cheapest way that answers inside the SLO at the 99th percentile while
nothing waits, and whose memory suffices: cores a replica and plans together on chips, replicas on processors. What is
measured is the shipped planner on a processor; every other figure follows from it and from published numbers by the
formulae of neuron_estimate.py.
"""

from collections.abc import Iterator
from dataclasses import asdict, dataclass
from itertools import product
from pathlib import Path
from typing import Any, Literal

from infra.fleet import neuron_estimate, sizing
from infra.fleet.cost import HOURS_A_MONTH, Bill, Prices, bills
from infra.fleet.demand import ServiceTime
from infra.fleet.instances import catalogue, processor
from infra.fleet.model_folder import GIB, PLANNERS, SHIPPED, Planner
from infra.fleet.neuron_estimate import MOST_ROWS, ROWS, Deployed, Loop, Measured, least_core_ms, plan_bytes
from infra.fleet.parts import REPOSITORY_ROOT, Group
from infra.fleet.settings import FleetSettings

FIGURES = REPOSITORY_ROOT / "docs" / "figures"
CPU_TYPES = ("c7i.4xlarge", "c7a.4xlarge", "c7g.4xlarge", "c8g.4xlarge")
NEURON_TYPES = ("inf2.xlarge", "inf2.8xlarge", "trn1.2xlarge")


@dataclass(frozen=True)
class Option:
    """Instances that could carry the ordinary peak with every zone alive.

    It gives the count by type, the dollars, and the basis of the figure.
    """

    name: str
    counts: tuple[tuple[str, int], ...]
    hourly: float
    per_million: float
    ground: str


def cpu_service_time(kind: str | None = None, figures: Path = FIGURES) -> ServiceTime | None:
    """Return how long a plan keeps a core of `kind` busy with our int8 kernels, or None without figures.

    Without a kind it is a core of the machine that `peakplan bench load` measured. Other processors take as many
    times that as a plan takes them on one thread (instances.json). Nobody has timed an arm64 core: it is stated to
    take as many times the measured mean as our AVX2 kernel takes on the measured machine. NEON's dot products multiply
    64 pairs of int8 a cycle on Graviton4 (four units of 16; Arm Neoverse V2 software optimization guide), half of what
    AVX-512 VNNI does on that machine, and AVX2 needs three instructions for 32. Graviton3 (Neoverse V1) has four such
    units, too. Whatever the core, a plan takes no less
    than the host's memory lets it (least_core_ms), and its slowest plans grow with it.
    """
    try:
        if kind is None:
            return _measured_time(Measured.read(figures))
        time, read = core_time(kind, figures), plan_bytes(figures)
    except (OSError, KeyError, ValueError, ZeroDivisionError):
        return None
    roof, socket, source = least_core_ms(kind, read), processor(kind), time.source
    if roof > time.core_ms:
        source += (
            f"; but all cores read {read / 1e6:.0f} MB a plan from {socket.cores} cores' "
            f"{socket.gigabytes_per_second:g} GB/s, so {time.core_ms:.1f} ms become {roof:.1f}"
        )
    mean = max(time.core_ms, roof)
    return ServiceTime(mean_ms=round(mean, 1), p99_ms=round(time.tail * mean, 1), source=source)


@dataclass(frozen=True)
class CoreTime:
    """How long a plan of the shipped planner keeps a core busy, with memory unshared.

    `slower` is how many times that of the measured core, `tail` the 99th percentile over the mean.
    """

    core_ms: float
    tail: float
    slower: float
    source: str


def _measured_time(measured: Measured) -> ServiceTime:
    latency = measured.best["service"][measured.loaded]
    source = f"measured: {measured.ground}, docs/figures/serving.json and decoding.json"
    return ServiceTime(mean_ms=round(measured.mean_ms, 1), p99_ms=latency["p99_ms"], source=source)


def core_time(kind: str, figures: Path = FIGURES) -> CoreTime:
    """Return the time on a core of `kind`, and what it is taken from. Raises OSError, ValueError or KeyError."""
    measured, socket = Measured.read(figures), processor(kind)
    latency, ground = measured.best["service"][measured.loaded], measured.ground
    if catalogue().types[kind].architecture == "arm64":
        if measured.narrow is None:
            raise KeyError("decoding.json has no entry of the processor held to AVX2")
        slower = measured.narrow["service"][measured.loaded]["p50_ms"] / latency["p50_ms"]
        source = (
            f"stated, no arm64 core was timed: {slower:.2f} times the core time of {ground}, as our AVX2 kernel takes "
            "there"
        )
    elif socket.plan_p50_ms is not None:
        slower = socket.plan_p50_ms / measured.best["strategies"]["medusa"]["p50_ms"]
        source = (
            f"measured: {slower:.2f} times the core time of {ground}, as a plan takes a thread of {socket.plan_source}"
        )
    else:
        slower, source = 1.0, f"measured: {ground}, docs/figures/serving.json and decoding.json; not on a {kind}"
    return CoreTime(slower * measured.mean_ms, latency["p99_ms"] / measured.mean_ms, slower, source)


def by_routing(settings: FleetSettings, prices: Prices) -> Iterator[tuple[Bill, Bill]]:
    """Yield the bills of each load with routing off (overload buys the same hosts), and with always."""
    yield from zip(*(bills(routed(settings, name), prices) for name in ("off", "always")), strict=True)


def routed(settings: FleetSettings, routing: Literal["off", "always"]) -> FleetSettings:
    return settings.model_copy(update={"model": settings.model.model_copy(update={"routing": routing})})


def options(settings: FleetSettings, prices: Prices) -> list[Option]:
    """Return each kind alone, the fleet's own mix, and half Neuron half CPU, the cheapest first."""
    own = {group.instance_type: group for group in settings.groups if not group.stands_in}
    kinds = dict(own)
    for kind in CPU_TYPES:
        if (time := cpu_service_time(kind)) is not None:
            kinds.setdefault(kind, Group(instance_type=kind, engine="torch", service_time=time, minimum=0, maximum=1))
    found = [_option(settings, prices, f"{kind} alone", {kind: (group, 1.0)}) for kind, group in kinds.items()]
    if len(own) > 1:
        weights = {kind: group.maximum * sizing.full_rate(settings, group) for kind, group in own.items()}
        mix = {kind: (own[kind], weight / sum(weights.values())) for kind, weight in weights.items()}
        found.append(_option(settings, prices, "as in the file", mix))
    neuron = next((group for group in settings.groups if group.engine == "neuron"), None)
    cpu = next((group for group in kinds.values() if group.engine == "torch"), None)
    if neuron and cpu:
        mix = {neuron.instance_type: (neuron, 0.5), cpu.instance_type: (cpu, 0.5)}
        found.append(_option(settings, prices, f"half {neuron.instance_type}, half {cpu.instance_type}", mix))
    return sorted((each for each in found if each is not None), key=lambda each: each.hourly)


def _option(
    settings: FleetSettings, prices: Prices, name: str, shares: dict[str, tuple[Group, float]]
) -> Option | None:
    rate, counts, grounds = sizing.fleet_rate(settings), [], set()
    by_model = rate * settings.model.work_share
    for kind, (group, share) in shares.items():
        if sizing.target_utilisation(settings, group) < sizing.LOWEST_UTILISATION:
            return None
        counts.append((kind, sizing.instances_for(settings, group, by_model * share)))
        grounds.add("measured elsewhere" if sizing.service_time(settings, group).is_measured else "stated")
    hourly = sum(count * prices.instance_hour[kind] for kind, count in counts)
    return Option(name, tuple(counts), hourly, hourly / (rate * 3600) * 1e6, " and ".join(sorted(grounds)))


def data(settings: FleetSettings, prices: Prices) -> dict[str, Any]:
    """Return the bills of each load and the alternatives, for programs; amounts are in `currency`, an hour."""
    loads = [
        {
            "load": each.load, "plans_per_minute": each.plans_per_minute, "hourly": each.hourly,
            "per_million_plans": each.per_million_plans,
            "items": [{**asdict(item), "hourly": item.hourly} for item in each.items],
        }
        for each in bills(settings, prices)
    ]  # fmt: skip
    return {
        "fleet": settings.name, "region": settings.region, "cells": settings.cells, "currency": prices.currency,
        "prices": {"date": prices.date, "source": prices.source}, "loads": loads,
        "alternatives": [{**asdict(each), "counts": dict(each.counts)} for each in options(settings, prices)],
    }  # fmt: skip


def report(settings: FleetSettings, prices: Prices) -> str:
    lines = [f"Fleet {settings.name}: {settings.cells} cells in {settings.region}", "", *_sizing_lines(settings)]
    for each in bills(settings, prices):
        lines += ["", f"{each.load}: {each.plans_per_minute:,.0f} plans a minute"]
        lines += [f"  {item.hourly:>10.2f}  {item.what}: {item.count:.6g} x {item.each:.5g}" for item in each.items]
        lines += [
            f"  {each.hourly:>10.2f}  {prices.currency} an hour, {each.hourly * HOURS_A_MONTH:,.0f} in a month of it",
            f"  {each.per_million_plans:>10.2f}  {prices.currency} a million plans",
        ]
    lines += [
        "",
        *_routing_lines(settings, prices),
        "",
        *_option_lines(settings, prices),
        "",
        *_estimate_lines(prices),
        "",
        *_ground_lines(settings, prices),
    ]
    return "\n".join(lines)


def _sizing_lines(settings: FleetSettings) -> Iterator[str]:
    multiplier, slo = sizing.peak_multiplier(settings), settings.slo.p99_ms
    peak, surge = sizing.fleet_rate(settings, multiplier), settings.surge
    for group in settings.groups:
        time, utilisation = sizing.service_time(settings, group), sizing.target_utilisation(settings, group)
        replicas = sizing.replicas_per_instance(group, settings.model.tensor_parallel)
        yield (
            f"{group.instance_type}: a plan keeps a replica busy {time.mean_ms:g} ms, {time.p99_ms:g} ms at the 99th "
            f"percentile. So that 99% of plans take under {slo} ms, one of {replicas} on a host may be busy "
            f"1 - {time.mean_ms:g} ln(100) / ({replicas} ({slo} - {time.p99_ms:g})) of the time "
            f"(at most {sizing.HIGHEST_UTILISATION}): {utilisation:.3f}."
        )
    ordinary = settings.traffic.plans_per_minute
    yield f"The peak, {multiplier:g} times {ordinary:,} plans a minute, is {peak:,.1f} plans a second:"
    sized = [group for group in settings.groups if not group.stands_in]
    for group in sized:
        rate = sizing.group_rate(settings, group, multiplier)
        each, needed = sizing.instance_rate(settings, group), sizing.instances_for(settings, group, rate)
        wanted = sizing.instances_wanted(settings, group, multiplier)
        yield (
            f"  {group.instance_type}: {rate:,.1f} plans a second a cell / {each:.1f} an instance = {needed}; with one "
            f"of {len(settings.availability_zones)} zones lost {wanted} a cell, {wanted * settings.cells} in "
            f"{settings.cells} cells; maximum {group.maximum} a cell"
        )
    yield (
        f"A surge that nobody announced, {surge.times:g} times the load within {surge.within} s, of which hosts in "
        f"service absorb {surge.absorb:g}:"
    )
    for group in sized:
        yield (
            f"  {group.instance_type}: {sizing.surge_instances(settings, group)} a cell, in service after "
            f"{sizing.surge_recovery_seconds(settings, group):.0f} s (promised {surge.recover}); at the ordinary peak "
            f"{sizing.floor_for(settings, group)} stand"
        )
    for group in settings.groups:
        if group.stands_in:
            carries = group.maximum * sizing.instance_rate(settings, group)
            yield (
                f"Where these lack hosts, {group.minimum} to {group.maximum} {group.instance_type} a cell take over up "
                f"to {carries:,.0f} plans a second."
            )


def _routing_lines(settings: FleetSettings, prices: Prices) -> Iterator[str]:
    left = settings.model.work_by_choice
    yield (
        f"By routing (model.routing of the fleet file). With always, the reader plans by choice what reader.json "
        f"allows, and {left:.1%} of the model's work is left (reader.json; 100% where it does not say):"
    )
    for off, always in by_routing(settings, prices):
        yield (
            f"  {off.load}: off, overload {off.hourly:,.2f} {prices.currency} an hour, {off.per_million_plans:.2f} a "
            f"million plans; always {always.hourly:,.2f} and {always.per_million_plans:.2f}"
        )


def _option_lines(settings: FleetSettings, prices: Prices) -> Iterator[str]:
    yield "Instances alone that carry the ordinary peak, every zone alive (service times: see below):"
    for option in options(settings, prices):
        counts = " + ".join(f"{count} x {kind}" for kind, count in option.counts)
        yield (
            f"  {option.hourly:>10.2f}  {prices.currency} an hour, {option.per_million:.2f} a million plans: "
            f"{option.name} ({counts}; {option.ground})"
        )


def _estimate_lines(prices: Prices) -> Iterator[str]:
    """Yield plans a second and dollars a million of the shipped model, at full use, on each kind of instance."""
    loop = neuron_estimate.Loop.read()
    weights, dispatch = neuron_estimate.layer_bytes(), neuron_estimate.HOST_SLOWER * neuron_estimate.DISPATCH_MS
    host = neuron_estimate.HOST_SLOWER * loop.host_ms
    yield "At full use, by formulae (infra/fleet/neuron_estimate.py; no Neuron chip was used):"
    for batch in neuron_estimate.BATCHES:
        step = neuron_estimate.Deployed(batch=batch).step_ms
        yield (
            f"  a NeuronCore, batch {batch}: step = {neuron_estimate.FIXED_MS:g} + {weights / 1e6:.0f} MB / "
            f"{neuron_estimate.BYTES_PER_MS / 1e6:.0f} GB/s + rows = {step:.2f} ms; {loop.forwards:g} forwards x "
            f"({step:.2f} + {dispatch:.1f}) + {batch} x {host:.1f} of the host = "
            f"{neuron_estimate.busy_ms(loop, batch):.1f} ms for {batch} plan(s)"
        )
        for kind in NEURON_TYPES:
            yield _estimate_line(f"{kind}, batch {batch}", neuron_estimate.plans_per_second(kind, loop, batch), prices)
    for kind in CPU_TYPES:
        instance = catalogue().types[kind]
        if (time := cpu_service_time(kind)) is not None:
            yield _estimate_line(f"{kind}, int8 kernels", instance.cores * 1000 / time.mean_ms, prices)


def _estimate_line(name: str, rate: float, prices: Prices) -> str:
    million = prices.instance_hour[name.partition(",")[0]] / 3600 / rate * 1e6
    return f"  {rate:>10.0f}  plans a second, {million:.2f} {prices.currency} a million: {name}"


def _ground_lines(settings: FleetSettings, prices: Prices) -> Iterator[str]:
    yield "Measured or stated:"
    times = {group.instance_type: sizing.service_time(settings, group) for group in settings.groups}
    for kind, time in times.items():
        yield f"  service time of {kind}: {'' if time.is_measured else 'STATED, '}{time.source}"
    for kind in CPU_TYPES:
        if (cpu := cpu_service_time(kind)) is not None:
            yield f"  service time of {kind}: {cpu.mean_ms:g} ms, {cpu.source}"
    yield "  bytes logged a plan and a host: measured on the service's own code (tests/infra/fleet/test_cost.py)"
    yield "  access and flow logs' sizes, traffic, forecast, boot and warm start times: STATED"
    yield f"  prices of {prices.date}: {prices.source}."
    yield "  not in it: data transfer, KMS, Route 53, image builds, S3 requests, support, taxes"


KINDS = (
    "c8g.4xlarge", "c7a.4xlarge", "c7i.4xlarge", "inf2.xlarge", "inf2.24xlarge", "inf2.48xlarge", "trn1.2xlarge",
    "trn1.32xlarge", "trn2.3xlarge",
)  # fmt: skip
BATCHES = (1, 2, 4, 8)
SLO_MS = 300.0
# A gateway and a replica take so much beside the weights, which a host's replicas share: 596 MB were measured of one
# replica with its weights (docs/figures/decoding.json).
PROCESS_GIB = 0.5


@dataclass(frozen=True)
class Way:
    """How a planner runs on an instance: milliseconds of a plan, and what a million of them cost at full use."""

    kind: str
    how: str
    mean_ms: float
    p99_ms: float
    per_million: float


@dataclass(frozen=True)
class NoWay:
    """Why a planner does not run on an instance inside the SLO."""

    kind: str
    reason: str


def way(planner: Planner, kind: str, prices: Prices, figures: Path = FIGURES) -> Way | NoWay:
    """Return the cheapest way to run a planner on an instance, or why there is none. Raises OSError, KeyError."""
    ways = list(
        _on_processor(planner, kind, prices, figures)
        if not catalogue().types[kind].device_gib
        else _on_chip(planner, kind, prices)
    )
    quick = [each for each in ways if isinstance(each, Way) and each.p99_ms <= SLO_MS]
    if quick:
        return min(quick, key=lambda each: each.per_million)
    if slow := [each for each in ways if isinstance(each, Way)]:
        return NoWay(kind, f"p99 {min(each.p99_ms for each in slow):.0f} ms")
    return next(each for each in reversed(ways) if isinstance(each, NoWay))


def _on_chip(planner: Planner, kind: str, prices: Prices) -> Iterator[Way | NoWay]:
    instance, chip = catalogue().types[kind], kind.partition(".")[0]
    degrees = catalogue().tensor_parallel
    keys = planner.key_value_heads
    for cores in [each for name, several in degrees.items() if name == chip for each in several]:
        if cores > instance.cores or (keys != planner.attention_heads and keys % cores and cores % keys):
            continue
        for batch, rows in product(BATCHES, (ROWS, MOST_ROWS)):
            deployed, loop = Deployed(planner, chip, batch, cores, rows), Loop.read(rows=rows)
            if lacking := deployed.lacking_gib(instance.device_gib / instance.cores):
                yield NoWay(kind, f"{lacking:.1f} GiB lack on {cores} core(s)")
                continue
            how = f"batch {batch}, {rows} rows, {cores} core{'s' if cores > 1 else ''}"
            million = prices.instance_hour[kind] / 3600 / deployed.plans_per_second(kind, loop) * 1e6
            yield Way(kind, how, deployed.busy_ms(loop), deployed.p99_ms(loop), million)


def _on_processor(planner: Planner, kind: str, prices: Prices, figures: Path) -> Iterator[Way | NoWay]:
    time, instance = core_time(kind, figures), catalogue().types[kind]
    # What a plan takes beside its forwards stays as it is; the forwards grow with the layers.
    beside = Loop.read().host_ms * time.slower
    alone = beside + (time.core_ms - beside) * planner.layer_bytes / SHIPPED.layer_bytes
    roof = least_core_ms(kind, plan_bytes(figures, planner))
    weights = (planner.layer_bytes + planner.embedding_bytes) / 2 / GIB  # int8, one copy for all replicas
    for replicas in range(1, instance.cores + 1):
        if (lacking := weights + PROCESS_GIB * (replicas + 1) - instance.host_gib) > 0:
            yield NoWay(kind, f"{lacking:.1f} GiB lack")
            continue
        mean = max(alone, roof * replicas / instance.cores)  # fewer replicas share the memory's bandwidth
        million = prices.instance_hour[kind] / 3600 / (replicas * 1000 / mean) * 1e6
        yield Way(kind, f"{replicas} replicas", mean, time.tail * mean, million)


def table(prices: Prices, figures: Path = FIGURES) -> list[tuple[Planner, list[Way | NoWay]]]:
    return [(planner, [way(planner, kind, prices, figures) for kind in KINDS]) for planner in PLANNERS]


def pays_from(rows: list[tuple[Planner, list[Way | NoWay]]], kind: str) -> Planner | None:
    """Return the smallest planner of the table that costs least on `kind` of all that a fleet may run on, or None."""
    for planner, ways in rows:
        offered = [each for each in ways if isinstance(each, Way)]
        if offered and min(offered, key=lambda each: each.per_million).kind == kind:
            return planner
    return None


def size_lines(prices: Prices, figures: Path = FIGURES) -> Iterator[str]:
    rows = table(prices, figures)
    yield f"Planners of other sizes at full use, p99 {SLO_MS:g} ms at most, by formulae (docs/planner-sizes.md):"
    for planner, ways in rows:
        for each in ways:
            if isinstance(each, Way):
                yield (
                    f"  {planner.name} on {each.kind}: {each.per_million:.2f} {prices.currency} a million, "
                    f"{each.mean_ms:.0f} ms, p99 {each.p99_ms:.0f} ({each.how})"
                )
            else:
                yield f"  {planner.name} on {each.kind}: no, {each.reason}"
    for kind in KINDS:
        if (first := pays_from(rows, kind)) is not None:
            yield f"  {kind} costs least for {first.name}, and no smaller one"
