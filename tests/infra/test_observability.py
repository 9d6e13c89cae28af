"""The observability stack as CloudFormation gets it: alarms, topics, dashboards."""

import json
import re
from collections import Counter
from collections.abc import Iterator
from functools import cache
from itertools import combinations
from pathlib import Path
from typing import Any

import aws_cdk
import pytest
from aws_cdk.assertions import Template
from pydantic import ValidationError

from infra.constructs.dashboard import dashboards
from infra.constructs.names import CellNames
from infra.fleet.alarm_kinds import Severity
from infra.fleet.alarms import cell_alarms
from infra.fleet.dashboard_lines import shortened
from infra.fleet.description import MOST_CELLS
from infra.fleet.metrics import metrics
from infra.fleet.parts import OnCall
from infra.fleet.settings import FLEETS, FleetSettings
from infra.stacks import ObservabilityStack
from tests.infra.fleet.fleets import dev_fleet

Resource = dict[str, Any]


@cache
def fleet() -> FleetSettings:
    return FleetSettings.from_yaml(FLEETS / "prime-day.yaml")


@cache
def names(count: int = 2) -> list[CellNames]:
    """Cells as their stacks would name them."""
    return [
        CellNames(
            f"cell-{n}",
            f"app/balancer-{n}/0123456789",
            (f"targetgroup/targets-{n}/0123456789",),
            tuple(group.chip for group in fleet().groups),
            network_load_balancer=f"net/balancer-{n}/0123456789",
            network_target_group=f"targetgroup/front-{n}/0123456789",
            cache_nodes=(f"cache-{n}-001", f"cache-{n}-002"),
            log_group=f"/peakplan/prime-day/cell-{n}/1a2b3c4d",
        )
        for n in range(1, count + 1)
    ]


TOLD = ("night@example.com", "desk@example.com")


@cache
def resources(page: str = TOLD[0], ticket: str = TOLD[1], runbooks: str = "") -> dict[str, Resource]:
    settings = fleet().model_copy(update={"on_call": OnCall(page=page, ticket=ticket), "runbooks": runbooks})
    stack = ObservabilityStack(
        aws_cdk.App(analytics_reporting=False), "Observability", settings=settings, cells=names()
    )
    found: dict[str, Resource] = Template.from_stack(stack).to_json()["Resources"]
    return found


def of_type(kind: str) -> list[Resource]:
    return [found["Properties"] for found in resources().values() if found["Type"] == f"AWS::{kind}"]


def alarms() -> dict[str, Resource]:
    return {
        found["AlarmName"]: found for kind in ("Alarm", "CompositeAlarm") for found in of_type(f"CloudWatch::{kind}")
    }


def test_every_notification_says_what_it_means_and_links_its_runbook_which_is_a_page() -> None:
    for name, alarm in alarms().items():
        assert re.search(
            r"^\[(page|ticket|part)\] .+ Runbook: https://\S+/dashboard/peakplan-prime-day-runbook-[a-z0-9-]+$",
            alarm["AlarmDescription"],
        ), name
    boards = {each["DashboardName"]: each["DashboardBody"] for each in of_type("CloudWatch::Dashboard")}
    linked = {alarm["AlarmDescription"].rpartition("/")[2] for alarm in alarms().values()}
    assert linked <= set(boards)
    for name in linked:
        (widget,) = json.loads(boards[name])["widgets"]
        assert "## Mitigation" in widget["properties"]["markdown"]
        assert not re.search(r"\]\([a-z-]+\.md\)", widget["properties"]["markdown"]), "links lead to pages too"


def test_pages_and_tickets_notify_and_parts_and_pages_inputs_do_not() -> None:
    by_key = {alarm.key: alarm for alarm in cell_alarms(fleet())}
    for name, alarm in alarms().items():
        definition = by_key[name.removeprefix("peakplan-prime-day-cell-1-").removeprefix("peakplan-prime-day-cell-2-")]
        notifies = definition.severity is Severity.TICKET or definition.key == "page"
        assert bool(alarm.get("AlarmActions")) is notifies, name
        assert bool(alarm.get("OKActions")) is notifies, name
        if notifies:
            assert topic_of(alarm["AlarmActions"][0]) == ("pages" if definition.key == "page" else "tickets"), name
    assert tuple(each["Endpoint"] for each in of_type("SNS::Subscription")) == TOLD


def topic_of(action: Any) -> str:
    """Return the purpose of an action's topic."""
    return str(resources()[action["Ref"]]["Properties"]["TopicName"].rpartition("-")[2])


def test_a_composite_alarm_waits_for_the_alarms_it_names() -> None:
    names_of = {logical: found["Properties"].get("AlarmName") for logical, found in resources().items()}
    for found in resources().values():
        if found["Type"] == "AWS::CloudWatch::CompositeAlarm":
            named = set(re.findall(r'ALARM\("([^"]+)"\)', found["Properties"]["AlarmRule"]))
            assert named <= {names_of[logical] for logical in found["DependsOn"]}


def test_a_team_with_a_topic_and_runbooks_of_its_own_gets_no_others() -> None:
    theirs = "arn:aws:sns:us-east-1:123456789012:pager"
    found = resources(theirs, theirs, "https://wiki.example.com/planner").values()
    assert not [each for each in found if each["Type"].startswith("AWS::SNS")]
    told = [each["Properties"]["AlarmActions"] for each in found if each["Properties"].get("AlarmActions")]
    assert told
    assert all(actions == [theirs] for actions in told)
    described = [each["Properties"].get("AlarmDescription", "") for each in found]
    assert any(text.endswith("Runbook: https://wiki.example.com/planner/p99.md") for text in described)
    boards = [each for each in found if each["Type"] == "AWS::CloudWatch::Dashboard"]
    assert len(boards) == 1 + len(names()), "one of the fleet, and one of each cell"


Boards = dict[str, Any]
FLEET, FIRST = "peakplan-prime-day", "peakplan-prime-day-cell-1"
CERTIFICATE = "arn:aws:acm:us-east-1:123456789012:certificate/1"


@pytest.fixture(scope="module")
def boards() -> Boards:
    return dashboards(fleet(), names(), lambda name: f"arn:aws:cloudwatch:us-east-1:1:alarm:{name}", CERTIFICATE)


def widgets(boards: Boards) -> list[Any]:
    return [widget for board in boards.values() for widget in board["widgets"]]


def entries(boards: Boards) -> Iterator[tuple[str, list[Any]]]:
    """Every line of every graph, with its graph's title."""
    for widget in widgets(boards):
        for entry in widget["properties"].get("metrics", []):
            yield widget["properties"]["title"], entry


def test_the_stack_carries_these_dashboards(boards: Boards) -> None:
    found = {each["DashboardName"]: each for each in of_type("CloudWatch::Dashboard")}
    assert set(boards) == {FLEET, FIRST, "peakplan-prime-day-cell-2"} <= set(found)
    for name, board in boards.items():
        parts = found[name]["DashboardBody"]["Fn::Join"][1]
        text = "".join(part if isinstance(part, str) else "arn" for part in parts)
        assert len(json.loads(text)["widgets"]) == len(board["widgets"])


@pytest.mark.parametrize("name", [FLEET, FIRST])
def test_widgets_fill_their_rows_and_never_overlap(boards: Boards, name: str) -> None:
    def cells(widget: dict[str, Any]) -> set[tuple[int, int]]:
        xs = range(widget["x"], widget["x"] + widget["width"])
        return {(x, y) for x in xs for y in range(widget["y"], widget["y"] + widget["height"])}

    taken = [cells(widget) for widget in boards[name]["widgets"]]

    assert all(one.isdisjoint(other) for one, other in combinations(taken, 2))
    bottom = max(y for each in taken for _, y in each) + 1
    assert set().union(*taken) == {(x, y) for x in range(24) for y in range(bottom)}


def test_zones_callers_tls_the_certificate_and_a_curve_for_every_cell_are_to_be_seen(boards: Boards) -> None:
    zones = fleet().availability_zones
    for cell in ("cell-1", "cell-2"):
        logs = [widget for widget in boards[f"{FLEET}-{cell}"]["widgets"] if widget["type"] == "log"]
        assert [widget["properties"]["title"] for widget in logs] == [f"{cell} requests by caller, a minute"]
    by_zone = [entry for title, entry in entries({"": boards[FIRST]}) if "by zone" in title and len(entry) > 2]
    assert {entry[entry.index("AvailabilityZone") + 1] for entry in by_zone} == set(zones)
    front = {entry[1] for _, entry in entries({"": boards[FLEET]}) if isinstance(entry[0], str)}
    assert front >= {
        "ClientTLSNegotiationErrorCount", "RejectedConnectionCount", "DaysToExpiry", "EMFParsingErrors",
        "EMFValidationErrors",
    }  # fmt: skip
    (days,) = [entry for _, entry in entries({"": boards[FLEET]}) if entry[1:2] == ["DaysToExpiry"]]
    assert CERTIFICATE in days
    (log,) = [widget for widget in boards[FLEET]["widgets"] if widget["type"] == "log"]
    assert "SOURCE '/peakplan/prime-day/cell-2/1a2b3c4d'" in log["properties"]["query"]
    for title in ("p99 by cell, s", "Requests by cell, a minute", "Instances by cell"):
        labels = {
            entry[0].get("label") for found, entry in entries({"": boards[FLEET]}) if found == title and len(entry) == 1
        }
        assert {"cell-1", "cell-2"} <= labels


def test_the_fleet_s_row_shows_who_plans_which_release_it_is_and_how_far_quotas_reach(boards: Boards) -> None:
    titles = {widget["properties"].get("title", "") for widget in widgets(boards)}
    assert {"Plans without the model, %: fleet and cells", "vCPU quota in use, %", "Plans by intent"} <= titles
    searched = [entry[0]["expression"] for _, entry in entries(boards) if "SEARCH" in str(entry[0])]
    assert any("Release" in text and 'MetricName="Requests"' in text for text in searched)
    quota = [str(entry[0]) for title, entry in entries(boards) if title.startswith("vCPU quota")]
    asked = re.findall(r"SERVICE_QUOTA\((\w+)\)", " ".join(quota))
    published = {entry[-1]["id"]: entry[0] for title, entry in entries(boards) if title.startswith("vCPU quota")}
    assert asked
    assert {published[id] for id in asked} == {"AWS/Usage"}, "a quota is a metric's, not an expression's"


def test_every_metric_that_is_published_stands_on_a_graph_and_no_other(boards: Boards) -> None:
    """A metric that no graph shows is not worth its price."""
    shown = {entry[1] for _, entry in entries(boards) if isinstance(entry[0], str)}
    shown |= set(re.findall(r'MetricName="(\w+)"', json.dumps(boards).replace("\\", "")))
    shown |= {"CPUUtilization"}  # of fleets without Neuron
    assert {metrics().published_name(name) for name in metrics().metrics} <= shown
    known = {(metrics().namespace(each), metrics().published_name(each)) for each in metrics().metrics}
    asked = [(title, entry) for title, entry in entries(boards) if isinstance(entry[0], str)]
    assert len(asked) > 100
    for title, (namespace, name, *dimensions, options) in asked:
        metrics().metric(name, tuple(dimensions[::2]))
        assert (namespace, name) in known, title
        assert options["visible"] is False


def test_every_curve_is_math_over_ids_of_its_own_graph(boards: Boards) -> None:
    for widget in widgets(boards):
        lines = widget["properties"].get("metrics", [])
        known = [line[-1]["id"] for line in lines]
        assert len(known) == len(set(known)), widget["properties"]["title"]
        for line in lines:
            if "expression" in line[0]:
                bare = re.sub(r"'[^']*'", "", line[0]["expression"])
                used = set(re.findall(r"[A-Za-z_]\w*", bare)) - {"IF", "FILL", "SEARCH", "SERVICE_QUOTA"}
                assert used <= set(known), widget["properties"]["title"]
                assert len(line[0]["expression"]) <= 1024


def test_many_cells_still_fit_cloudwatchs_limits() -> None:
    """Source: CloudWatch user guide, quotas; API reference, MetricDataQuery."""
    boards = dashboards(fleet(), names(MOST_CELLS), lambda name: name, CERTIFICATE)
    (widget,) = [widget for widget in boards[FLEET]["widgets"] if widget["type"] == "alarm"]
    counts = Counter(title for title, entry in entries({"": boards[FLEET]}) if isinstance(entry[0], str))
    math = [entry[0]["expression"] for _, entry in entries(boards) if isinstance(entry[0], dict)]

    assert widget["properties"]["alarms"] == [f"peakplan-prime-day-cell-{n}-page" for n in range(1, MOST_CELLS + 1)]
    assert all(len(board["widgets"]) <= 500 for board in boards.values())
    assert max(counts.values()) <= 500
    assert counts.total() <= 2500
    assert max(map(len, math)) <= 2048


def test_the_largest_fleet_fits_a_template_and_a_larger_one_is_refused_in_words() -> None:
    """Source: CloudFormation quotas: 500 resources, 1 MB."""
    app = aws_cdk.App(analytics_reporting=False)
    largest = ObservabilityStack(app, "Largest", settings=fleet(), cells=names(MOST_CELLS))
    template = Path(app.synth().get_stack_artifact(largest.artifact_id).template_full_path).read_bytes()

    assert len(json.loads(template)["Resources"]) <= 500
    assert len(template) <= 760_000, "imported names make it 5% larger, and CDK warns at 800 kB"
    with pytest.raises(ValidationError, match=f"less than or equal to {MOST_CELLS}"):
        dev_fleet({"cells": MOST_CELLS + 1})


ASKED = ["AWS/ApplicationELB", "RequestCount", "LoadBalancer", "app/cell-1/1", {"id": "m1", "visible": False}]
REFUSED = ["AWS/ApplicationELB", "RejectedConnectionCount", "LoadBalancer", "app/cell-1/1", {"id": "m2"}]
OTHER = ["AWS/ApplicationELB", "Other", "LoadBalancer", "app/cell-2/1", "Zone", "a", {"id": "m4"}]
ALL_HOSTS = ["AWS/AutoScaling", "GroupInServiceInstances", {"id": "m3"}]
SHARE, REST = [{"expression": "m2 / m1", "id": "curve1"}], [{"expression": "1 - curve1", "id": "curve2"}]


def test_what_is_shortened_repeats_nothing_of_the_metric_above_and_the_given_body_stays_as_it_is() -> None:
    text, lines = {"type": "text", "properties": {}}, [ASKED, SHARE, ALL_HOSTS, OTHER, REFUSED, REST]
    given = {"widgets": [text, {"type": "metric", "properties": {"metrics": lines}}]}
    before = json.dumps(given)
    again, short = shortened(given)["widgets"]
    assert again == text
    assert short["properties"]["metrics"] == [
        REFUSED,
        [".", "RequestCount", ".", ".", ASKED[-1]],
        [".", "Other", ".", *OTHER[3:]],
        ALL_HOSTS,
        SHARE,
        REST,
    ], "expressions come after all metrics, and a period reaches no further than the line above"
    assert json.dumps(given) == before
