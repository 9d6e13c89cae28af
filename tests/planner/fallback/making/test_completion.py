"""Tests of the plan that a draft means: closed phrases, refusals, parts, the history, search queries."""

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from service.planner.fallback.making.completion import complete_plan
from service.planner.fallback.reading.conversation import Conversation
from service.planner.plan import Plan
from service.planner.plan_text import parse
from service.planner.question import Question
from service.planner.vocabulary import PART_WORDS, shipped_vocabulary
from tests.planner.walks import questions, random_walk

VOCABULARY = shipped_vocabulary()
_COUCH = {"type": ["couch"]}
_COUCH = {"type": ["couch"]}


def plan_of(text: str, query: str, *history: str) -> Plan:
    conversation = Conversation(Question.parse(query, history))
    return complete_plan(parse(text, conversation.question, VOCABULARY), conversation, VOCABULARY)


@given(questions, st.integers(0, 1 << 30))
def test_whatever_a_model_may_write_becomes_a_valid_plan(question: Question, seed: int) -> None:
    conversation = Conversation(question)
    question = conversation.question
    draft = parse(random_walk(question, seed), question, VOCABULARY)
    plan = complete_plan(draft, conversation, VOCABULARY)
    Plan.model_validate_json(plan.model_dump_json())
    assert bool(plan.queries) == bool(plan.sources) == (VOCABULARY.intents[draft.intent].sources != ())
    utterances = " ".join(question.utterances)
    for item in (plan, *plan.parts):
        for facet, values in (*item.facets.items(), *item.exclude.items()):
            assert facet in VOCABULARY.facets
            assert all(value in utterances for value in values)
        assert not set(_values(item.facets)) & set(_values(item.exclude))


def _values(facets: dict[str, list[str]]) -> list[tuple[str, str]]:
    return [(facet, value.lower()) for facet, values in facets.items() for value in values]


@pytest.mark.parametrize(
    ("query", "text", "queries"),
    [
        ("red nike shoes", " find Color red Brand nike Type shoes Any", ["red nike shoes", "nike shoes"]),
        ("I want some red shoes", " Find Color red Type shoes Any", ["red shoes", "shoes"]),
        ("where is my package", " Status", ["package"]),
        ("what is it", " Policy", ["what is it"]),
        ("tell me a joke", " Other", []),
        ("the", " find Any", ["the"]),
        ("iphone 15 under 800", " find Line iphone Model 15 Any", ["iphone 15"]),
        ("toys for a 3 year old please, up to $30", " Find Type toys Any", ["toys 3 year old", "toys"]),
        ("show me desks lowest price first", " Find Type desks Any", ["desks"]),
        ("phone 4 stars and up with free shipping", " find Type phone Any", ["phone"]),
        ("a present that keeps dad busy", " Find Any", ["present keeps dad busy"]),
        ("is the acme kettle loud", " Ask reviews Brand acme Type kettle Any", ["acme kettle loud", "acme kettle"]),
        ("wirless hedphones", " find Feature wirless Type hedphones Any",
         ["wirless hedphones", "wireless headphones", "headphones"]),
        # Of a question the words are searched as they are; of a story, nine words and more, what it is about.
        ("is the acme kettle loud enough to wake small children behind doors",
         " Ask reviews Brand acme Type kettle Any",
         ["acme kettle loud wake small children behind doors", "acme kettle"]),
        ("is the acme kettle loud enough to wake small sleeping children behind doors",
         " Ask reviews Brand acme Type kettle Any", ["acme kettle"]),
        ("cheapest", " find Any", ["cheapest"]),
    ],
)  # fmt: skip
def test_queries_are_what_a_person_would_type(query: str, text: str, queries: list[str]) -> None:
    assert plan_of(text, query).queries == queries


@pytest.mark.parametrize(
    ("text", "sources"),
    [
        (" find Any", ["catalog"]),
        (" compare Any", ["catalog", "reviews"]),
        (" ask reviews answers Any", ["reviews", "qa"]),
        (" return", ["help", "orders"]),
        (" other", []),
    ],
)
def test_sources_follow_the_intent(text: str, sources: list[str]) -> None:
    assert plan_of(text, "shoes").sources == sources


def test_facet_values_are_the_shoppers_own_spelling_and_come_once() -> None:
    plan = plan_of(" find Color red blue Type shoes Color red blue Type hat Any", '"Red, Blue" shoes or Red, Blue hat')
    assert plan.facets == {"color": ["Red, Blue"], "type": ["shoes", "hat"]}


@pytest.mark.parametrize(
    ("query", "text", "facets", "exclude", "first"),
    [
        # The model says what is refused, or a rule does; in a phrase that the model reads, the rest is wanted.
        ("couch not leather", " find Type couch Not Material leather Any", _COUCH, {"material": ["leather"]}, "couch"),
        ("couch not leather", " find Type couch Material leather Any", _COUCH, {"material": ["leather"]}, "couch"),
        ("couch not leather", " find Type couch Any", _COUCH, {"material": ["leather"]}, "couch"),
        ("please no acme couch", " find Not Brand acme Type couch Any", _COUCH, {"brand": ["acme"]}, "couch"),
        # A name may hold such words.
        ("no show socks", " find Type no show socks Any", {"type": ["no show socks"]}, {}, "no show socks"),
        ("no cry sauce", " find Type no cry sauce Any", {"type": ["no cry sauce"]}, {}, "no cry sauce"),
        ("not your mother's shampoo", " find Not Theme your mother's Type shampoo Any",
         {"theme": ["your mother's"], "type": ["shampoo"]}, {}, "not your mother's shampoo"),
        ("can't live without coffee mug", " find Not Type coffee Type mug Any", {"type": ["coffee", "mug"]}, {},
         "can't live without coffee mug"),
        # A question states such words, and a trouble refuses nothing.
        ("does the tv work without wifi", " Ask answers Type tv Any", {"type": ["tv"]}, {}, "tv work without wifi"),
        ("get some sleep without noise", " Find Any", {}, {}, "sleep without noise"),
    ],
)  # fmt: skip
def test_refusals(query: str, text: str, facets: dict[str, Any], exclude: dict[str, Any], first: str) -> None:
    plan = plan_of(text, query)
    assert (plan.facets, plan.exclude, plan.queries[0]) == (facets, exclude, first)


def test_several_things_share_what_holds_for_all_and_have_their_own_price() -> None:
    text = " Find One Type desk Two Type lamp All Audience kids Any"
    plan = plan_of(text, "a desk under 200 euros and a lamp under 50 for kids")
    assert [part.facets for part in plan.parts] == [
        {"type": ["desk"], "audience": ["kids"]},
        {"type": ["lamp"], "audience": ["kids"]},
    ]
    assert [(part.price.max, part.price.currency) for part in plan.parts] == [(200, "EUR"), (50, None)]
    assert plan.queries == ["desk kids", "lamp kids"] == [part.queries[0] for part in plan.parts]
    assert (plan.facets, plan.price.max) == ({"audience": ["kids"]}, None)


def test_what_one_part_refuses_another_may_want() -> None:
    plan = plan_of(" find One Type coat Not Type hat Two Type hat Any", "coat no hat hat")
    assert [part.queries for part in plan.parts] == [["coat"], ["hat"]]
    plan = plan_of(" find Not Type hat One Type coat Two Type hat Any", "no hat, coat and hat")
    assert [bool(part.queries) for part in plan.parts] == [True, True]
    plan = plan_of(" find Not Color red One Color red Type coat Two Type hat Any", "no red, red coat and hat")
    assert [part.queries for part in plan.parts] == [["coat"], ["hat"]], "what no part refuses, all refuse"


@pytest.mark.parametrize(
    ("query", "text", "queries"),
    [
        ("printer ink hp 305 and a ream of a4", " find One Type printer ink Two Type ream Any",
         ["printer ink hp 305", "ream a4"]),
        ("shampoo for curly hair and a comb", " find One Type shampoo Two Type comb Any",
         ["shampoo curly hair", "comb"]),
        ("guitar strap and picks please", " find One Type guitar strap Two Type picks Any", ["guitar strap", "picks"]),
        ("kindle paperwhite or kobo for reading?", " Compare One Brand kindle Two Brand kobo Any",
         ["kindle paperwhite", "kobo"]),
        ("pampers against huggies, which is best", " compare One Brand pampers Two Brand huggies Three Brand which Any",
         ["pampers", "huggies"]),
    ],
)  # fmt: skip
def test_a_part_is_searched_for_in_the_shoppers_words(query: str, text: str, queries: list[str]) -> None:
    assert plan_of(text, query).queries == queries


@pytest.mark.parametrize(
    ("query", "text"),
    [
        ("strap and picks both in red", " find One Type strap Two Type picks Color red Any"),
        ("strap and picks, both for a 2012 focus", " find One Type strap Two Type picks Three Feature 2012 focus Any"),
    ],
)
def test_what_is_said_of_both_is_shared(query: str, text: str) -> None:
    plan = plan_of(text, query)
    assert [part.facets["type"] for part in plan.parts] == [["strap"], ["picks"]]
    assert plan.facets
    assert all(plan.facets.items() <= part.facets.items() for part in plan.parts)


def test_one_price_at_the_end_is_for_all_things() -> None:
    plan = plan_of(" find One Type desk Two Type lamp Any", "desk and lamp under 50")
    assert [part.price.max for part in plan.parts] == [50, 50]
    assert plan.price.max == 50


@pytest.mark.parametrize(("parts", "expected"), [(1, 0), (4, 4)])
def test_there_are_two_to_four_parts_or_none(parts: int, expected: int) -> None:
    things = ["desk", "lamp", "sofa", "rug"][:parts]
    named = " ".join(f"{part} Type {thing}" for part, thing in zip(PART_WORDS, things, strict=False))
    plan = plan_of(f" find {named} Any", ", ".join(things))
    assert (len(plan.parts), len(plan.queries)) == (expected, max(1, expected))


@pytest.mark.parametrize(
    ("history", "query", "text", "expected"),
    [
        (["desk under 400"], "remove the price limit", " find Type desk Any", {}),
        (["desk under 400"], "in oak", " find Type desk Material oak Any", {"max": 400}),
        (["laptop under 900", "now show me desks"], "in oak", " find Type desks Material oak Any", {}),
        (["laptop under 900"], "now show me desks", " Find Type desks Any", {}),
        (["desk under 400"], "between 100 and 200", " find Type desk Any", {"min": 100, "max": 200}),
        (["55 inch tv under 400"], "what about 65", " Find Type tv Size 65 Any", {"max": 400}),
    ],
)  # fmt: skip
def test_a_price_holds_until_it_is_replaced_or_lifted_or_the_topic_ends(
    history: list[str], query: str, text: str, expected: dict[str, Any]
) -> None:
    price = plan_of(text, query, *history).price
    assert price.model_dump() == {"min": None, "max": None, "currency": None} | expected


def test_sort_and_offers_of_the_history_stay_until_they_are_taken_back() -> None:
    plan = plan_of(" find Type drones Any", "it doesn't have to be on sale", "drones on sale", "cheapest first")
    assert (plan.sort, plan.offers) == ("price_asc", [])
    assert plan_of(" find Type drones Any", "newest first instead", "drones, cheapest first").sort == "newest"


def test_what_was_refused_before_stays_refused() -> None:
    plan = plan_of(" find Type stroller Any", "under 200", "stroller", "not acme")
    assert (plan.exclude, plan.queries) == ({"feature": ["acme"]}, ["stroller"])


def test_a_replaced_value_is_not_refused() -> None:
    plan = plan_of(" find Type coat Color green Any", "green rather than blue", "blue coat")
    assert (plan.facets, plan.exclude) == ({"type": ["coat"], "color": ["green"]}, {})


def test_a_foreign_question_is_searched_for_as_it_stands() -> None:
    plan = plan_of(" find Foreign", "Zapatos sin cordones, menos de 50 euros")
    assert plan.model_dump(exclude_defaults=True) == {
        "mode": "keyword",
        "intent": "find_product",
        "queries": ["Zapatos sin cordones, menos de 50 euros"],
        "sources": ["catalog"],
    }


def test_talk_has_no_closed_phrases() -> None:
    assert plan_of(" Other", "will it rain tomorrow").model_dump(exclude_defaults=True) == {
        "mode": "conversational",
        "intent": "out_of_scope",
    }


@pytest.mark.parametrize(
    ("said", "text", "wanted", "refused"),
    [
        (("linen curtains, off-white, not sheer",), " find Type curtains Not Color off-white Not Feature sheer Any",
         {"type": ["curtains"], "color": ["off-white"]}, {"feature": ["sheer"]}),
        (("wool scarf, not red", "in red"), " find Type scarf Not Color red Any",
         {"type": ["scarf"], "color": ["red"]}, {}),
        (("desk with a lamp", "no, the black one"), " find Type desk Not Color black Any",
         {"type": ["desk"], "color": ["black"]}, {}),
        (("shoes not nike", "what about nike"), " find Type shoes Not Brand nike Any",
         {"type": ["shoes"], "brand": ["nike"]}, {}),
        (("sofa, grey, no leather", "in leather"), " find Type sofa Not Material leather Any",
         {"type": ["sofa"], "material": ["leather"]}, {}),
        # What some word does refuse stays refused, wherever that word is.
        (("red is out, a desk lamp",), " find Not Color red Type desk lamp Any",
         {"type": ["desk lamp"]}, {"color": ["red"]}),
        (("a desk, red would be wrong",), " find Type desk Not Color red Any", {"type": ["desk"]}, {"color": ["red"]}),
    ],
)  # fmt: skip
def test_a_model_refuses_only_where_some_word_does(
    said: tuple[str, ...], text: str, wanted: dict[str, list[str]], refused: dict[str, list[str]]
) -> None:
    plan = plan_of(text, said[-1], *said[:-1])
    assert (plan.facets, plan.exclude) == (wanted, refused)


def test_a_later_utterance_may_refuse_what_an_earlier_one_names() -> None:
    assert Conversation(Question.parse("that colour isn't for me", ["red shoes"])).is_denied(0, 0)
    assert not Conversation(Question.parse("that colour is for me", ["red shoes"])).is_denied(0, 0)
