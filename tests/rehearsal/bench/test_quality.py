"""Tests that the figures mean what quality.py defines."""

import json
from dataclasses import replace
from pathlib import Path

import pytest

from rehearsal.bench.quality import (
    MORE_LEAVES,
    Judged,
    ScopeQuestion,
    behaviour_scores,
    checker,
    read_cases,
    read_scope_questions,
    scope_scores,
    scores,
    span_f1,
)
from service.planner.plan import Plan, Price
from service.planner.plan_text import FacetSpan, PlanDraft
from service.planner.question import Question
from service.planner.vocabulary import shipped_vocabulary
from training.data.examples import Example


def _judged(origin: str, example: Example, plan: Plan | None) -> Judged:
    return Judged(origin, example, example.question(), plan)


def _plan(intent: str = "find_product", **fields: object) -> Plan:
    return Plan.model_validate(
        {"mode": "keyword", "intent": intent, "queries": ["q"], "sources": ["catalog"], **fields}
    )


SHOES = Example(
    "Red shoes", PlanDraft("keyword", "find_product", ["catalog"], [FacetSpan("color", 0, 0), FacetSpan("type", 1, 1)])
)


CHAT = Example("tell me a joke", PlanDraft("conversational", "out_of_scope"))
PRICED = Example("red shoes under 40", PlanDraft("keyword", "find_product", ["catalog"]), price=(None, 40.0))
LEAF = Example(
    "lamp oil", PlanDraft("keyword", "find_product", ["catalog"], vertical="home-garden"), knows_vertical=True
)
REFUSAL = _plan("out_of_scope", queries=[], sources=[])


@pytest.mark.parametrize(
    ("judged", "expected"),
    [
        ([("queryner", SHOES, None), ("queryner", SHOES, _plan())], {"valid_plans": 0.5, "intent": 0.5}),
        ([("clinc", CHAT, REFUSAL), ("queryner", SHOES, REFUSAL), ("queryner", SHOES, _plan())],
         {"out_of_scope_recall": 1.0, "out_of_scope_false_alarms": 0.5}),
        ([("queryner", SHOES, _plan(facets={"color": ["blue"]}))], {"invented_facet_values": 1}),
        ([("price", PRICED, _plan(price=Price(max=40.0))), ("price", PRICED, _plan(price=Price(min=40.0)))],
         {"price_exact": 0.5}),
        # Only verticals are judged by every leaf: otherwise half of all questions would be easy templates.
        ([("queryner", SHOES, _plan("ask_product")), ("taxonomy", LEAF, _plan(vertical="home-garden")),
          *[(MORE_LEAVES, LEAF, _plan(vertical="hardware"))] * 3],
         {"questions": 5, "vertical": 0.25, "intent": 0.5}),
    ],
    ids=["a missing plan counts against every figure", "out of scope", "invented values", "prices", "verticals"],
)  # fmt: skip
def test_a_figure_means_what_it_says(
    judged: list[tuple[str, Example, Plan | None]], expected: dict[str, float]
) -> None:
    figures = scores([_judged(*each) for each in judged])

    assert {name: figures[name] for name in expected} == expected
    assert MORE_LEAVES not in figures["intent_by_origin"]


def test_span_f1_counts_pairs_of_facet_and_text() -> None:
    half = _judged("queryner", SHOES, _plan(facets={"color": ["red"], "brand": ["shoes"]}))
    whole = _judged("queryner", SHOES, _plan(facets={"color": ["red"], "type": ["shoes"]}))

    assert [span_f1([each]) for each in (half, whole, _judged("queryner", SHOES, None))] == [0.5, 1.0, 0.0]


def test_a_turn_counts_where_all_that_filters_is_right() -> None:
    spans = [FacetSpan("color", 0, 0, refused=True), FacetSpan("type", 1, 1)]
    refused = replace(SHOES, draft=replace(SHOES.draft, spans=spans))
    later = replace(refused, query="not red", history=("shoes",), draft=replace(refused.draft, spans=[]))
    origin = "conversation"
    right = _judged(origin, refused, _plan(facets={"type": ["Shoes"]}, exclude={"color": ["Red"]}, vertical="hardware"))
    wrong = _judged(origin, refused, _plan(facets={"type": ["shoes"]}))
    lost = _judged(origin, refused, _plan("out_of_scope", queries=[], sources=[]))

    figures = scores([right, wrong, lost, _judged(origin, refused, None), _judged(origin, later, _plan())])

    assert figures["conversations"] == {"first turns": 0.25, "later turns": 1.0}
    assert figures["shopping_out_of_scope"] == 0.2


def test_cases_pass_where_every_assertion_of_the_judges_program_holds(tmp_path: Path) -> None:
    cases = tmp_path / "cases.jsonl"
    rows = [{"class": "a", "query": "red shoes", "expect": [["intent", "find_product"], ["sort", "relevance"]]},
            {"class": "b", "query": "socks", "history": ["nike"], "expect": [["intent", "advise"]]}]  # fmt: skip
    cases.write_text("".join(json.dumps(row) + "\n" for row in rows), encoding="utf-8")
    (tmp_path / "check.py").write_text("def holds(plan, assertion):\n    return plan[assertion[0]] == assertion[1]\n")
    read = read_cases(cases)

    assert read[1].question.utterances == ("nike", "socks")
    assert behaviour_scores(read, [_plan(), _plan()], checker(cases)) == {
        "cases": 2, "passed": 0.5, "by_class": {"a": "1/1", "b": "0/1"}
    }  # fmt: skip
    assert behaviour_scores(read, [None, None], checker(cases))["passed"] == 0
    with pytest.raises(FileNotFoundError, match="what the assertions of"):
        checker(tmp_path / "elsewhere" / "cases.jsonl")


def test_the_questions_name_intents_of_the_vocabulary() -> None:
    questions = read_scope_questions()
    assert {asked.group for asked in questions} == {"shop", "out", "support", "chat"}
    assert frozenset().union(*(asked.intents for asked in questions)) <= frozenset(shipped_vocabulary().intents)
    assert len({asked.question.text for asked in questions}) == len(questions)


def test_any_fair_intent_is_right_and_shoppers_turned_away_are_counted() -> None:
    fair = frozenset(("find_product", "advise"))
    shop = [ScopeQuestion("shop", fair, Question.parse(text)) for text in ("one", "two", "three", "four")]
    out = ScopeQuestion("out", frozenset(("out_of_scope",)), Question.parse("five"))
    plans = [_plan("find_product"), _plan("advise"), _plan("out_of_scope"), None, _plan("find_product")]

    assert scope_scores([*shop, out], plans) == {"questions": 5, "shop": 0.5, "out": 0.0, "shop_out_of_scope": 0.25}


def test_a_line_without_three_columns_is_named(tmp_path: Path) -> None:
    (tmp_path / "scope.tsv").write_text("out\tout_of_scope\tyo\nout\tyo\n", encoding="utf-8")
    with pytest.raises(ValueError, match=r"scope\.tsv:2: 2 columns"):
        read_scope_questions(tmp_path / "scope.tsv")
