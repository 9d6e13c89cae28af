"""The cost of a fleet per hour and per million plans, and what it may cost. All prices are in prices.json."""

import json
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Self

from pydantic import BaseModel, ConfigDict, Field

from infra.fleet import sizing
from infra.fleet.alarm_kinds import MetricAlarm, pages
from infra.fleet.alarms import cell_alarms
from infra.fleet.calendar import Calendar, reserved
from infra.fleet.demand import DAYS
from infra.fleet.metrics import metrics
from infra.fleet.parts import Group
from infra.fleet.policies import PERIOD_SECONDS, Signal
from infra.fleet.scaling import ScalingLaw
from infra.fleet.settings import FleetFileError, FleetSettings
from infra.fleet.synthetic_plans import MEMORY_MIB

PRICES = Path(__file__).with_name("prices.json")
HOURS_A_MONTH = 730
GIB = 2**30
# These are the service's log volumes; tests/infra/fleet/test_cost.py measures them on the service's own code.
LOGGED_A_PLAN, METRICS_A_PLAN, METRICS_A_HOST_FLUSH = 340, 47, 1150
# Stated: a balancer's access log line, compressed; a host's flow records, some ten pairs of addresses a minute.
ACCESS_LOG_A_PLAN, FLOW_LOG_A_HOST_MINUTE = 120, 1500
CANARY_SECONDS = 3  # stated: a run, its start and its report
RELEASES = 2  # in service at once, while one follows another
FREE_DASHBOARDS = 3
METRICS_OF = {Signal.WORK: 2, Signal.BY_RULE: 2, Signal.OTHERS_WORK: 4}  # in an alarm on a signal; one where not named


class Prices(BaseModel):
    """Unit prices in `currency`, with their source and date."""

    model_config = ConfigDict(frozen=True, extra="forbid")

    source: str = Field(min_length=12)
    date: str = Field(pattern=r"^\d{4}-\d{2}-\d{2}$")
    currency: str
    instance_hour: dict[str, float]
    cache_node_hour: dict[str, float]
    volume_gib_month: float
    balancer_hour: float
    balancer_unit_hour: float
    network_balancer_hour: float
    network_balancer_unit_hour: float
    endpoint_zone_hour: float
    nat_hour: float
    log_gib: float = Field(description="taken in by CloudWatch Logs")
    log_gib_month: float = Field(description="kept by CloudWatch Logs, which compresses")
    object_gib_month: float = Field(description="kept by S3")
    metric_month: float = Field(description="a custom metric: each set of values of its dimensions")
    alarm_metric_month: float = Field(description="a metric in an alarm")
    fast_alarm_metric_month: float = Field(description="a metric in an alarm with a period under a minute")
    composite_alarm_month: float
    dashboard_month: float
    canary_run: float = Field(description="of CloudWatch Synthetics")
    function_gib_second: float = Field(description="of Lambda, which a canary runs in")
    detailed_monitoring_month: float = Field(description="an instance's metrics every minute")

    @classmethod
    def from_json(cls, path: Path = PRICES) -> Self:
        """Return the prices in `path`. Raise FleetFileError where it is missing or not a price file."""
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
        return self.count * self.each


@dataclass(frozen=True)
class Bill:
    """The bill of the fleet at one load, per hour."""

    load: str
    plans_per_minute: float
    items: tuple[Item, ...]

    @property
    def hourly(self) -> float:
        return sum(item.hourly for item in self.items)

    @property
    def per_million_plans(self) -> float:
        return self.hourly / (self.plans_per_minute * 60) * 1e6


INITIALIZED_MIB_A_SECOND = 300  # the most; Amazon EBS user guide, Provisioned Rate for Volume Initialization


def volume_gib(settings: FleetSettings, group: Group) -> int:
    """Return the size of an instance's root volume in GiB: the image, without swap for the host's memory."""
    return settings.machine_image.root_gib * (1 if group.instance.vcpus < 96 else 2)


def mean_floor(settings: FleetSettings, group: Group) -> float:
    """Return the instances of one cell's `group` that the forecast keeps, averaged over a week."""
    weekly = Calendar.of_group(settings, group).weekly
    return _weekly_mean([(begin, max(group.minimum, floor)) for begin, floor in weekly])


def mean_share(settings: FleetSettings) -> float:
    """Return the weekly mean share of the ordinary peak, from the forecast, or 1 without one."""
    blocks = sorted(
        (DAYS.index(day) * 24 * 60 + block.minute, block.share)
        for block in settings.traffic.forecast
        for day in block.days
    )
    return _weekly_mean(blocks) if blocks else 1.0


def _weekly_mean(values: Sequence[tuple[int, float]]) -> float:
    """Return the mean of values, each of which holds from its minute of the week until the next one's."""
    week = 7 * 24 * 60
    ends = [minute for minute, _ in values[1:]] + [values[0][0] + week]
    return sum((end - begin) * value for (begin, value), end in zip(values, ends, strict=True)) / week


def _running(settings: FleetSettings, group: Group, multiplier: float | None) -> float:
    """Return the instances of `group` in all cells at an event's floor, or on average over an ordinary week."""
    if multiplier is None:
        return _in_all_cells(settings, mean_floor(settings, group))
    return _in_all_cells(settings, max(group.minimum, sizing.instances_wanted(settings, group, multiplier)))


def _in_all_cells(settings: FleetSettings, of_one: float) -> float:
    """Return the instances of a group in all cells; one without callers has one (`of_cell`)."""
    serving = len(settings.serving_cells)
    return of_one * serving + settings.cells - serving


def _reserved_ahead(settings: FleetSettings, group: Group, multiplier: float) -> float:
    """Return the instances that are reserved and paid for before they run, spread over the event's hours."""
    for event, each in zip(settings.events, reserved(settings, group), strict=False):
        if event.multiplier == multiplier:
            calendar = Calendar.of_group(settings, group)
            idle = each.instances * len(settings.availability_zones) - calendar.floor_at(each.opens)
            return max(0.0, idle) * len(settings.serving_cells) * ((each.due - each.opens) / (event.end - event.start))
    return 0.0


def _group_items(
    settings: FleetSettings, prices: Prices, group: Group, running: float, multiplier: float | None
) -> Iterator[Item]:
    law = ScalingLaw.for_group(settings, group)
    warm = max(0.0, _in_all_cells(settings, law.warm_pool.prepared) - running)
    disk = volume_gib(settings, group) * prices.volume_gib_month / HOURS_A_MONTH
    kind = group.instance_type
    yield Item(f"{kind} in service", running, prices.instance_hour[kind])
    if multiplier is not None and (ahead := _reserved_ahead(settings, group, multiplier)):
        yield Item(f"{kind} reserved ahead of the event, over its hours", ahead, prices.instance_hour[kind])
    yield Item(f"{kind} detailed monitoring", running, prices.detailed_monitoring_month / HOURS_A_MONTH)
    yield Item(f"{kind} volumes, warm pool's {warm:g} too", running + warm, disk)


def _beside_hosts(settings: FleetSettings, prices: Prices) -> Iterator[Item]:
    if (cache := settings.shared_cache).enabled:
        count = cache.nodes * settings.cells
        yield Item(f"{cache.node_type} of the shared cache", count, prices.cache_node_hour[cache.node_type])
    if settings.synthetic_plans.enabled:
        runs = 60 * settings.cells
        yield Item("runs of canaries, one a minute in each cell", runs, prices.canary_run)
        used = runs * CANARY_SECONDS * MEMORY_MIB / 1024
        yield Item("canaries' functions, GiB-seconds", used, prices.function_gib_second)


def custom_metrics(settings: FleetSettings) -> int:
    """Return the number of metrics that the fleet publishes: every set of values of all dimensions."""
    values = {
        "Fleet": 1,
        "Cell": settings.cells,
        "PlannedIn": settings.cells,
        "Group": len(settings.groups),
        "Source": len(metrics().answer_sources),
        "Intent": settings.model.intents,
        "Release": RELEASES,
    }
    neuron = any(group.engine == "neuron" for group in settings.groups)
    count = 0
    for metric in metrics().metrics.values():
        if metric.source in ("service", "deploy") or (metric.source == "neuron" and neuron):
            for chosen in metric.dimensions:
                sets = 1
                for dimension in chosen:
                    sets *= len(metric.values[dimension]) if dimension in metric.values else values[dimension]
                count += sets
    return count


def alarm_metrics(settings: FleetSettings) -> tuple[int, int, int]:
    """Count one cell's metrics in alarms, those in alarms with a period under a minute, and composite alarms."""
    alarms = cell_alarms(settings)
    slow = sum(len(alarm.readings) for alarm in alarms if isinstance(alarm, MetricAlarm))
    fast = 0
    for group in settings.groups:
        law = ScalingLaw.for_group(settings, group)
        fast += sum(METRICS_OF.get(policy.signal, 1) for policy in law.steps)
        fast += 2 * sum(bool(policy.pressed_by) for policy in law.steps) + 2  # target tracking adds two of its own
        # The removal policy has five, and two of the whole cell where the group stands in; a refresh has three stops.
        slow += 5 + 2 * group.stands_in + 3
    return slow, fast, sum(not isinstance(alarm, MetricAlarm) for alarm in alarms)


def _watching(settings: FleetSettings, prices: Prices, hosts: float, plans_an_hour: float) -> Iterator[Item]:
    flushes = hosts * 3600 / PERIOD_SECONDS
    written = {
        "request logs": plans_an_hour * LOGGED_A_PLAN,
        "metrics in logs (EMF)": plans_an_hour * METRICS_A_PLAN + flushes * METRICS_A_HOST_FLUSH,
        "flow logs": hosts * 60 * FLOW_LOG_A_HOST_MINUTE,
    }
    for what, size in written.items():
        yield Item(f"{what}, GiB taken in", size / GIB, prices.log_gib)
    # What comes in an hour is kept for its retention, so each hour pays for all of that; Logs compress to some 15%.
    months = settings.retention_days / 30.4
    yield Item("logs kept, GiB-months", 0.15 * sum(written.values()) / GIB * months, prices.log_gib_month)
    access = plans_an_hour * ACCESS_LOG_A_PLAN / GIB
    yield Item("access logs kept, GiB-months", access * months, prices.object_gib_month)
    slow, fast, composite = alarm_metrics(settings)
    boards = max(0, 1 + (0 if settings.runbooks else len(pages(settings))) - FREE_DASHBOARDS)
    for what, count, month in (
        ("custom metrics", custom_metrics(settings), prices.metric_month),
        ("metrics in alarms", slow * settings.cells, prices.alarm_metric_month),
        ("metrics in alarms of 10 s", fast * settings.cells, prices.fast_alarm_metric_month),
        ("composite alarms", composite * settings.cells, prices.composite_alarm_month),
        (f"dashboards beyond {FREE_DASHBOARDS}", boards, prices.dashboard_month),
    ):
        yield Item(what, count, month / HOURS_A_MONTH)


def bill(
    settings: FleetSettings,
    prices: Prices,
    load: str,
    multiplier: float | None,
    running: Mapping[str, float] | None = None,
) -> Bill:
    """Return the bill at `multiplier` times the ordinary peak, at that load's floor.

    None stands for the average over an ordinary week. `running` are the instances of all cells by type, where somebody
    knows them better than the floor: a rehearsal has counted them.
    """
    network, cells, zones = settings.network, settings.cells, len(settings.availability_zones)
    share = mean_share(settings) if multiplier is None else multiplier
    units_by_bytes = sizing.balancer_units(settings, share)
    units = max(sizing.reserved_units(settings, share), units_by_bytes)
    fronts = cells if settings.access.privatelink else 0
    running = running or {group.instance_type: _running(settings, group, multiplier) for group in settings.groups}
    items = [
        item
        for group in settings.groups
        for item in _group_items(settings, prices, group, running[group.instance_type], multiplier)
    ]
    items += [
        Item("load balancers", cells, prices.balancer_hour),
        Item("load balancer capacity units", units * cells, prices.balancer_unit_hour),
        # All callers are taken to come by PrivateLink where a fleet offers it; a unit is a gigabyte an hour here too.
        Item("network load balancers, for PrivateLink", fronts, prices.network_balancer_hour),
        Item("network load balancer capacity units", units_by_bytes * fronts, prices.network_balancer_unit_hour),
        *_beside_hosts(settings, prices),
        Item("interface endpoints, a zone each", len(settings.interface_services) * zones, prices.endpoint_zone_hour),
        # The image build always has one; the cells' network has one only on request.
        Item("NAT gateways", 1 + zones * network.nat, prices.nat_hour),
    ]
    minutely = settings.traffic.plans_per_minute * share
    items += _watching(settings, prices, sum(running.values()), 60 * minutely)
    return Bill(load, minutely, tuple(items))


def bills(settings: FleetSettings, prices: Prices) -> tuple[Bill, ...]:
    loads: list[tuple[str, float | None]] = [("ordinary week, on average", None)]
    loads += [(event.name, event.multiplier) for event in settings.events]
    return tuple(bill(settings, prices, name, multiplier) for name, multiplier in loads)


ROOM = 1.2  # prices are list prices, and traffic is a forecast
DAYS_A_MONTH = 30


@dataclass(frozen=True)
class Spending:
    """The limits of a fleet's bill, in the currency of its prices."""

    month: int  # told when it is spent, and as soon as it is forecast
    surprise: int  # told when so much more than is usual was spent


def spending(settings: FleetSettings, prices: Prices | None = None) -> Spending:
    """Return the fleet file's budget, or that of an ordinary month with its dearest event and a fifth above.

    A surprise is half an ordinary day: an event is none, because anomalies are judged over days.
    """
    ordinary, *events = bills(settings, prices or Prices.from_json())
    hours = [(event.end - event.start).total_seconds() / 3600 for event in settings.events]
    more = (max(0.0, bill.hourly - ordinary.hourly) * length for bill, length in zip(events, hours, strict=True))
    expected = ordinary.hourly * HOURS_A_MONTH + max(more, default=0.0)
    month = settings.monthly_budget or ROOM * expected
    return Spending(round(month), max(1, round(ordinary.hourly * HOURS_A_MONTH / DAYS_A_MONTH / 2)))
