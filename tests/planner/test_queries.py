import pytest

from service.planner.plan_text import parse
from service.planner.queries import complete_plan
from service.planner.question import Question


@pytest.mark.parametrize(
    ("query", "history", "text", "queries"),
    [
        ("red nike shoes", [], " find Color red Brand nike Type shoes Any", ["red nike shoes", "nike shoes"]),
        ("nike shoes under $40", [], " find Brand nike Type shoes Under 40 Any", ["nike shoes"]),
        ("tv 20 to 40 dollars wall", [], " find Type tv Over 20 Under 40 Any", ["tv wall", "tv"]),
        ("I want some red shoes", [], " Find Color red Type shoes Any", ["red shoes", "shoes"]),
        ("couch not leather", [], " find Type couch Material not leather Any", ["couch"]),
        ("sneakrs", [], " find Type sneakrs Try sneakrs sneakers Fashion", ["sneakrs", "sneakers"]),
        (
            "in red?",
            ["running shoes"],
            " Find Type running shoes Color red Any",
            ["running shoes red", "running shoes"],
        ),
        ("where is my package", [], " Status", ["package"]),
        ("what is it", [], " Policy", ["what is it"]),
        ("tell me a joke", [], " Other", []),
        ("the", [], " find Any", ["the"]),
    ],
)
def test_queries_go_from_strict_to_wide(query: str, history: list[str], text: str, queries: list[str]) -> None:
    question = Question.parse(query, history)
    assert complete_plan(parse(text, question), question).queries == queries


@pytest.mark.parametrize(
    ("text", "sources"),
    [
        (" find Any", ["catalog"]),
        (" find reviews Any", ["catalog", "reviews"]),
        (" ask reviews answers Any", ["reviews", "qa"]),
        (" return", ["help", "orders"]),
        (" other", []),
    ],
)
def test_sources_follow_the_intent(text: str, sources: list[str]) -> None:
    question = Question.parse("shoes")
    assert complete_plan(parse(text, question), question).sources == sources


def test_facet_values_are_the_shoppers_own_spelling_and_come_once() -> None:
    question = Question.parse('"Red, Blue" shoes or Red, Blue hat')
    plan = complete_plan(parse(" find Color red blue Type shoes Color red blue Type hat Any", question), question)
    assert plan.facets == {"color": ["Red, Blue"], "type": ["shoes", "hat"]}
