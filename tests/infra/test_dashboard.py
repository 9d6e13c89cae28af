"""The dashboard as CloudWatch gets it."""

import json
import re
from collections import Counter
from collections.abc import Iterator
from itertools import combinations
from typing import Any

import aws_cdk
import pytest
from aws_cdk.assertions import Template

from infra.constructs.dashboard import dashboard_body
from infra.constructs.names import CellNames
from infra.fleet.metrics import metrics
from infra.fleet.settings import FleetFileError
from infra.stacks import MOST_CELLS, ObservabilityStack
from tests.infra.observability import fleet, names, of_type


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
            "hardware", "runtime", "$ inf2", "capacity", "deadline", "too_long", "engine", "fault",
            "choices that differ %", "differ as expected %", "queue p99", "replicas", "restarts",
        }  # fmt: skip


def test_the_fleet_s_row_shows_who_plans_which_release_it_is_and_how_far_quotas_reach(board: dict[str, Any]) -> None:
    titles = {widget["properties"].get("title", "") for widget in board["widgets"]}
    assert {"Plans without the model, %: fleet and cells", "vCPU quota in use, %", "Plans by intent"} <= titles
    searched = [entry[0]["expression"] for _, entry in entries(board) if "SEARCH" in str(entry[0])]
    assert any("Release" in text and 'MetricName="Requests"' in text for text in searched)
    quota = [str(entry[0]) for title, entry in entries(board) if title.startswith("vCPU quota")]
    asked = re.findall(r"SERVICE_QUOTA\((\w+)\)", " ".join(quota))
    published = {entry[-1]["id"]: entry[0] for title, entry in entries(board) if title.startswith("vCPU quota")}
    assert asked
    assert {published[id] for id in asked} == {"AWS/Usage"}, "a quota is a metric's, not an expression's"


def test_every_metric_that_is_published_stands_on_a_graph(board: dict[str, Any]) -> None:
    """What nobody can see is not worth its price."""
    shown = {entry[1] for _, entry in entries(board) if isinstance(entry[0], str)}
    shown |= set(re.findall(r'MetricName="(\w+)"', json.dumps(board).replace("\\", "")))
    shown |= {"CPUUtilization"}  # of fleets without Neuron
    assert {metrics().published_name(name) for name in metrics().metrics} <= shown


def test_every_metric_shown_is_in_the_data_file(board: dict[str, Any]) -> None:
    shown, known = 0, {(metrics().namespace(each), metrics().published_name(each)) for each in metrics().metrics}
    for title, entry in entries(board):
        if isinstance(entry[0], str):
            namespace, name, *dimensions, options = entry
            metrics().metric(name, tuple(dimensions[::2]))
            assert (namespace, name) in known, title
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
            f"cell-{n}",
            f"app/balancer-{n}/0123456789",
            (f"targetgroup/targets-{n}/0123456789",),
            ("inf2", "trn1"),
            network_load_balancer=f"net/balancer-{n}/0123456789",
            network_target_group=f"targetgroup/front-{n}/0123456789",
            cache_nodes=(f"cache-{n}-001", f"cache-{n}-002"),
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
