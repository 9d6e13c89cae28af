"""The graphs of one cell on the dashboard: a row that shows what is wrong, and a row of details for runbooks."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace

from infra.constructs.graphs import Graph
from infra.constructs.names import CellNames
from infra.fleet.alarm_kinds import Reading
from infra.fleet.alarms import (
    ALL,
    ANSWERS,
    BAD_ONES,
    BY_MODEL,
    CHECKS,
    FAST,
    NOT_BY_MODEL,
    PAST_CAPACITY,
    TIMELY,
    WORK,
    percent,
)
from infra.fleet.cost import Prices
from infra.fleet.metrics import metrics
from infra.fleet.settings import FleetSettings
from infra.fleet.surroundings_alarms import reserves_for_events, standing_in

BALANCER, GROUP = ("LoadBalancer",), ("AutoScalingGroupName",)
RUNNING = {"running": Reading("GroupInServiceInstances", GROUP)}
_NEURON_ERRORS = (
    ("hardware", "execution_errors_total", "error_type", ("hardware",)),
    ("runtime", "execution_errors_total", "error_type", ("generic", "numerical", "model", "runtime")),
    ("lost", "execution_status_total", "status_type", ("timed_out", "failed_to_queue")),
    ("memory", "hardware_ecc_events_total", "event_type", ("mem_ecc_uncorrected", "sram_ecc_uncorrected")),
)


def cell_graphs(settings: FleetSettings, names: CellNames) -> list[Graph]:
    def graph(title: str, period: int = 60) -> Graph:
        return Graph(f"{names.cell} {title}", fleet=settings.name, region=settings.region, period=period)

    cell = [names]
    goal = graph("SLO: good % | burn (right)", 300)
    goal.curve("good %", f"100 - {percent(BAD_ONES, ALL, 1)}", ANSWERS, cell)
    goal.curve("burn", burn_rate(settings), ANSWERS, cell, right=True)
    by_model = f"{percent(NOT_BY_MODEL, ALL, 1)} / {100 * BY_MODEL.budget(settings):.6g}"
    goal.curve("burn, by the model", by_model, BY_MODEL.readings, cell, right=True)
    # The axis ends at ten times the budget: any greater value is bad enough to be visible elsewhere.
    goal.between(max(0, round(100 - 1000 * (1 - settings.slo.goal), 3)), 100)
    goal.line("goal", 100 * settings.slo.goal).line("fast burn", round(FAST.rate, 2), right=True)
    latency = graph("latency, s")
    for statistic in ("p50", "p90", "p99"):
        latency.curve(statistic, "time", {"time": latency_of(statistic)}, cell)
    latency.line("SLO", settings.slo.p99_ms / 1000)
    traffic = graph("requests a minute | % (right)")
    traffic.curve("requests", "asked", {"asked": Reading("RequestCount", BALANCER)}, cell)
    for label, part in (("degraded %", "Degraded"), ("shed %", "Shed"), ("cache hits %", "CacheHits")):
        readings = {"part": Reading(part), "all": Reading("Requests")}
        traffic.curve(label, percent("part", "all", 1), readings, cell, right=True)
    for label, part in (("choices that differ %", "differing"), ("differ as expected %", "expected")):
        readings = {name: CHECKS[name] for name in (part, "checks")}
        traffic.curve(label, percent(part, "checks", 1), readings, cell, right=True)
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
        capacity.curve(label, "count", {"count": Reading(metric, GROUP)}, cell)
    for group in settings.groups:
        if group.stands_in:
            capacity.curve("standing in", *standing_in(settings, group), cell)
    for number, group in enumerate(settings.groups):
        price = dollars(group.instance_type)
        capacity.curve(f"$ {group.chip}", price, RUNNING, [with_one_group(names, number)], right=True)
    return [work, capacity, _hosts_graph(settings, cell, graph)]


def _hosts_graph(settings: FleetSettings, cell: list[CellNames], graph: Callable[[str], Graph]) -> Graph:
    """Return the graph of the hosts' own metrics."""
    if all(group.engine == "torch" for group in settings.groups):
        busy = {"busy": Reading("CPUUtilization", GROUP, none_is_zero=False)}
        return graph("processors busy %").curve("busy %", "busy", busy, cell)
    neuron = graph("Neuron busy % | errors (right)")
    busy = {"busy": Reading("neuroncore_utilization_ratio", none_is_zero=False)}
    neuron.curve("busy %", "100 * busy", busy, cell)
    for label, metric, dimension, values in _NEURON_ERRORS:
        errors = {value: Reading(metric, ("Fleet", "Cell", dimension), ((dimension, value),)) for value in values}
        neuron.curve(label, " + ".join(errors), errors, cell, right=True)
    return neuron


def detail_graphs(settings: FleetSettings, names: CellNames) -> list[Graph]:
    """Return the graphs that a runbook refers to once the cell is known."""

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
    answers = graph("answers by source | p99 ms of rules (right)")
    for source in metrics().answer_sources:
        counted(answers, source, "Answered", Source=source)
    counted(answers, "rules p99", "Latency", right=True, Source="fallback")
    gateway = graph("admitted, shed, cache | shared cache % (right)")
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
    _surroundings(settings, names, gateway, replicas)
    decoding = graph("tokens a step | forced %, prefix hits %, device (right)")
    counted(decoding, "tokens a step", "TokensPerStep")
    counted(decoding, "forced %", "ForcedShare", right=True)
    kept = {name: Reading(f"PrefixCache{name.capitalize()}", none_is_zero=False) for name in ("hits", "queries")}
    decoding.curve("prefix hits %", "100 * hits / queries", kept, [names], right=True)
    if any(group.engine == "neuron" for group in settings.groups):
        counted(decoding, "forward p99 s", "execution_latency_seconds", percentile="p99")
        memory = Reading(
            "neuron_runtime_memory_used_bytes",
            ("Fleet", "Cell", "memory_location"),
            (("memory_location", "neuron_device"),),
            none_is_zero=False,
        )
        decoding.curve("device GiB", "bytes / 1073741824", {"bytes": memory}, [names], right=True)
    return [reasons, model, answers, gateway, replicas, decoding, *_draft_graphs(settings, names)]


def _draft_graphs(settings: FleetSettings, names: CellNames) -> list[Graph]:
    """Return how well drafts are guessed, as vLLM tells it: the acceptance rate, the mean length, and by position."""
    if not settings.model.heads:
        return []
    drafts = Reading("SpecDecodeNumDrafts", none_is_zero=False)
    drafted = Reading("SpecDecodeNumDraftTokens", none_is_zero=False)
    accepted = Reading("SpecDecodeNumAcceptedTokens", none_is_zero=False)

    def graph(title: str) -> Graph:
        return Graph(f"{names.cell} {title}", fleet=settings.name, region=settings.region)

    share = graph("drafted tokens accepted, % | tokens a draft yields (right)")
    share.curve("accepted %", "100 * accepted / drafted", {"accepted": accepted, "drafted": drafted}, [names])
    yielded = {"accepted": accepted, "drafts": drafts}
    share.curve("tokens a draft", "1 + accepted / drafts", yielded, [names], right=True)
    by_position = graph("drafts accepted by position, %")
    for position in range(settings.model.heads):
        at = (("Position", str(position)),)
        here = Reading("SpecDecodeNumAcceptedTokensPerPos", ("Fleet", "Cell", "Position"), at)
        by_position.curve(str(position), "100 * here / drafts", {"here": here, "drafts": drafts}, [names])
    counts = graph("drafts, tokens drafted, accepted, a minute")
    for label, reading in (("drafts", drafts), ("drafted", drafted), ("accepted", accepted)):
        counts.curve(label, "it", {"it": reading}, [names])
    return [share, by_position, counts]


def _surroundings(settings: FleetSettings, names: CellNames, gateway: Graph, replicas: Graph) -> None:
    """Draw what hosts stand beside: the shared cache, PrivateLink's load balancer, and what events reserve."""
    if settings.shared_cache.enabled:
        down = {"down": Reading("SharedCacheDown", none_is_zero=False)}
        gateway.curve("hosts without shared cache %", "100 * down", down, [names], right=True)
        nodes = settings.shared_cache.nodes
        for label, metric in (("memory %", "DatabaseMemoryUsagePercentage"), ("engine %", "EngineCPUUtilization")):
            used = {"used": Reading(metric, ("CacheClusterId",), none_is_zero=False)}
            gateway.curve(f"shared cache {label}", f"used / {nodes}", used, [names], right=True)
    if settings.access.privatelink:
        healthy = {"healthy": Reading("FrontHealthyHostCount", ("TargetGroup", "LoadBalancer"), none_is_zero=False)}
        replicas.curve("PrivateLink sees the cell", "healthy", healthy, [names], right=True)
    if reserves_for_events(settings):
        refused = {"refused": Reading("TargetErrorCount", ("ScheduleGroup",))}
        replicas.curve("reservations refused", "refused", refused, [names], right=True)


def latency_of(statistic: str) -> Reading:
    return Reading("TargetResponseTime", BALANCER, none_is_zero=False, asked=statistic)


def burn_rate(settings: FleetSettings) -> str:
    """Return metric math for the burn rate: the share of bad answers over the share that the goal allows."""
    return f"{percent(BAD_ONES, ALL, 1)} / {100 * TIMELY.budget(settings):.6g}"


def with_one_group(names: CellNames, number: int) -> CellNames:
    """Return the cell's names with only that one group."""
    group = names.auto_scaling_groups[number]
    return replace(names, auto_scaling_groups=(group,))


def dollars(instance_type: str) -> str:
    """Return metric math for the running instances' price in US dollars an hour, from prices.json."""
    return f"{Prices.from_json().instance_hour[instance_type]:g} * running"
