"""Tests of what rules know better than the model's draft."""

import pytest

from service.planner.making.completion import complete_plan
from service.planner.making.second_look import second_look
from service.planner.plan import Plan
from service.planner.plan_text import parse
from service.planner.question import Question
from service.planner.reading.conversation import Conversation
from service.planner.vocabulary import shipped_vocabulary

VOCABULARY = shipped_vocabulary()


@pytest.mark.parametrize(
    ("query", "text", "intent"),
    [
        ("is there life on mars", " Other", "out_of_scope"),
        ("who made the barbie movie", " Other", "out_of_scope"),
        ("how do i wash a canada goose parka", " Other", "ask_product"),
        ("the mixer turned up smashed to bits", " Other", "returns_refunds"),
        ("do you price match prams", " Policy", "policy_help"),
        ("weber spirit or napoleon rogue, which one for five", " Advice Type spirit Any", "compare_products"),
        ("when will i see my refund", " Other", "returns_refunds"),
        ("who wrote hamlet", " Other", "out_of_scope"),
        ("thanks a lot", " Other", "out_of_scope"),
        (
            "nike pegasus and adidas boston side by side",
            " find And Brand nike And Brand adidas Any",
            "compare_products",
        ),
        ("compare and contrast workbook", " compare And Type workbook Any", "find_product"),
        ("nike shoes", " find Brand nike Any", "find_product"),
        ("a telly for under a grand", " Other", "find_product"),
        ("pies for sunday lunch, twenty five or less", " Other", "find_product"),
        ("transfer 50 quid to dave", " Other", "out_of_scope"),  # a sum, and no bound
        ("do you have wellies in a toddler size 6", " Ask answers Type wellies Fashion", "find_product"),
        ("any deals on car seats?", " Ask answers Type car seats Any", "find_product"),
        ("can the vacuum bags be washed", " Ask answers Type vacuum bags Home", "ask_product"),
        ("do you sell my data", " Policy", "policy_help"),
        ("i paid more than $50 and want my money back", " Other", "out_of_scope"),
        ("difference between bamboo sheets and cotton sheets", " ask answers Type sheets Home", "compare_products"),
    ],
)
def test_a_second_look_at_what_the_model_reads(query: str, text: str, intent: str) -> None:
    question = Question.parse(query)
    assert second_look(parse(text, question, VOCABULARY), Conversation(question), VOCABULARY).intent == intent


def test_another_language_is_told_whatever_the_model_reads() -> None:
    question = Question.parse("chaussures femme sans lacets")
    draft = second_look(parse(" find Type chaussures Any", question, VOCABULARY), Conversation(question), VOCABULARY)
    assert draft.foreign
    assert not draft.spans


@pytest.mark.parametrize(
    ("query", "text", "things"),
    [
        ("oil filter and air filter", " find Type oil filter and air filter Any", ["oil filter", "air filter"]),
        ("bird feeder, bird bath and suet balls for the garden", " find Foreign", None),
        ("salt and pepper grinder", " find Type salt and pepper grinder Any", []),
        ("baby monitor with camera and audio", " find Type baby monitor Feature with camera and audio Any", []),
    ],
)
def test_several_things_that_a_model_overlooks(query: str, text: str, things: list[str] | None) -> None:
    question = Question.parse(query)
    draft = second_look(parse(text, question, VOCABULARY), Conversation(question), VOCABULARY)
    parts = [part.queries[0] for part in complete_plan(draft, Conversation(question), VOCABULARY).parts]
    assert not draft.foreign
    assert len(parts) > 1 if things is None else parts == things


@pytest.mark.parametrize(
    ("query", "history", "text", "wanted"),
    [
        ("sneakers in black, not white", [], " find Type sneakers Not Color white Any", {"color": ["black"]}),
        (
            "not red, make it navy",
            ["red dress"],
            " find Type dress Not Color red Not Color navy Any",
            {"color": ["navy"]},
        ),
        (
            "i don't want nike, adidas please",
            ["nike shoes"],
            " find Type shoes Not Brand nike Not Brand adidas Any",
            {"brand": ["adidas"]},
        ),
        ("peanuts are ok", ["protein bars no peanuts"], " find Type protein bars Not Feature peanuts Any", {}),
        ("no leather or suede boots", [], " find Not Material leather Not Material suede Type boots Any", {}),
    ],
)
def test_what_rules_read_as_wanted_beside_a_refusal_is_wanted(
    query: str, history: list[str], text: str, wanted: dict[str, list[str]]
) -> None:
    conversation = Conversation(Question.parse(query, history))
    draft = second_look(parse(text, conversation.question, VOCABULARY), conversation, VOCABULARY)
    plan = complete_plan(draft, conversation, VOCABULARY)
    assert {facet: plan.facets[facet] for facet in ("color", "material", "brand") if facet in plan.facets} == wanted
    assert not any(set(values) & set(plan.exclude.get(facet, ())) for facet, values in wanted.items())


@pytest.mark.parametrize(
    ("query", "history", "text", "facets", "exclude"),
    [
        (
            "not leather but canvas backpack",
            [],
            " find Not Material leather but canvas Type backpack Any",
            {"material": ["canvas"], "type": ["backpack"]},
            {"material": ["leather"]},
        ),
        (
            "no samsung. lg in white",
            ["samsung washing machine"],
            " find Type washing machine Not Brand samsung Color white Any",
            {"brand": ["lg"], "type": ["washing machine"], "color": ["white"]},
            {"brand": ["samsung"]},
        ),
        (
            "in velvet rather than leather",
            ["leather armchair"],
            " find Type armchair Material velvet Any",
            {"type": ["armchair"], "material": ["velvet"]},
            {"material": ["leather"]},
        ),
        (
            "in black after all",
            ["plain backpack not black"],
            " find Type backpack Color black Any",
            {"type": ["backpack"], "color": ["black"]},
            {},
        ),
    ],
)
def test_what_a_model_overlooks_beside_a_refusal_is_as_rules_read_it(
    query: str, history: list[str], text: str, facets: dict[str, list[str]], exclude: dict[str, list[str]]
) -> None:
    plan = _planned(query, history, text)

    assert plan.facets == facets
    assert plan.exclude == exclude


@pytest.mark.parametrize(
    ("query", "text", "facets"),
    [
        ("cotton bed sheets", " find Type cotton bed sheets Any", {"material": ["cotton"], "type": ["bed sheets"]}),
        (
            "red nike running shoes",
            " find Brand red nike Type running shoes Any",
            {"color": ["red"], "brand": ["nike"], "type": ["running shoes"]},
        ),
        (
            "black and decker vacuum",
            " find Brand black and decker Type vacuum Any",
            {"brand": ["black and decker"], "type": ["vacuum"]},
        ),
        (
            "white elephant gift",
            " find Event white elephant Any",
            {"occasion": ["white elephant"]},
        ),
    ],
)
def test_a_color_or_material_is_no_part_of_what_both_readings_name(
    query: str, text: str, facets: dict[str, list[str]]
) -> None:
    assert _planned(query, [], text).facets == facets


def _planned(query: str, history: list[str], text: str) -> Plan:
    conversation = Conversation(Question.parse(query, history))
    draft = second_look(parse(text, conversation.question, VOCABULARY), conversation, VOCABULARY)
    return complete_plan(draft, conversation, VOCABULARY)
