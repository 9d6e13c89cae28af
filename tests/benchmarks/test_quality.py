"""Tests that the figures mean what quality.py defines."""

from benchmarks.quality import MORE_LEAVES, Judged, scores, span_f1
from service.planner.plan import Plan, Price
from service.planner.plan_text import FacetSpan, PlanDraft
from training.data.examples import Example


def _judged(origin: str, example: Example, plan: Plan | None) -> Judged:
    return Judged(origin, example, example.question(), plan)


def _plan(intent: str = "find_product", **fields: object) -> Plan:
    return Plan.model_validate(
        {"mode": "keyword", "intent": intent, "queries": ["q"], "sources": ["catalog"], **fields}
    )


SHOES = Example(
    "Red shoes",
    PlanDraft("keyword", "find_product", ["catalog"], [FacetSpan("color", 0, 0), FacetSpan("type", 1, 1)]),
)


def test_span_f1_counts_pairs_of_facet_and_text() -> None:
    half = _judged("queryner", SHOES, _plan(facets={"color": ["red"], "brand": ["shoes"]}))
    whole = _judged("queryner", SHOES, _plan(facets={"color": ["red"], "type": ["shoes"]}))

    assert span_f1([half]) == 0.5
    assert span_f1([whole]) == 1.0
    assert span_f1([_judged("queryner", SHOES, None)]) == 0.0


def test_a_missing_plan_counts_against_every_figure() -> None:
    figures = scores([_judged("queryner", SHOES, None), _judged("queryner", SHOES, _plan())])

    assert figures["valid_plans"] == 0.5
    assert figures["intent"] == 0.5


def test_out_of_scope_recall_and_false_alarms_look_at_different_questions() -> None:
    chat = Example("tell me a joke", PlanDraft("conversational", "out_of_scope"))
    figures = scores(
        [
            _judged("clinc", chat, _plan("out_of_scope", queries=[], sources=[])),
            _judged("queryner", SHOES, _plan("out_of_scope", queries=[], sources=[])),
            _judged("queryner", SHOES, _plan()),
        ]
    )

    assert figures["out_of_scope_recall"] == 1.0
    assert figures["out_of_scope_false_alarms"] == 0.5


def test_an_invented_value_is_counted() -> None:
    figures = scores([_judged("queryner", SHOES, _plan(facets={"color": ["blue"]}))])

    assert figures["invented_facet_values"] == 1


def test_prices_are_exact_only_with_both_bounds() -> None:
    priced = Example("red shoes under 40", PlanDraft("keyword", "find_product", ["catalog"], [], None, 40.0))
    right = _judged("price", priced, _plan(price=Price(max=40.0)))
    wrong = _judged("price", priced, _plan(price=Price(min=40.0)))

    assert scores([right, wrong])["price_exact"] == 0.5


def test_verticals_are_judged_by_every_leaf_and_nothing_else_is() -> None:
    """Check that only verticals use every leaf: otherwise half of all questions would be easy templates."""
    leaf = Example("lamp oil", PlanDraft("keyword", "find_product", ["catalog"], vertical="hg"), knows_vertical=True)
    figures = scores(
        [
            _judged("queryner", SHOES, _plan("ask_product")),
            _judged("taxonomy", leaf, _plan(vertical="hg")),
            *[_judged(MORE_LEAVES, leaf, _plan(vertical="ha"))] * 3,
        ]
    )

    assert figures["questions"] == 5
    assert figures["vertical"] == 0.25
    assert figures["intent"] == 0.5
    assert MORE_LEAVES not in figures["intent_by_origin"]
