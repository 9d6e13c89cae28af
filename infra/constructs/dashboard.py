"""The dashboard for whoever is on call: what is red, how shoppers fare over the whole fleet, then one row a cell."""

from __future__ import annotations

from collections.abc import Callable, Sequence

from aws_cdk import ArnFormat, Stack
from aws_cdk import aws_cloudwatch as cloudwatch
from constructs import Construct

from infra.constructs.graphs import WIDTH, Graph, Json, place, row
from infra.constructs.names import CellNames
from infra.fleet.alarm_kinds import Reading, Severity
from infra.fleet.alarms import alarm_name, cell_alarms, saturated_outstanding
from infra.fleet.burn import ALL, BAD, BAD_ONES, FAST, GOOD, SLOW, percent
from infra.fleet.cost import Prices
from infra.fleet.settings import FleetSettings

MOST_ALARMS_A_WIDGET = 100  # CloudWatch user guide, quotas
_ANSWERS = {"good": GOOD, **BAD}
_BALANCER, _GROUP = ("LoadBalancer",), ("AutoScalingGroupName",)
_RUNNING = {"running": Reading("GroupInServiceInstances", _GROUP)}
_NEURON_ERRORS = (
    ("hardware", "execution_errors_total", "error_type", ("hardware",)),
    ("runtime", "execution_errors_total", "error_type", ("generic", "numerical", "model", "runtime")),
    ("lost", "execution_status_total", "status_type", ("timed_out", "failed_to_queue")),
    ("memory", "hardware_ecc_events_total", "event_type", ("mem_ecc_uncorrected", "sram_ecc_uncorrected")),
)


class FleetDashboard(Construct):
    """`peakplan-<fleet>` in CloudWatch."""

    def __init__(self, scope: Construct, id: str, *, settings: FleetSettings, cells: Sequence[CellNames]) -> None:
        super().__init__(scope, id)
        stack = Stack.of(self)

        def arn(name: str) -> str:
            return stack.format_arn(
                service="cloudwatch",
                resource="alarm",
                resource_name=name,
                arn_format=ArnFormat.COLON_RESOURCE_NAME,
            )

        body = stack.to_json_string(dashboard_body(settings, cells, arn))
        cloudwatch.CfnDashboard(self, "Board", dashboard_name=f"peakplan-{settings.name}", dashboard_body=body)


def dashboard_body(settings: FleetSettings, cells: Sequence[CellNames], arn: Callable[[str], str]) -> Json:
    """CloudWatch's dashboard body; `arn` gives an alarm's ARN from its name."""
    widgets = [_header(settings), _alarms(settings, cells, arn)]
    widgets += row(_fleet_graphs(settings, cells), y=5, height=6)
    for number, names in enumerate(cells):
        top = 11 + 7 * number
        title = {"markdown": f"### {names.cell}: the goal, latency, traffic, work, capacity, Neuron"}
        widgets.append(place("text", title, 0, top, WIDTH, 1))
        widgets += row(_cell_graphs(settings, names), y=top + 1, height=6)
    return {"start": "-PT3H", "periodOverride": "inherit", "widgets": widgets}


def _header(settings: FleetSettings) -> Json:
    goal, limit = f"{100 * settings.slo.goal:g}%", settings.slo.p99_ms
    text = (
        f"## Peakplan {settings.name}: {goal} of plans within {limit} ms\n"
        "Something red? Its notification names the runbook: `docs/runbooks/<alarm>.md`. "
        "**One cell** hurt: move its traffic away (runbook *fast-burn*). **All** hurt: what changed last?"
    )
    return place("text", {"markdown": text}, 0, 0, WIDTH, 2)


def _alarms(settings: FleetSettings, cells: Sequence[CellNames], arn: Callable[[str], str]) -> Json:
    told = [alarm.key for alarm in cell_alarms(settings) if alarm.severity is not Severity.PART]
    if len(told) * len(cells) > MOST_ALARMS_A_WIDGET:
        told = ["page"]
    names = [alarm_name(settings.name, cell.cell, key) for cell in cells for key in told]
    properties = {
        "title": "Alarms",
        "alarms": [arn(name) for name in names[:MOST_ALARMS_A_WIDGET]],
        "sortBy": "stateUpdatedTimestamp",
        "states": ["ALARM", "INSUFFICIENT_DATA"],
    }
    return place("alarm", properties, 0, 2, WIDTH, 3)


def _fleet_graphs(settings: FleetSettings, cells: Sequence[CellNames]) -> list[Graph]:
    def graph(title: str, *, number: bool = False, period: int = 60) -> Graph:
        return Graph(title, fleet=settings.name, region=settings.region, period=period, number=number)

    attained = graph("Good answers, % of the time shown", number=True)
    attained.curve("good", f"100 - {percent(BAD_ONES, ALL, 1)}", _ANSWERS, cells)
    burn = graph("Budget burn by cell, last hour", period=FAST.long_seconds)
    latency, traffic = graph("p99 by cell, s"), graph("Requests by cell, a minute")
    capacity = graph("Instances by cell")
    for names in cells:
        burn.curve(names.cell, _burn_rate(settings), _ANSWERS, [names])
        latency.curve(names.cell, "p99", {"p99": _latency("p99")}, [names])
        traffic.curve(names.cell, "asked", {"asked": Reading("RequestCount", _BALANCER)}, [names])
        capacity.curve(names.cell, "running", _RUNNING, [names])
    burn.line("fast", round(FAST.rate, 2)).line("slow", round(SLOW.rate, 2))
    latency.line("SLO", settings.slo.p99_ms / 1000)
    for event in settings.events:
        traffic.span(event.name, event.start.isoformat(), event.end.isoformat())
    cost = graph("Instances, $ an hour")
    for number, group in enumerate(settings.groups):
        in_service = [_only(names, number) for names in cells]
        cost.curve(group.instance_type, _cost(group.instance_type), _RUNNING, in_service)
    return [attained, burn, latency, traffic, capacity, cost]


def _cell_graphs(settings: FleetSettings, names: CellNames) -> list[Graph]:
    def graph(title: str, period: int = 60) -> Graph:
        return Graph(f"{names.cell} {title}", fleet=settings.name, region=settings.region, period=period)

    cell = [names]
    goal = graph("SLO: good % | burn (right)", 300)
    goal.curve("good %", f"100 - {percent(BAD_ONES, ALL, 1)}", _ANSWERS, cell)
    goal.curve("burn", _burn_rate(settings), _ANSWERS, cell, right=True)
    # Ten times the budget fills the axis: what is worse is bad enough to read elsewhere.
    goal.between(max(0, round(100 - 1000 * (1 - settings.slo.goal), 3)), 100)
    goal.line("goal", 100 * settings.slo.goal).line("fast burn", round(FAST.rate, 2), right=True)
    latency = graph("latency, s")
    for statistic in ("p50", "p90", "p99"):
        latency.curve(statistic, "time", {"time": _latency(statistic)}, cell)
    latency.line("SLO", settings.slo.p99_ms / 1000)
    traffic = graph("requests a minute | % (right)")
    traffic.curve("requests", "asked", {"asked": Reading("RequestCount", _BALANCER)}, cell)
    for label, part in (("degraded %", "Degraded"), ("shed %", "Shed"), ("cache hits %", "CacheHits")):
        readings = {"part": Reading(part), "all": Reading("Requests")}
        traffic.curve(label, percent("part", "all", 1), readings, cell, right=True)
    return [goal, latency, traffic, *_machine_graphs(settings, names, graph)]


def _machine_graphs(settings: FleetSettings, names: CellNames, graph: Callable[[str], Graph]) -> list[Graph]:
    cell = [names]
    work = graph("outstanding a replica | tokens a step (right)")
    work.curve("outstanding", "work", {"work": Reading("OutstandingPerReplica", none_is_zero=False)}, cell)
    work.curve("tokens a step", "step", {"step": Reading("TokensPerStep", none_is_zero=False)}, cell, right=True)
    work.line("saturated", saturated_outstanding(settings))
    capacity = graph("instances | $ an hour (right)")
    for label, metric in (
        ("in service", "GroupInServiceInstances"),
        ("wanted", "GroupDesiredCapacity"),
        ("most", "GroupMaxSize"),
        ("warm", "WarmPoolWarmedCapacity"),
        ("warm wanted", "WarmPoolDesiredCapacity"),
    ):
        capacity.curve(label, "count", {"count": Reading(metric, _GROUP)}, cell)
    for number, group in enumerate(settings.groups):
        price = _cost(group.instance_type)
        capacity.curve(f"$ {group.chip}", price, _RUNNING, [_only(names, number)], right=True)
    neuron = graph("Neuron busy % | errors (right)")
    busy = {"busy": Reading("neuroncore_utilization_ratio", none_is_zero=False)}
    neuron.curve("busy %", "100 * busy", busy, cell)
    for label, metric, dimension, values in _NEURON_ERRORS:
        errors = {value: Reading(metric, ("Fleet", "Cell", dimension), ((dimension, value),)) for value in values}
        neuron.curve(label, " + ".join(errors), errors, cell, right=True)
    return [work, capacity, neuron]


def _latency(statistic: str) -> Reading:
    return Reading("TargetResponseTime", _BALANCER, none_is_zero=False, asked=statistic)


def _burn_rate(settings: FleetSettings) -> str:
    """How many times faster than the goal allows: the share of bad answers over the share that the goal leaves."""
    return f"{percent(BAD_ONES, ALL, 1)} / {100 * (1 - settings.slo.goal):.6g}"


def _only(names: CellNames, number: int) -> CellNames:
    """The cell as if it had that one group."""
    group = names.auto_scaling_groups[number]
    return CellNames(names.cell, names.load_balancer, names.target_groups, (group,))


def _cost(instance_type: str) -> str:
    """Dollars an hour of running instances, from prices.json."""
    return f"{Prices.from_json().instance_hour[instance_type]:g} * running"
