"""What a fleet costs an hour and a million plans, with the arithmetic; prices.json is the only source of prices."""

from __future__ import annotations

import json
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

from pydantic import BaseModel, ConfigDict, Field

from infra.fleet import sizing
from infra.fleet.parts import Group
from infra.fleet.scaling import ScalingLaw
from infra.fleet.settings import FleetFileError, FleetSettings

PRICES = Path(__file__).with_name("prices.json")
HOURS_A_MONTH = 730


class Prices(BaseModel):
    """Unit prices in `currency`, where they come from and when."""

    model_config = ConfigDict(frozen=True, extra="forbid")

    source: str = Field(min_length=12)
    date: str = Field(pattern=r"^\d{4}-\d{2}-\d{2}$")
    currency: str
    instance_hour: dict[str, float]
    volume_gib_month: float
    balancer_hour: float
    balancer_unit_hour: float
    endpoint_zone_hour: float
    nat_hour: float

    @classmethod
    def from_json(cls, path: Path = PRICES) -> Prices:
        """The prices in `path`.

        Raises:
            FleetFileError: the file is missing or not a price file.
        """
        try:
            return cls.model_validate(json.loads(path.read_text(encoding="utf-8")))
        except (OSError, ValueError) as error:
            raise FleetFileError(f"{path}: not a price file: {error}") from error


@dataclass(frozen=True)
class Item:
    """One line of a bill: `count` of something at `each` an hour."""

    what: str
    count: float
    each: float

    @property
    def hourly(self) -> float:
        """The line's sum, an hour."""
        return self.count * self.each


@dataclass(frozen=True)
class Bill:
    """The fleet at one load, an hour."""

    load: str
    plans_per_minute: float
    items: tuple[Item, ...]

    @property
    def hourly(self) -> float:
        """Everything, an hour."""
        return sum(item.hourly for item in self.items)

    @property
    def per_million_plans(self) -> float:
        """What a million plans cost at this load."""
        return self.hourly / (self.plans_per_minute * 60) * 1e6


def volume_gib(group: Group) -> int:
    """The root volume of an instance: the image, and the host's memory is not swapped to it."""
    return 100 if group.instance.vcpus < 96 else 200


def _group_items(settings: FleetSettings, prices: Prices, group: Group, multiplier: float) -> Iterator[Item]:
    law = ScalingLaw.for_group(settings, group)
    running = max(law.minimum, sizing.instances_wanted(settings, group, multiplier)) * settings.cells
    warm = max(law.warm_pool.size * settings.cells, law.warm_pool.prepared * settings.cells - running)
    disk = volume_gib(group) * prices.volume_gib_month / HOURS_A_MONTH
    yield Item(f"{group.instance_type} in service", running, prices.instance_hour[group.instance_type])
    yield Item(f"{group.instance_type} volumes, warm pool's too", running + warm, disk)


def bill(settings: FleetSettings, prices: Prices, load: str, multiplier: float) -> Bill:
    """The fleet at `multiplier` times its ordinary traffic, at the floor that scaling keeps for that load."""
    network, cells, zones = settings.network, settings.cells, len(settings.availability_zones)
    reserved = sizing.reserved_units(settings, multiplier)
    units = max(reserved, sizing.balancer_units(settings, multiplier))
    items = [item for group in settings.groups for item in _group_items(settings, prices, group, multiplier)]
    items += [
        Item("load balancers", cells, prices.balancer_hour),
        Item("load balancer capacity units", units * cells, prices.balancer_unit_hour),
        Item("interface endpoints, a zone each", len(network.interface_endpoints) * zones, prices.endpoint_zone_hour),
        # The image build always has one; the cells' network only where it is asked for.
        Item("NAT gateways", 1 + zones * network.nat, prices.nat_hour),
    ]
    return Bill(load, settings.traffic.plans_per_minute * multiplier, tuple(items))


def bills(settings: FleetSettings, prices: Prices) -> tuple[Bill, ...]:
    """An ordinary day's bill, then one for each event."""
    loads = [("ordinary day", 1.0), *((event.name, event.multiplier) for event in settings.events)]
    return tuple(bill(settings, prices, name, multiplier) for name, multiplier in loads)


def report(settings: FleetSettings, prices: Prices) -> str:
    """Sizes and bills with their arithmetic, for people."""
    lines = [f"Fleet {settings.name}: {settings.cells} cells in {settings.region}", "", *_sizing_lines(settings)]
    for each in bills(settings, prices):
        lines += ["", f"{each.load}: {each.plans_per_minute:,.0f} plans a minute"]
        lines += [f"  {item.hourly:>10.2f}  {item.what}: {item.count:g} x {item.each:.5g}" for item in each.items]
        lines += [
            f"  {each.hourly:>10.2f}  {prices.currency} an hour",
            f"  {each.per_million_plans:>10.2f}  {prices.currency} a million plans",
        ]
    return "\n".join([*lines, "", f"Prices of {prices.date}: {prices.source}."])


def _sizing_lines(settings: FleetSettings) -> Iterator[str]:
    time, utilisation = settings.model.service_time, sizing.target_utilisation(settings)
    multiplier, slo = sizing.peak_multiplier(settings), settings.slo.p99_ms
    peak = sizing.fleet_rate(settings, multiplier)
    yield f"A plan keeps a replica busy {time.mean_ms:g} ms, {time.p99_ms:g} ms at the 99th percentile ({time.source})."
    yield (
        f"So that 99% of plans take under {slo} ms, a replica may be busy 1 - {time.mean_ms:g} ln(100) / ({slo} - "
        f"{time.p99_ms:g}) of the time (at most {sizing.HIGHEST_UTILISATION}): {utilisation:.3f}."
    )
    ordinary = settings.traffic.plans_per_minute
    yield f"The peak, {multiplier:g} times {ordinary:,} plans a minute, is {peak:,.1f} plans a second:"
    for group in settings.groups:
        rate = sizing.group_rate(settings, group, multiplier)
        replicas = sizing.replicas_per_instance(group, settings.model.tensor_parallel)
        needed = sizing.instances_for(settings, group, rate)
        wanted = sizing.instances_wanted(settings, group, multiplier)
        yield (
            f"  {group.instance_type}: {rate:,.1f} plans a second a cell / ({replicas} replicas x {utilisation:.3f} / "
            f"{time.mean_ms:g} ms = {sizing.instance_rate(settings, group):.1f}) = {needed}; with one of "
            f"{len(settings.availability_zones)} zones lost {wanted} a cell, {wanted * settings.cells} in "
            f"{settings.cells} cells; maximum {group.maximum} a cell"
        )
