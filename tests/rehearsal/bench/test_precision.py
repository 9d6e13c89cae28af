"""Tests of the comparison of precisions, on plans that are given."""

from pathlib import Path

from rehearsal.bench.precision import compared
from rehearsal.bench.quality import Asked
from rehearsal.tools.quality_tables import render_precision
from service.planner.plan import Plan
from service.planner.plan_text import FacetSpan, PlanDraft
from training.data.examples import Example

SHOES = Example(
    "red shoes",
    PlanDraft("keyword", "find_product", ["catalog"], [FacetSpan("color", 0, 0), FacetSpan("type", 1, 1)]),
)
RIGHT = Plan(
    mode="keyword",
    intent="find_product",
    queries=["red shoes"],
    sources=["catalog"],
    facets={"color": ["red"], "type": ["shoes"]},
)
WRONG = Plan(mode="keyword", intent="out_of_scope")


def test_each_precision_is_scored_and_compared_with_the_reference() -> None:
    asked = Asked({"queryner": [SHOES, SHOES]}, [], {}, Path())
    plans: dict[str, list[Plan | None]] = {
        "int8": [RIGHT, WRONG],
        "bfloat16": [RIGHT, None],
        "float32": [RIGHT, RIGHT],
    }

    found = compared(asked, plans)

    assert [found[dtype]["same_as_reference"] for dtype in plans] == [0.5, 0.5, 1.0]
    assert [found[dtype]["intent"] for dtype in plans] == [0.5, 0.5, 1.0]
    assert [found[dtype]["valid_plans"] for dtype in plans] == [1.0, 0.5, 1.0]
    assert found["float32"]["span_f1"] == 1.0


def test_the_table_has_a_column_for_each_precision_and_no_row_of_what_was_not_asked() -> None:
    scores = {"span_f1": 0.5, "intent": 0.75, "same_as_reference": 1.0}
    machine = {"cores": 2, "processor": "one", "torch": "2"}
    figure = {
        "command": "peakplan bench precisions",
        "machine": machine,
        "questions": 2,
        "reference": "float32",
        "precisions": {"int8": scores | {"intent": 0.5}, "float32": scores},
    }

    table = render_precision(figure)

    assert "| intent accuracy, all origins | 0.5 | 0.75 |" in table
    assert "behaviour" not in table
