"""Which instance a planner of a given size pays on: dollars a million plans at full use, by formulae.

For each planner and instance it takes the cheapest way that answers inside the SLO at the 99th percentile while nothing
waits, and whose memory suffices: cores a replica and plans together on chips, replicas on processors. What is measured
is the shipped planner on a processor; every other figure follows from it and from published numbers by the formulae of
neuron_estimate.py and roofline.py.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from itertools import product
from pathlib import Path

from infra.fleet.cost import Prices
from infra.fleet.cost_report import FIGURES, core_time
from infra.fleet.instances import catalogue
from infra.fleet.neuron_estimate import MOST_ROWS, ROWS, Deployed, Loop
from infra.fleet.planners import GIB, PLANNERS, SHIPPED, Planner
from infra.fleet.roofline import least_core_ms, plan_bytes

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
        _on_processor(planner, kind, prices, figures) if _is_processor(kind) else _on_chip(planner, kind, prices)
    )
    quick = [each for each in ways if isinstance(each, Way) and each.p99_ms <= SLO_MS]
    if quick:
        return min(quick, key=lambda each: each.per_million)
    if slow := [each for each in ways if isinstance(each, Way)]:
        return NoWay(kind, f"p99 {min(each.p99_ms for each in slow):.0f} ms")
    return next(each for each in reversed(ways) if isinstance(each, NoWay))


def _is_processor(kind: str) -> bool:
    return not catalogue().types[kind].device_gib


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
    """Return every planner with its way on every instance. Raises OSError or KeyError without figures."""
    return [(planner, [way(planner, kind, prices, figures) for kind in KINDS]) for planner in PLANNERS]


def pays_from(rows: list[tuple[Planner, list[Way | NoWay]]], kind: str) -> Planner | None:
    """Return the smallest planner of the table that costs least on `kind` of all that a fleet may run on, or None."""
    for planner, ways in rows:
        offered = [each for each in ways if isinstance(each, Way)]
        if offered and min(offered, key=lambda each: each.per_million).kind == kind:
            return planner
    return None


def lines(prices: Prices, figures: Path = FIGURES) -> Iterator[str]:
    """Yield the text of `peakplan fleet cost`."""
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
