"""The on-call dashboards: alarms and service level of the whole fleet, and one board for each cell."""

from __future__ import annotations

from collections.abc import Callable, Sequence

from aws_cdk import ArnFormat, Stack
from aws_cdk import aws_cloudwatch as cloudwatch
from aws_cdk import aws_ssm as ssm
from constructs import Construct

from infra.constructs.cell_graphs import (
    BALANCER,
    RUNNING,
    burn_rate,
    cell_graphs,
    detail_graphs,
    dollars,
    latency_of,
    with_one_group,
)
from infra.constructs.front_graphs import caller_widget, front_graphs, zone_graphs
from infra.constructs.graphs import HEIGHT, WIDTH, Graph, Json, place, rows, tall
from infra.constructs.names import CellNames
from infra.constructs.shopper_graphs import shopper_graphs
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
    WORK,
    alarm_name,
    cell_alarms,
    percent,
)
from infra.fleet.dashboard_lines import shortened
from infra.fleet.parts import Group
from infra.fleet.runbooks import page_name, pages
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
                "".join(word.capitalize() for word in name.split("-")),
                dashboard_name=page_name(settings, name),
                dashboard_body=Stack.of(self).to_json_string(
                    {"widgets": [place("text", {"markdown": text}, 0, 0, WIDTH, 40)]}
                ),
            )


def dashboards(
    settings: FleetSettings, cells: Sequence[CellNames], arn: Callable[[str], str], certificate: str
) -> dict[str, Json]:
    """Return CloudWatch's dashboard bodies by name; `arn` returns an alarm's ARN from its name."""
    name = f"peakplan-{settings.name}"
    boards = {name: _fleet_board(settings, cells, arn, certificate)}
    return boards | {f"{name}-{names.cell}": _cell_board(settings, names, arn) for names in cells}


def _board(widgets: list[Json]) -> Json:
    return {"start": "-PT3H", "periodOverride": "inherit", "widgets": widgets}


def _fleet_board(
    settings: FleetSettings, cells: Sequence[CellNames], arn: Callable[[str], str], certificate: str
) -> Json:
    widgets = [_header(settings), _alarms(settings, cells, arn)]
    graphs = [*_fleet_graphs(settings, cells), *shopper_graphs(settings, cells), *_plan_graphs(settings, cells)]
    graphs += front_graphs(settings, cells, certificate)
    widgets += rows(graphs, y=5)
    widgets.append(caller_widget(settings, cells, 0, 5 + tall(graphs), WIDTH, HEIGHT))
    return _board(widgets)


def _cell_board(settings: FleetSettings, names: CellNames, arn: Callable[[str], str]) -> Json:
    text = (
        f"## {names.cell} of {settings.name}\nOut of service: `peakplan fleet cell out {settings.name} {names.cell}`. "
        f"The other cells: the dashboard `peakplan-{settings.name}`."
    )
    widgets = [place("text", {"markdown": text}, 0, 0, WIDTH, 2), _alarms(settings, [names], arn)]
    graphs = [*cell_graphs(settings, names), *detail_graphs(settings, names), *zone_graphs(settings, names)]
    widgets += rows(graphs, y=5)
    widgets.append(caller_widget(settings, [names], 0, 5 + tall(graphs), WIDTH, HEIGHT))
    return _board(widgets)


def _header(settings: FleetSettings) -> Json:
    goal, limit = f"{100 * settings.slo.goal:g}%", settings.slo.p99_ms
    text = (
        f"## Peakplan {settings.name}: {goal} of plans within {limit} ms\n"
        f"{100 * settings.slo.model_goal:g}% planned by the model. Something red? Its notification links its runbook. "
        f"**One cell** hurt: `peakplan fleet cell out {settings.name} cell-n`. **All** hurt: what changed last?"
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
    return {"inf2": "Inf/OnDemand", "trn1": "Trn/OnDemand", "trn2": "Trn/OnDemand"}.get(group.chip, "Standard/OnDemand")
