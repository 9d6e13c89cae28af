"""The dashboard for whoever is on call: what is red, how shoppers fare over the whole fleet, then one row a cell."""

from __future__ import annotations

from collections.abc import Callable, Sequence

from aws_cdk import ArnFormat, Stack
from aws_cdk import aws_cloudwatch as cloudwatch
from constructs import Construct

from infra.constructs.graphs import WIDTH, Graph, Json, place, row
from infra.constructs.names import CellNames
from infra.fleet.alarm_kinds import Reading, Severity
from infra.fleet.alarms import (
    ALL,
    ANSWERS,
    BAD_ONES,
    BY_MODEL,
    FAST,
    NOT_BY_MODEL,
    PAST_CAPACITY,
    SLOW,
    TIMELY,
    WORK,
    alarm_name,
    cell_alarms,
    percent,
)
from infra.fleet.cost import Prices
from infra.fleet.metrics import metrics
from infra.fleet.parts import Group
from infra.fleet.runbooks import page_name, pages
from infra.fleet.settings import FleetSettings
from infra.fleet.sizing import target_utilisation

MOST_ALARMS_A_WIDGET = 100  # CloudWatch user guide, quotas
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


class RunbookPages(Construct):
    """`peakplan-<fleet>-runbook-<name>` in CloudWatch for each runbook, so that a notification's link opens it."""

    def __init__(self, scope: Construct, id: str, *, settings: FleetSettings) -> None:
        super().__init__(scope, id)
        if settings.runbooks:
            return  # the team reads them elsewhere
        for name, text in pages(settings).items():
            cloudwatch.CfnDashboard(
                self,
                "".join(word.capitalize() for word in name.split("-")),
                dashboard_name=page_name(settings, name),
                dashboard_body=Stack.of(self).to_json_string(
                    {"widgets": [place("text", {"markdown": text}, 0, 0, WIDTH, 40)]}
                ),
            )


def dashboard_body(settings: FleetSettings, cells: Sequence[CellNames], arn: Callable[[str], str]) -> Json:
    """CloudWatch's dashboard body; `arn` gives an alarm's ARN from its name."""
    widgets = [_header(settings), _alarms(settings, cells, arn)]
    widgets += row(_fleet_graphs(settings, cells), y=5, height=6)
    widgets += row(_plan_graphs(settings, cells), y=11, height=6)
    for number, names in enumerate(cells):
        top = 17 + 13 * number
        title = {"markdown": f"### {names.cell}: the goals, latency, traffic, work, capacity, hosts; then the details"}
        widgets.append(place("text", title, 0, top, WIDTH, 1))
        widgets += row(_cell_graphs(settings, names), y=top + 1, height=6)
        widgets += row(_detail_graphs(settings, names), y=top + 7, height=6)
    return {"start": "-PT3H", "periodOverride": "inherit", "widgets": widgets}


def _header(settings: FleetSettings) -> Json:
    goal, limit = f"{100 * settings.slo.goal:g}%", settings.slo.p99_ms
    text = (
        f"## Peakplan {settings.name}: {goal} of plans within {limit} ms\n"
        f"{100 * settings.slo.model_goal:g}% planned by the model. Something red? Its notification links its runbook. "
        f"**One cell** hurt: `make cell-out FLEET={settings.name} CELL=cell-n`. **All** hurt: what changed last?"
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
    attained.curve("good", f"100 - {percent(BAD_ONES, ALL, 1)}", ANSWERS, cells)
    burn = graph("Budget burn by cell, last hour", period=FAST.long_seconds)
    latency, traffic = graph("p99 by cell, s"), graph("Requests by cell, a minute")
    capacity = graph("Instances by cell")
    for names in cells:
        burn.curve(names.cell, _burn_rate(settings), ANSWERS, [names])
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


def _plan_graphs(settings: FleetSettings, cells: Sequence[CellNames]) -> list[Graph]:
    """Who plans, what it takes, which release it is, and how far the account's quotas reach."""

    def graph(title: str, *, number: bool = False, period: int = 60) -> Graph:
        return Graph(title, fleet=settings.name, region=settings.region, period=period, number=number)

    by_model = graph("Planned by the model, % of the time shown", number=True)
    readings = BY_MODEL.readings
    by_model.curve("by the model", f"100 - {percent(NOT_BY_MODEL, ALL, 1)}", readings, cells)
    rules = graph("Plans without the model, %: fleet and cells")
    rules.curve("fleet", percent(NOT_BY_MODEL, ALL, 1), readings, cells)
    work = graph("Offered work, times what replicas can do")
    for names in cells:
        rules.curve(names.cell, percent(NOT_BY_MODEL, ALL, 1), readings, [names])
        work.curve(names.cell, "offered / replica_seconds", WORK, [names])
    rules.line("fast burn", FAST.bad_percent(BY_MODEL.budget(settings)))
    work.line("target", round(min(target_utilisation(settings, group) for group in settings.groups), 2))
    work.line("page", PAST_CAPACITY)
    releases = graph("Requests and bad answers by release", period=300)
    releases.search("Requests", "Release", "Sum").search("SloBad", "Release", "Sum")
    releases.search("Degraded", "Release", "Sum").search("ModelLatency", "Release", "p99")
    intents = graph("Plans by intent", period=300).search("Intents", "Intent", "Sum")
    quota = graph("vCPU quota in use, %", period=300)
    for kind in dict.fromkeys(_quota_class(group) for group in settings.groups):
        dimensions = ("Service", "Type", "Resource", "Class")
        fixed = tuple(zip(dimensions, ("EC2", "Resource", "vCPU", kind), strict=True))
        used = {"used": Reading("ResourceCount", dimensions, fixed, none_is_zero=False)}
        quota.curve(kind, "100 * used / SERVICE_QUOTA(used)", used, cells[:1])
    quota.line("all", 100)
    return [by_model, rules, work, releases, intents, quota]


def _quota_class(group: Group) -> str:
    return {"inf2": "Inf/OnDemand", "trn1": "Trn/OnDemand"}.get(group.chip, "Standard/OnDemand")


def _cell_graphs(settings: FleetSettings, names: CellNames) -> list[Graph]:
    def graph(title: str, period: int = 60) -> Graph:
        return Graph(f"{names.cell} {title}", fleet=settings.name, region=settings.region, period=period)

    cell = [names]
    goal = graph("SLO: good % | burn (right)", 300)
    goal.curve("good %", f"100 - {percent(BAD_ONES, ALL, 1)}", ANSWERS, cell)
    goal.curve("burn", _burn_rate(settings), ANSWERS, cell, right=True)
    by_model = f"{percent(NOT_BY_MODEL, ALL, 1)} / {100 * BY_MODEL.budget(settings):.6g}"
    goal.curve("burn, by the model", by_model, BY_MODEL.readings, cell, right=True)
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
    work = graph("offered work | outstanding a replica (right)")
    work.curve("offered", "offered / replica_seconds", WORK, cell)
    waiting = {"work": Reading("OutstandingPerReplica", none_is_zero=False)}
    work.curve("outstanding", "work", waiting, cell, right=True)
    work.line("page", PAST_CAPACITY)
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
    return [work, capacity, _hosts_graph(settings, cell, graph)]


def _hosts_graph(settings: FleetSettings, cell: list[CellNames], graph: Callable[[str], Graph]) -> Graph:
    """What the machines say of themselves."""
    if all(group.engine == "torch" for group in settings.groups):
        busy = {"busy": Reading("CPUUtilization", _GROUP, none_is_zero=False)}
        return graph("processors busy %").curve("busy %", "busy", busy, cell)
    neuron = graph("Neuron busy % | errors (right)")
    busy = {"busy": Reading("neuroncore_utilization_ratio", none_is_zero=False)}
    neuron.curve("busy %", "100 * busy", busy, cell)
    for label, metric, dimension, values in _NEURON_ERRORS:
        errors = {value: Reading(metric, ("Fleet", "Cell", dimension), ((dimension, value),)) for value in values}
        neuron.curve(label, " + ".join(errors), errors, cell, right=True)
    return neuron


def _detail_graphs(settings: FleetSettings, names: CellNames) -> list[Graph]:
    """What a runbook sends one to look at, once it is known which cell."""

    def graph(title: str) -> Graph:
        return Graph(f"{names.cell} {title}", fleet=settings.name, region=settings.region)

    def counted(widget: Graph, label: str, metric: str, *, right: bool = False, **fixed: str) -> None:
        known = metrics().metric(metric)
        dimensions = next(each for each in known.dimensions if set(fixed) <= set(each))
        reading = Reading(metric, dimensions, tuple(fixed.items()), none_is_zero=False)
        widget.curve(label, "it", {"it": reading}, [names], right=right)

    reasons = graph("plans by rule, by reason")
    for reason in metrics().metric("Fallbacks").values["Reason"]:
        counted(reasons, reason, "Fallbacks", Reason=reason)
    model = graph("plans by the model: p99 and queue, ms")
    counted(model, "p99", "ModelLatency")
    counted(model, "queue p99", "QueueTime")
    answers = graph("answers by rung | p99 ms of rules (right)")
    for rung in metrics().rungs:
        counted(answers, rung, "Answered", Rung=rung)
    counted(answers, "rules p99", "Latency", right=True, Rung="fallback")
    gateway = graph("admitted, shed, cache")
    for label, metric in (
        ("admitted", "Admitted"),
        ("shed", "Shed"),
        ("hits", "CacheHits"),
        ("misses", "CacheMisses"),
        ("5xx of hosts", "HTTPCode_Target_5XX_Count"),
        ("5xx of the balancer", "HTTPCode_ELB_5XX_Count"),
    ):
        counted(gateway, label, metric)
    replicas = graph("replicas, healthy hosts | restarts (right)")
    counted(replicas, "replicas", "ReplicasInService")
    counted(replicas, "healthy", "HealthyHostCount")
    counted(replicas, "unhealthy", "UnHealthyHostCount")
    counted(replicas, "restarts", "ReplicaRestarts", right=True)
    counted(replicas, "deploying", "DeployInProgress", right=True)
    decoding = graph("tokens a step | forced %, device (right)")
    counted(decoding, "tokens a step", "TokensPerStep")
    counted(decoding, "forced %", "ForcedShare", right=True)
    if any(group.engine == "neuron" for group in settings.groups):
        counted(decoding, "forward p99 s", "execution_latency_seconds", percentile="p99")
        memory = Reading(
            "neuron_runtime_memory_used_bytes",
            ("Fleet", "Cell", "memory_location"),
            (("memory_location", "neuron_device"),),
            none_is_zero=False,
        )
        decoding.curve("device GiB", "bytes / 1073741824", {"bytes": memory}, [names], right=True)
    return [reasons, model, answers, gateway, replicas, decoding]


def _latency(statistic: str) -> Reading:
    return Reading("TargetResponseTime", _BALANCER, none_is_zero=False, asked=statistic)


def _burn_rate(settings: FleetSettings) -> str:
    """How many times faster than the goal allows: the share of bad answers over the share that the goal leaves."""
    return f"{percent(BAD_ONES, ALL, 1)} / {100 * TIMELY.budget(settings):.6g}"


def _only(names: CellNames, number: int) -> CellNames:
    """The cell as if it had that one group."""
    group = names.auto_scaling_groups[number]
    return CellNames(names.cell, names.load_balancer, names.target_groups, (group,))


def _cost(instance_type: str) -> str:
    """Dollars an hour of running instances, from prices.json."""
    return f"{Prices.from_json().instance_hour[instance_type]:g} * running"
