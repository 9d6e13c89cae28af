"""The picture of a dashboard shows the rehearsal's own numbers by the dashboard's own metric math."""

import json
from pathlib import Path
from typing import Any

from rehearsal.dashboards import boards, curves
from rehearsal.twin.board import draw

HOSTS, P99 = "GroupInServiceInstances inf2", "TargetResponseTime"
DATA: Any = {
    "cell-1": {"RequestCount": [60.0, 120.0], HOSTS: [3.0, 4.0], P99: [0.1, 0.2]},
    "cell-2": {"RequestCount": [1.0, 2.0], HOSTS: [5.0, 5.0], P99: [0.3, 0.3]},
}


def widget(*metrics: list[Any]) -> dict[str, Any]:
    properties = {"title": "it", "view": "timeSeries", "metrics": list(metrics), "yAxis": {"left": {"min": 0}}}
    return {"type": "metric", "x": 0, "y": 0, "width": 24, "height": 6, "properties": properties}


def published(id: str, namespace: str, name: str, *dimensions: str, stat: str = "Sum") -> list[Any]:
    return [namespace, name, *dimensions, {"id": id, "stat": stat, "visible": False}]


def balancer(cell: int) -> str:
    return f"{{Fn::Select: [0, {{Ref: peakplandevcell{cell}namesC9}}]}}"


def test_curves_are_the_board_s_own_math() -> None:
    asked = widget(
        published(
            "a",
            "AWS/ApplicationELB",
            "RequestCount",
            "LoadBalancer",
            "{Fn::Select: [0, {Ref: peakplandevcell1namesC9}]}",
        ),
        published(
            "b",
            "AWS/ApplicationELB",
            "RequestCount",
            "LoadBalancer",
            "{Fn::Select: [0, {Ref: peakplandevcell2namesC9}]}",
        ),
        [{"expression": "FILL(a, 0) + b", "id": "s", "visible": False}],
        [{"expression": "s / 60", "id": "curve1", "label": "a second", "yAxis": "right"}],
    )
    assert curves(asked, DATA) == {"a second": ([61 / 60, 122 / 60], True)}


def test_what_the_rehearsal_does_not_know_is_left_out() -> None:
    balancer = ("LoadBalancer", "app/cell-1/1")
    asked = widget(
        published("zone", "AWS/ApplicationELB", "RequestCount", "AvailabilityZone", "us-east-1a", *balancer),
        [{"expression": "zone", "id": "curve1", "label": "a zone's"}],
        published("half", "AWS/ApplicationELB", "TargetResponseTime", *balancer, stat="p50"),
        [{"expression": "half", "id": "curve2", "label": "p50"}],
        published("slow", "AWS/ApplicationELB", "TargetResponseTime", *balancer, stat="p99"),
        [{"expression": "slow", "id": "curve3", "label": "p99"}],
        published("group", "AWS/AutoScaling", "GroupInServiceInstances", "AutoScalingGroupName", "x-cell-2-inf2"),
        [{"expression": "group", "id": "curve4", "label": "hosts"}],
    )
    assert curves(asked, DATA) == {"p99": ([0.1, 0.2], False), "hosts": ([5.0, 5.0], False)}


def test_a_synthesised_board_becomes_a_picture(tmp_path: Path) -> None:
    shown = widget(
        published("a", "AWS/ApplicationELB", "RequestCount", "LoadBalancer", "app/cell-1/1"),
        [{"expression": "a", "id": "curve1", "label": "asked"}],
    )
    text = {"type": "text", "x": 0, "y": 6, "width": 24, "height": 2, "properties": {"markdown": "## A board"}}
    body = {"Fn::Join": ["", [json.dumps({"widgets": [shown, text]})]]}
    board = {"Type": "AWS::CloudWatch::Dashboard", "Properties": {"DashboardName": "peakplan-x", "DashboardBody": body}}
    page = {"Type": "AWS::CloudWatch::Dashboard", "Properties": {"DashboardName": "peakplan-x-runbook-page"}}
    template = tmp_path / "Observability.template.json"
    template.write_text(json.dumps({"Resources": {"Board": board, "Page": page}}), encoding="utf-8")
    (found,) = boards(template).values()
    picture = tmp_path / "board.png"
    draw(found, [curves(each, DATA) for each in found], picture)
    assert picture.read_bytes().startswith(b"\x89PNG")
    assert picture.stat().st_size > 5000
