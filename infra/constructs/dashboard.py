"""The on-call dashboards: alarms, service level, shoppers and callers of the whole fleet; one board for each cell."""

from collections.abc import Callable, Sequence
from dataclasses import replace
from functools import partial

from aws_cdk import ArnFormat, Stack
from aws_cdk import aws_cloudwatch as cloudwatch
from aws_cdk import aws_ssm as ssm
from constructs import Construct

from infra.constructs.graphs import HEIGHT, WIDTH, Graph, Json, place, rows, shortened, tall
from infra.constructs.names import CellNames, camel
from infra.fleet.alarm_kinds import Reading, Severity, page_name, pages
from infra.fleet.alarms import (
    ALL,
    ANSWERS,
    BAD_ONES,
    BY_MODEL,
    CHECKS,
    EVERYWHERE,
    FAST,
    HERE,
    HOUR_SECONDS,
    NOT_BY_MODEL,
    PAST_CAPACITY,
    SLOW,
    TIMELY,
    WORK,
    alarm_name,
    cell_alarms,
    percent,
    reserves_for_events,
    standing_in,
)
from infra.fleet.cost import Prices
from infra.fleet.metrics import metrics
from infra.fleet.settings import FleetSettings
from infra.fleet.sizing import target_utilisation

MOST_ALARMS_A_WIDGET = 100  # CloudWatch user guide, quotas


class FleetDashboard(Construct):
    """The dashboards `peakplan-<fleet>` and `peakplan-<fleet>-<cell>` in CloudWatch."""

    def __init__(self, scope: Construct, id: str, *, settings: FleetSettings, cells: Sequence[CellNames]) -> None:
        super().__init__(scope, id)
        stack = Stack.of(self)

        def arn(name: str) -> str:
            return stack.format_arn(
                service="cloudwatch", resource="alarm", resource_name=name, arn_format=ArnFormat.COLON_RESOURCE_NAME
            )

        parameter = settings.load_balancer.certificate_parameter
        certificate = ssm.StringParameter.value_for_string_parameter(self, parameter)
        for name, body in dashboards(settings, cells, arn, certificate).items():
            part = name.removeprefix(f"peakplan-{settings.name}").title().replace("-", "")
            text = stack.to_json_string(shortened(body))
            cloudwatch.CfnDashboard(self, f"Board{part}", dashboard_name=name, dashboard_body=text)


class RunbookPages(Construct):
    """The dashboards `peakplan-<fleet>-runbook-<name>`, one for each runbook, that a notification's link opens."""

    def __init__(self, scope: Construct, id: str, *, settings: FleetSettings) -> None:
        super().__init__(scope, id)
        if settings.runbooks:
            return  # the team publishes its runbooks elsewhere
        for name, text in pages(settings).items():
            cloudwatch.CfnDashboard(
                self,
                camel(name),
                dashboard_name=page_name(settings, name),
                dashboard_body=Stack.of(self).to_json_string(
                    {"widgets": [place("text", {"markdown": text}, 0, 0, WIDTH, 40)]}
                ),
            )


def dashboards(
    settings: FleetSettings, cells: Sequence[CellNames], arn: Callable[[str], str], certificate: str
) -> dict[str, Json]:
    """Return CloudWatch's dashboard bodies by name; `arn` returns an alarm's ARN from its name."""
    name, slo = f"peakplan-{settings.name}", settings.slo
    whole = (
        f"## Peakplan {settings.name}: {100 * slo.goal:g}% of plans within {slo.p99_ms} ms\n"
        f"{100 * slo.model_goal:g}% planned by the model. Something red? Its notification links its runbook. "
        f"**One cell** hurt: `peakplan fleet cell out {settings.name} cell-n`. **All** hurt: what changed last?"
    )
    graphs = [*_fleet_graphs(settings, cells), *shopper_graphs(settings, cells), *_plan_graphs(settings, cells)]
    boards = {name: _board(settings, cells, whole, arn, [*graphs, *front_graphs(settings, cells, certificate)])}
    for names in cells:
        text = (
            f"## {names.cell} of {settings.name}\nOut of service: `peakplan fleet cell out {settings.name} "
            f"{names.cell}`. The other cells: the dashboard `{name}`."
        )
        graphs = [*cell_graphs(settings, names), *detail_graphs(settings, names), *zone_graphs(settings, names)]
        boards[f"{name}-{names.cell}"] = _board(settings, [names], text, arn, graphs)
    return boards


def _board(
    settings: FleetSettings, cells: Sequence[CellNames], text: str, arn: Callable[[str], str], graphs: list[Graph]
) -> Json:
    widgets = [place("text", {"markdown": text}, 0, 0, WIDTH, 2), _alarms(settings, cells, arn), *rows(graphs, y=5)]
    widgets.append(_callers(settings, cells, 5 + tall(graphs)))
    return {"start": "-PT3H", "periodOverride": "inherit", "widgets": widgets}


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
    graph = partial(Graph, settings)
    attained = graph("Good answers, % of the time shown", number=True)
    attained.curve("good", f"100 - {percent(BAD_ONES, ALL, 1)}", ANSWERS, cells)
    burn = graph("Budget burn by cell, last hour", period=FAST.long_seconds)
    latency, traffic = graph("p99 by cell, s"), graph("Requests by cell, a minute")
    capacity = graph("Instances by cell")
    for names in cells:
        burn.curve(names.cell, burn_rate(settings), ANSWERS, [names])
        latency.curve(names.cell, "p99", {"p99": latency_of("p99")}, [names])
        traffic.curve(names.cell, "asked", {"asked": Reading("RequestCount", BALANCER)}, [names])
        capacity.curve(names.cell, "running", RUNNING, [names])
    burn.line("fast", round(FAST.rate, 2)).line("slow", round(SLOW.rate, 2))
    latency.line("SLO", settings.slo.p99_ms / 1000)
    for event in settings.events:
        traffic.span(event.name, event.start.isoformat(), event.end.isoformat())
    cost = graph("Instances, $ an hour")
    for number, group in enumerate(settings.groups):
        in_service = [with_one_group(names, number) for names in cells]
        cost.curve(group.instance_type, dollars(group.instance_type), RUNNING, in_service)
    return [attained, burn, latency, traffic, capacity, cost]


def _plan_graphs(settings: FleetSettings, cells: Sequence[CellNames]) -> list[Graph]:
    """Return the graphs of planners, latency, releases, and the use of the account's quotas."""
    graph = partial(Graph, settings)
    by_model = graph("Planned by the model, % of the time shown", number=True)
    readings = BY_MODEL.readings
    by_model.curve("by the model", f"100 - {percent(NOT_BY_MODEL, ALL, 1)}", readings, cells)
    without = graph("Plans without the model, %: fleet and cells")
    without.curve("fleet", percent(NOT_BY_MODEL, ALL, 1), readings, cells)
    work = graph("Offered work, times what replicas can do")
    for names in cells:
        without.curve(names.cell, percent(NOT_BY_MODEL, ALL, 1), readings, [names])
        work.curve(names.cell, "offered / replica_seconds", WORK, [names])
    without.line("fast burn", FAST.bad_percent(BY_MODEL.budget(settings)))
    work.line("target", round(min(target_utilisation(settings, group) for group in settings.groups), 2))
    work.line("page", PAST_CAPACITY)
    releases = graph("Requests and bad answers by release", period=300)
    releases.search("Requests", "Release", "Sum").search("SloBad", "Release", "Sum")
    releases.search("Degraded", "Release", "Sum").search("ModelLatency", "Release", "p99")
    intents = graph("Plans by intent", period=300).search("Intents", "Intent", "Sum")
    quota = graph("vCPU quota in use, %", period=300)
    classes = {"inf2": "Inf/OnDemand", "trn1": "Trn/OnDemand", "trn2": "Trn/OnDemand"}
    for kind in dict.fromkeys(classes.get(group.chip, "Standard/OnDemand") for group in settings.groups):
        dimensions = ("Service", "Type", "Resource", "Class")
        fixed = tuple(zip(dimensions, ("EC2", "Resource", "vCPU", kind), strict=True))
        used = {"used": Reading("ResourceCount", dimensions, fixed, none_is_zero=False)}
        quota.curve(kind, "100 * used / SERVICE_QUOTA(used)", used, cells[:1])
    quota.line("all", 100)
    return [by_model, without, work, releases, intents, quota]


BY_ZONE = ("AvailabilityZone", "LoadBalancer")
_TARGETS_BY_ZONE = ("TargetGroup", "AvailabilityZone", "LoadBalancer")
# What the service logs of each answer; CloudWatch Logs Insights counts it when somebody looks.
_CALLERS = "filter logger = 'service.api' and ispresent(caller) | stats count(*) as asked by bin(1m), caller"


def zone_graphs(settings: FleetSettings, names: CellNames) -> list[Graph]:
    """Return a cell's traffic, latency and healthy hosts by zone: one bad zone looks like a bad cell otherwise."""
    graph = partial(Graph, settings, of=names.cell)
    asked, latency, healthy = graph("requests by zone"), graph("p99 by zone, s"), graph("healthy hosts by zone")
    for zone in settings.availability_zones:
        in_zone = (("AvailabilityZone", zone),)
        asked.curve(zone, "asked", {"asked": Reading("RequestCount", BY_ZONE, in_zone)}, [names])
        slow = Reading("TargetResponseTime", BY_ZONE, in_zone, none_is_zero=False, asked="p99")
        latency.curve(zone, "slow", {"slow": slow}, [names])
        there = Reading("HealthyHostCount", _TARGETS_BY_ZONE, in_zone, none_is_zero=False)
        healthy.curve(zone, "there", {"there": there}, [names])
    latency.line("SLO", settings.slo.p99_ms / 1000)
    return [asked, latency, healthy]


def front_graphs(settings: FleetSettings, cells: Sequence[CellNames], certificate: str) -> list[Graph]:
    """Return what callers and canaries meet: TLS, refused connections, the certificate; and metrics lost."""
    graph = partial(Graph, settings)
    refused = graph("TLS errors | rejected connections (right), by cell")
    lost = graph("Metrics lost on the way (EMF errors), by cell")
    for names in cells:
        tls = {"it": Reading("ClientTLSNegotiationErrorCount", ("LoadBalancer",))}
        refused.curve(f"{names.cell} TLS", "it", tls, [names])
        full = {"it": Reading("RejectedConnectionCount", ("LoadBalancer",))}
        refused.curve(f"{names.cell} rejected", "it", full, [names], right=True)
        group = (("LogGroupName", names.log_group),)
        errors = {
            "parsing": Reading("EMFParsingErrors", ("LogGroupName",), group),
            "validation": Reading("EMFValidationErrors", ("LogGroupName",), group),
        }
        lost.curve(names.cell, "parsing + validation", errors, [names])
    left = graph("Days until the certificate expires", number=True, period=86400)
    arn = (("CertificateArn", certificate),)
    left.curve(
        "days", "left", {"left": Reading("DaysToExpiry", ("CertificateArn",), arn, none_is_zero=False)}, cells[:1]
    )
    if not settings.synthetic_plans.enabled:
        return [refused, lost, left]
    asked = graph("Plans that canaries got, whole and in time, %, by cell")
    for names in cells:
        good = {"good": Reading("SuccessPercent", ("CanaryName",), none_is_zero=False)}
        asked.curve(names.cell, "good", good, [names])
    return [refused, lost, asked, left]


def _callers(settings: FleetSettings, cells: Sequence[CellNames], y: int) -> Json:
    """Return the requests of each caller, from the hosts' logs: a dimension for each would be a metric for each."""
    sources = " | ".join(f"SOURCE '{names.log_group}'" for names in cells)
    whose = ", ".join(names.cell for names in cells)
    properties = {
        "title": f"{whose} requests by caller, a minute",
        "region": settings.region,
        "query": f"{sources} | {_CALLERS}",
        "view": "timeSeries",
        "stacked": True,
    }
    return place("log", properties, 0, y, WIDTH, HEIGHT)


def shopper_graphs(settings: FleetSettings, cells: Sequence[CellNames]) -> list[Graph]:
    """Return three graphs: time to the first answer, clicks and purchases by cell, searches without result."""
    graph = partial(Graph, settings)
    first = graph("Shoppers: time to the first answer, ms", period=300)
    chosen = graph("Shoppers: plans with a click, % | a purchase, % (right)", period=HOUR_SECONDS)
    for names in cells:
        for statistic in ("p50", "p99"):
            time = {"time": Reading("FirstAnswerTime", none_is_zero=False, asked=statistic)}
            first.curve(f"{names.cell} {statistic}", "time", time, [names])
        for metric, word in (("AnswersClicked", "clicks"), ("AnswersBought", "purchases")):
            readings = {"part": Reading(metric, HERE), "all": Reading("AnswersShown", HERE)}
            share = percent("part", "all", 1)
            chosen.curve(f"{names.cell} {word}", share, readings, [names], right=word == "purchases")
    empty = graph("Shoppers: plans shown, events | without result, % (right)", period=300)
    shown = {"all": Reading("AnswersShown", EVERYWHERE)}
    empty.curve("shown", "all", shown, cells[:1])
    for metric in ("EventsKept", "EventsSpilled", "EventsRefused", "EventsHeldUp"):
        empty.curve(metric, "count", {"count": Reading(metric)}, cells)
    without = shown | {"part": Reading("AnswersEmpty", EVERYWHERE)}
    empty.curve("without result %", percent("part", "all", 1), without, cells[:1], right=True)
    return [first, chosen, empty]


BALANCER, GROUP = ("LoadBalancer",), ("AutoScalingGroupName",)
RUNNING = {"running": Reading("GroupInServiceInstances", GROUP)}
_NEURON_ERRORS = (
    ("hardware", "execution_errors_total", "error_type", ("hardware",)),
    ("runtime", "execution_errors_total", "error_type", ("generic", "numerical", "model", "runtime")),
    ("lost", "execution_status_total", "status_type", ("timed_out", "failed_to_queue")),
    ("memory", "hardware_ecc_events_total", "event_type", ("mem_ecc_uncorrected", "sram_ecc_uncorrected")),
)


def cell_graphs(settings: FleetSettings, names: CellNames) -> list[Graph]:
    graph = partial(Graph, settings, of=names.cell)
    cell = [names]
    goal = graph("SLO: good % | burn (right)", period=300)
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
    graph = partial(Graph, settings, of=names.cell)

    def counted(widget: Graph, label: str, metric: str, *, right: bool = False, **fixed: str) -> None:
        known = metrics().metric(metric)
        dimensions = next(each for each in known.dimensions if set(fixed) <= set(each))
        reading = Reading(metric, dimensions, tuple(fixed.items()), none_is_zero=False)
        widget.curve(label, "it", {"it": reading}, [names], right=right)

    reasons = graph("plans by the reader, by reason")
    for reason in metrics().metric("Fallbacks").values["Reason"]:
        counted(reasons, reason, "Fallbacks", Reason=reason)
    model = graph("plans by the model: p99 and queue, ms")
    counted(model, "p99", "ModelLatency")
    counted(model, "queue p99", "QueueTime")
    answers = graph("answers by source | p99 ms of the reader (right)")
    for source in metrics().answer_sources:
        counted(answers, source, "Answered", Source=source)
    counted(answers, "reader p99", "Latency", right=True, Source="fallback")
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

    graph = partial(Graph, settings, of=names.cell)
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
    group = names.auto_scaling_groups[number]
    return replace(names, auto_scaling_groups=(group,))


def dollars(instance_type: str) -> str:
    """Return metric math for the running instances' price in US dollars an hour, from prices.json."""
    return f"{Prices.from_json().instance_hour[instance_type]:g} * running"
