"""The observability stack as CloudFormation gets it, and the dashboard as CloudWatch gets it."""

import json
import re
from collections import Counter
from collections.abc import Iterator
from functools import cache
from itertools import combinations
from typing import Any

import aws_cdk
import pytest
from aws_cdk.assertions import Template
from cdk_nag import AwsSolutionsChecks

from infra.constructs.dashboard import dashboard_body
from infra.constructs.names import CellNames
from infra.fleet.alarm_kinds import Severity
from infra.fleet.alarms import cell_alarms
from infra.fleet.metrics import metrics
from infra.fleet.parts import OnCall
from infra.fleet.settings import FLEETS, FleetFileError, FleetSettings
from infra.stacks import MOST_CELLS, ObservabilityStack
from tests.infra.moto_server import MotoServer

Resource = dict[str, Any]


@cache
def fleet() -> FleetSettings:
    return FleetSettings.from_yaml(FLEETS / "prime-day.yaml")


def names() -> list[CellNames]:
    """Two cells as their stacks would name them."""
    return [
        CellNames(cell, f"app/{cell}/1", (f"targetgroup/{cell}/1",), (f"{cell}-inf2", f"{cell}-trn1"))
        for cell in ("cell-1", "cell-2")
    ]


TOLD = ("night@example.com", "desk@example.com")


@cache
def stack(page: str = TOLD[0], ticket: str = TOLD[1]) -> ObservabilityStack:
    settings = fleet().model_copy(update={"on_call": OnCall(page=page, ticket=ticket)})
    app = aws_cdk.App(analytics_reporting=False)
    return ObservabilityStack(app, "Observability", settings=settings, cells=names())


@cache
def resources(page: str = TOLD[0], ticket: str = TOLD[1]) -> dict[str, Resource]:
    found: dict[str, Resource] = Template.from_stack(stack(page, ticket)).to_json()["Resources"]
    return found


def of_type(kind: str) -> list[Resource]:
    return [found["Properties"] for found in resources().values() if found["Type"] == f"AWS::{kind}"]


def alarms() -> dict[str, Resource]:
    return {
        found["AlarmName"]: found for kind in ("Alarm", "CompositeAlarm") for found in of_type(f"CloudWatch::{kind}")
    }


def test_every_cell_has_every_alarm_under_a_name_that_says_which() -> None:
    wanted = {f"peakplan-prime-day-{cell.cell}-{alarm.key}" for cell in names() for alarm in cell_alarms(fleet())}

    assert set(alarms()) == wanted


def test_every_notification_says_what_it_means_and_links_its_runbook() -> None:
    for name, alarm in alarms().items():
        assert re.search(
            r"^\[(page|ticket|part)\] .+ Runbook: https://\S+/dashboard/peakplan-prime-day-runbook-[a-z0-9-]+$",
            alarm["AlarmDescription"],
        ), name


def test_every_runbook_that_a_notification_links_is_a_page() -> None:
    boards = {each["DashboardName"]: each["DashboardBody"] for each in of_type("CloudWatch::Dashboard")}
    linked = {alarm["AlarmDescription"].rpartition("/")[2] for alarm in alarms().values()}
    assert linked <= set(boards)
    for name in linked:
        (widget,) = json.loads(boards[name])["widgets"]
        assert "## Mitigation" in widget["properties"]["markdown"]
        assert not re.search(r"\]\([a-z-]+\.md\)", widget["properties"]["markdown"]), "links lead to pages too"


def test_a_team_that_reads_runbooks_elsewhere_is_sent_there() -> None:
    settings = fleet().model_copy(update={"runbooks": "https://wiki.example.com/planner"})
    app = aws_cdk.App(analytics_reporting=False)
    found = Template.from_stack(ObservabilityStack(app, "Observability", settings=settings, cells=names())).to_json()
    described = [each["Properties"].get("AlarmDescription", "") for each in found["Resources"].values()]
    assert any(text.endswith("Runbook: https://wiki.example.com/planner/p99.md") for text in described)
    boards = [each for each in found["Resources"].values() if each["Type"] == "AWS::CloudWatch::Dashboard"]
    assert len(boards) == 1


def test_pages_and_tickets_notify_and_parts_and_pages_inputs_do_not() -> None:
    by_key = {alarm.key: alarm for alarm in cell_alarms(fleet())}
    for name, alarm in alarms().items():
        definition = by_key[name.removeprefix("peakplan-prime-day-cell-1-").removeprefix("peakplan-prime-day-cell-2-")]
        notifies = definition.severity is Severity.TICKET or definition.key == "page"
        assert bool(alarm.get("AlarmActions")) is notifies, name
        assert bool(alarm.get("OKActions")) is notifies, name
        if notifies:
            assert topic_of(alarm["AlarmActions"][0]) == ("pages" if definition.key == "page" else "tickets"), name


def topic_of(action: Any) -> str:
    """What the topic behind an action is for."""
    return str(resources()[action["Ref"]]["Properties"]["TopicName"].rpartition("-")[2])


def test_a_deploy_holds_the_page_back_through_the_quiet_alarm() -> None:
    found = resources()
    for cell in ("cell-1", "cell-2"):
        page = alarms()[f"peakplan-prime-day-{cell}-page"]
        suppressor = page["ActionsSuppressor"]["Fn::GetAtt"][0]
        assert found[suppressor]["Properties"]["AlarmName"] == f"peakplan-prime-day-{cell}-quiet"
        assert page["ActionsSuppressorWaitPeriod"] == page["ActionsSuppressorExtensionPeriod"] == 60


def test_a_composite_alarm_waits_for_the_alarms_it_names() -> None:
    names_of = {logical: found["Properties"].get("AlarmName") for logical, found in resources().items()}
    for found in resources().values():
        if found["Type"] == "AWS::CloudWatch::CompositeAlarm":
            named = set(re.findall(r'ALARM\("([^"]+)"\)', found["Properties"]["AlarmRule"]))
            assert named <= {names_of[logical] for logical in found["DependsOn"]}


def test_alarm_metrics_are_those_of_the_data_file_with_all_their_dimensions() -> None:
    for alarm in of_type("CloudWatch::Alarm"):
        returned = [query for query in alarm["Metrics"] if query["ReturnData"]]
        assert len(returned) == 1, alarm["AlarmName"]
        for query in alarm["Metrics"]:
            if "MetricStat" in query:
                metric = query["MetricStat"]["Metric"]
                dimensions = tuple(dimension["Name"] for dimension in metric["Dimensions"])
                metrics().metric(metric["MetricName"], dimensions)
                assert metric["Namespace"] == metrics().namespace(metric["MetricName"])


def test_topics_are_encrypted_with_a_rotated_key_that_alarms_may_use() -> None:
    topics, (key,) = of_type("SNS::Topic"), of_type("KMS::Key")
    statements = key["KeyPolicy"]["Statement"]
    alarms_may = [each for each in statements if each["Principal"] == {"Service": "cloudwatch.amazonaws.com"}]

    assert len(topics) == 2
    assert all("KmsMasterKeyId" in topic for topic in topics)
    assert key["EnableKeyRotation"] is True
    assert len(alarms_may) == 1
    assert tuple(each["Endpoint"] for each in of_type("SNS::Subscription")) == TOLD


def test_a_team_with_a_topic_of_its_own_gets_no_other() -> None:
    theirs = "arn:aws:sns:us-east-1:123456789012:pager"
    found = resources(theirs, theirs)

    assert not [each for each in found.values() if each["Type"].startswith("AWS::SNS")]
    told = [each["Properties"]["AlarmActions"] for each in found.values() if each["Properties"].get("AlarmActions")]
    assert told
    assert all(actions == [theirs] for actions in told)


def test_cdk_nag_finds_nothing() -> None:
    assert [each.rule_name for each in AwsSolutionsChecks(stack()).validate_scope(stack()).violations] == []


# The dashboard.


@pytest.fixture(scope="module")
def board() -> dict[str, Any]:
    return dashboard_body(fleet(), names(), lambda name: f"arn:aws:cloudwatch:us-east-1:123456789012:alarm:{name}")


def entries(board: dict[str, Any]) -> Iterator[tuple[str, list[Any]]]:
    """Every line of every graph, with its graph's title."""
    for widget in board["widgets"]:
        for entry in widget["properties"].get("metrics", []):
            yield widget["properties"]["title"], entry


def test_the_stack_carries_this_dashboard(board: dict[str, Any]) -> None:
    (found,) = [each for each in of_type("CloudWatch::Dashboard") if each["DashboardName"] == "peakplan-prime-day"]
    parts = found["DashboardBody"]["Fn::Join"][1]
    text = "".join(part if isinstance(part, str) else "arn" for part in parts)

    assert len(json.loads(text)["widgets"]) == len(board["widgets"])


def test_widgets_fill_their_rows_and_never_overlap(board: dict[str, Any]) -> None:
    def cells(widget: dict[str, Any]) -> set[tuple[int, int]]:
        xs = range(widget["x"], widget["x"] + widget["width"])
        return {(x, y) for x in xs for y in range(widget["y"], widget["y"] + widget["height"])}

    taken = [cells(widget) for widget in board["widgets"]]

    assert all(one.isdisjoint(other) for one, other in combinations(taken, 2))
    bottom = max(y for each in taken for _, y in each) + 1
    assert set().union(*taken) == {(x, y) for x in range(24) for y in range(bottom)}


def test_two_rows_a_cell_with_everything_on_call_asks_for(board: dict[str, Any]) -> None:
    for cell in ("cell-1", "cell-2"):
        row = [widget for widget in board["widgets"] if widget["properties"].get("title", "").startswith(f"{cell} ")]
        labels = {
            entry[0]["label"] for widget in row for entry in widget["properties"]["metrics"] if "label" in entry[0]
        }
        assert len({widget["y"] for widget in row}) == 2
        assert labels >= {
            "good %", "burn", "burn, by the model", "p50", "p90", "p99", "requests", "degraded %", "shed %",
            "cache hits %", "offered", "outstanding", "tokens a step", "in service", "wanted", "warm", "busy %",
            "hardware", "runtime", "$ inf2", "busy", "late", "down", "queue p99", "replicas", "restarts",
        }  # fmt: skip


def test_the_fleet_s_row_shows_who_plans_which_release_it_is_and_how_far_quotas_reach(board: dict[str, Any]) -> None:
    titles = {widget["properties"].get("title", "") for widget in board["widgets"]}
    assert {"Plans without the model, %: fleet and cells", "vCPU quota in use, %", "Plans by intent"} <= titles
    searched = [entry[0]["expression"] for _, entry in entries(board) if "SEARCH" in str(entry[0])]
    assert any("Release" in text and 'MetricName="Requests"' in text for text in searched)
    quota = [str(entry[0]) for title, entry in entries(board) if title.startswith("vCPU quota")]
    assert any("SERVICE_QUOTA" in text for text in quota)


def test_every_metric_that_is_published_stands_on_a_graph(board: dict[str, Any]) -> None:
    """What nobody can see is not worth its price."""
    shown = {entry[1] for _, entry in entries(board) if isinstance(entry[0], str)}
    shown |= set(re.findall(r'MetricName="(\w+)"', json.dumps(board).replace("\\", "")))
    shown |= {"CPUUtilization"}  # of fleets without Neuron
    assert set(metrics().metrics) <= shown


def test_every_metric_shown_is_in_the_data_file(board: dict[str, Any]) -> None:
    shown = 0
    for title, entry in entries(board):
        if isinstance(entry[0], str):
            namespace, name, *dimensions, options = entry
            metrics().metric(name, tuple(dimensions[::2]))
            assert namespace == metrics().namespace(name), title
            assert options["visible"] is False
            shown += 1
    assert shown > 100


def test_every_curve_is_math_over_ids_of_its_own_graph(board: dict[str, Any]) -> None:
    for widget in board["widgets"]:
        lines = widget["properties"].get("metrics", [])
        known = [line[-1]["id"] for line in lines]
        assert len(known) == len(set(known)), widget["properties"]["title"]
        for line in lines:
            if "expression" in line[0]:
                bare = re.sub(r"'[^']*'", "", line[0]["expression"])
                used = set(re.findall(r"[A-Za-z_]\w*", bare)) - {"IF", "FILL", "SEARCH", "SERVICE_QUOTA"}
                assert used <= set(known), widget["properties"]["title"]
                assert len(line[0]["expression"]) <= 1024


def test_the_alarm_widget_shows_what_notifies(board: dict[str, Any]) -> None:
    (widget,) = [widget for widget in board["widgets"] if widget["type"] == "alarm"]

    assert len(widget["properties"]["alarms"]) <= 100
    assert any(arn.endswith("cell-2-page") for arn in widget["properties"]["alarms"])


def many_cells(count: int) -> list[CellNames]:
    return [
        CellNames(
            f"cell-{n}", f"app/balancer-{n}/0123456789", (f"targetgroup/targets-{n}/0123456789",), ("inf2", "trn1")
        )
        for n in range(1, count + 1)
    ]


def test_many_cells_still_fit_cloudwatchs_limits() -> None:
    """Source: CloudWatch user guide, quotas; API reference, MetricDataQuery."""
    board = dashboard_body(fleet(), many_cells(MOST_CELLS), lambda name: name)
    (widget,) = [widget for widget in board["widgets"] if widget["type"] == "alarm"]
    counts = Counter(title for title, entry in entries(board) if isinstance(entry[0], str))
    math = [entry[0]["expression"] for _, entry in entries(board) if isinstance(entry[0], dict)]

    assert widget["properties"]["alarms"] == [f"peakplan-prime-day-cell-{n}-page" for n in range(1, MOST_CELLS + 1)]
    assert len(board["widgets"]) <= 500
    assert max(counts.values()) <= 500
    assert counts.total() <= 2500
    assert max(map(len, math)) <= 2048


def test_the_largest_fleet_fits_a_template_and_a_larger_one_is_refused_in_words() -> None:
    """Source: CloudFormation quotas: 500 resources, 1 MB."""
    app = aws_cdk.App(analytics_reporting=False)
    largest = ObservabilityStack(app, "Largest", settings=fleet(), cells=many_cells(MOST_CELLS))
    template = Template.from_stack(largest).to_json()

    assert len(template["Resources"]) <= 500
    assert len(json.dumps(template, indent=1)) <= 1_000_000
    with pytest.raises(FleetFileError, match=f"{MOST_CELLS + 1} are more than the {MOST_CELLS} whose"):
        ObservabilityStack(app, "TooLarge", settings=fleet(), cells=many_cells(MOST_CELLS + 1))


# In CloudFormation.


@pytest.mark.slow
def test_every_alarm_reads_back_after_a_deploy(moto_server: MotoServer) -> None:
    template = {"Resources": resources()}
    moto_server.client("cloudformation").create_stack(
        StackName="observability-alone", TemplateBody=json.dumps(template)
    )
    cloudwatch = moto_server.client("cloudwatch")
    pages = cloudwatch.get_paginator("describe_alarms").paginate(AlarmTypes=["MetricAlarm", "CompositeAlarm"])
    found = {
        alarm["AlarmName"]: alarm for page in pages for kind in page if kind.endswith("Alarms") for alarm in page[kind]
    }
    page = found["peakplan-prime-day-cell-2-page"]

    assert set(found) >= set(alarms())
    assert page["ActionsSuppressor"] == found["peakplan-prime-day-cell-2-quiet"]["AlarmArn"]
    assert found["peakplan-prime-day-cell-1-p99"]["Metrics"][0]["MetricStat"]["Stat"] == "p99"
    body = json.loads(cloudwatch.get_dashboard(DashboardName="peakplan-prime-day")["DashboardBody"])
    assert any(page["AlarmArn"] in widget["properties"].get("alarms", []) for widget in body["widgets"])
