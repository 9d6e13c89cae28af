"""A shortened dashboard says what the one written out does."""

import json
from typing import Any

from infra.fleet.dashboard_lines import shortened, whole


def board(*lines: list[Any]) -> dict[str, Any]:
    return {"widgets": [{"type": "text", "properties": {}}, {"type": "metric", "properties": {"metrics": [*lines]}}]}


def lines_of(body: dict[str, Any]) -> list[Any]:
    lines: list[Any] = body["widgets"][1]["properties"]["metrics"]
    return lines


ASKED = ["AWS/ApplicationELB", "RequestCount", "LoadBalancer", "app/cell-1/1", {"id": "m1", "visible": False}]
REFUSED = ["AWS/ApplicationELB", "RejectedConnectionCount", "LoadBalancer", "app/cell-1/1", {"id": "m2"}]
ALL_HOSTS = ["AWS/AutoScaling", "GroupInServiceInstances", {"id": "m3"}]
SHARE, REST = [{"expression": "m2 / m1", "id": "curve1"}], [{"expression": "1 - curve1", "id": "curve2"}]


def test_a_line_repeats_nothing_of_the_metric_above_and_expressions_come_after_all_metrics() -> None:
    assert lines_of(shortened(board(ASKED, SHARE, ALL_HOSTS, REFUSED, REST))) == [
        REFUSED,
        [".", "RequestCount", ".", ".", {"id": "m1", "visible": False}],
        ALL_HOSTS,
        SHARE,
        REST,
    ]


def test_what_is_shortened_is_whole_again_and_the_given_body_stays_as_it_is() -> None:
    given = board(ASKED, SHARE, ALL_HOSTS, REFUSED, REST)
    before = json.dumps(given)

    again = whole(shortened(given))

    assert sorted(map(str, lines_of(again))) == sorted(map(str, lines_of(given)))
    assert lines_of(again)[-2:] == [SHARE, REST]
    assert json.dumps(given) == before


def test_a_period_reaches_no_further_than_the_line_above() -> None:
    """Two metrics of the same names and one between them with fewer dimensions: nothing is taken from two above."""
    other = ["AWS/ApplicationELB", "Other", "LoadBalancer", "app/cell-2/1", "Zone", "a", {"id": "m4"}]
    again = whole(shortened(board(ASKED, other, REFUSED)))
    assert sorted(map(str, lines_of(again))) == sorted(map(str, [ASKED, other, REFUSED]))
