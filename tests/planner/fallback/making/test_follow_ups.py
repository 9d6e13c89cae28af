"""Tests of what a follow-up changes by rule, whatever a model labelled in it: model texts here leave words out."""

from typing import Any

import pytest

from service.planner.plan import Plan
from tests.planner.fallback.making.test_completion import plan_of


def wanted(plan: Plan) -> tuple[dict[str, list[str]], str]:
    return plan.facets, plan.queries[0]


@pytest.mark.parametrize(
    ("history", "query", "text", "facets", "first"),
    [
        # A number replaces the only one of its unit; without one, the only number, where nothing else is said.
        (["trail shoes size 8"], "actually make it a 9", " Find Type trail shoes Size size 8 Brand make it a 9 Any",
         {"type": ["trail shoes"], "size": ["9"]}, "trail shoes 9"),
        (["4 person tent with porch"], "6 person", " find Type tent Size 6 person Any",
         {"type": ["tent"], "size": ["6 person"]}, "tent porch 6 person"),
        (["hose 15m green"], "30m and brass", " find Type hose Size 30m Any",
         {"type": ["hose"], "size": ["30m"], "material": ["brass"]}, "hose green 30m brass"),
        (["oil 5w30 5 litres"], "5w40", " find Type oil Any", {"type": ["oil"], "size": ["5w40"]}, "oil 5 litres 5w40"),
        # So does a color, a material, an audience or a size; the rest stands, labelled or not.
        (["oak bookshelf 5 tier"], "same but in walnut", " find Type oak bookshelf Shape walnut Any",
         {"type": ["bookshelf"], "material": ["walnut"]}, "bookshelf 5 tier walnut"),
        (["shoes womens leather"], "same for men", " find Type shoes Audience womens Any",
         {"type": ["shoes"], "audience": ["men"]}, "shoes leather men"),
        (["dog harness no pull", "medium"], "sorry large", " find Type dog harness Any",
         {"type": ["dog harness"], "size": ["large"]}, "dog harness no pull large"),
        (["chinos navy slim fit"], "regular fit", " find Type chinos Color navy Shape slim fit Shape regular fit Any",
         {"type": ["chinos"], "color": ["navy"], "shape": ["regular fit"]}, "chinos navy regular fit"),
        (["samsung fridge"], "what about lg?", " find Brand samsung Type fridge Size lg Any",
         {"type": ["fridge"], "brand": ["lg"]}, "fridge lg"),
        (["satchel", "brown"], "nah black instead", " Find Type satchel Color brown Not Color nah black Any",
         {"type": ["satchel"], "color": ["black"]}, "satchel black"),
    ],
)  # fmt: skip
def test_a_value_replaces_one_of_its_kind(
    history: list[str], query: str, text: str, facets: dict[str, Any], first: str
) -> None:
    assert wanted(plan_of(text, query, *history)) == (facets, first)


@pytest.mark.parametrize(
    ("history", "query", "text", "facets", "first"),
    [
        (["mouse logitech wireless"], "remove logitech", " find Type mouse Brand logitech Any",
         {"type": ["mouse"]}, "mouse wireless"),
        (["waterproof trousers"], "it doesnt have to be waterproof", " Find Feature waterproof Type trousers Any",
         {"type": ["trousers"]}, "trousers"),
        (["polo shirt navy"], "scrap the colour, any will do", " Find Type polo shirt Color navy Any",
         {"type": ["polo shirt"]}, "polo shirt"),
        (["coat wool"], "any fabric is ok actually", " Find Type coat Any", {"type": ["coat"]}, "coat"),
        (["tent"], "forget the tent", " find Type tent Any", {"type": ["tent"]}, "tent"),
    ],
)  # fmt: skip
def test_a_wish_is_taken_back(history: list[str], query: str, text: str, facets: dict[str, Any], first: str) -> None:
    assert wanted(plan_of(text, query, *history)) == (facets, first)


def test_a_refusal_ends_the_wish_of_before_wherever_it_is_labelled() -> None:
    plan = plan_of(" find Type fan Feature with light Not Type light Any", "without the light", "fan with light")
    assert (plan.facets, plan.exclude, plan.queries) == ({"type": ["fan"]}, {"type": ["light"]}, ["fan"])
    plan = plan_of(" find Brand bosch Feature dishwasher integrated Any", "freestanding not integrated",
                   "bosch dishwasher integrated")  # fmt: skip
    assert plan.facets == {"brand": ["bosch"], "feature": ["dishwasher", "freestanding"]}
    assert (plan.exclude, plan.queries[0]) == ({}, "bosch dishwasher freestanding")  # replaced: nothing is refused


def test_an_unlabelled_wish_is_searched_for() -> None:
    assert wanted(plan_of(" find Type nappies Any", "she's in a 5 now", "eco nappies size 4")) == (
        {"type": ["nappies"], "size": ["5"]},
        "eco nappies 5",
    )
    assert plan_of(" Find Type nappies Any", "who makes them", "nappies size 4").facets == {"type": ["nappies"]}


def test_a_story_before_the_thing_is_not_searched_for() -> None:
    history = ("hi, my sister has moved and i want to get her a lamp", "brass")
    assert plan_of(" find Type lamp Material brass Any", "under 80", *history).queries[0] == "lamp brass"


def test_a_new_topic_keeps_nothing() -> None:
    assert plan_of(" find Type desk Any", "desk", "red 4 person tent").queries == ["desk"]


@pytest.mark.parametrize(
    ("history", "query", "text", "first"),
    [
        (["air force 1 size 9"], "10.5", " find Line air force Size 10.5 Any", "air force 1 10.5"),
        (["tyres 195/65 r15"], "what about r16", " Find Type tyres Size r16 Any", "tyres 195/65 r16"),
        (["levis 501 34 waist"], "36 waist", " find Brand levis Model 501 Any", "levis 501 36 waist"),
        (["kids bike", "16 inch", "for my daughter"], "20 inch", " find Audience daughter Size 20 inch Any",
         "kids bike daughter 20 inch"),
        (["hose 15m"], "too short, 30m", " find Type hose Size 30m Any", "hose 30m"),
        # The thing itself is another where the words say so.
        (["yellow raincoat"], "wellies instead", " find Color yellow Type raincoat Type wellies Any", "yellow wellies"),
        (["black pack"], "round instead", " find Type pack Shape round Any", "black pack round"),
        (["dog lead purple"], "um no make that orange please", " Find Type dog lead Any", "dog lead orange"),
    ],
)  # fmt: skip
def test_what_stands_is_searched_for(history: list[str], query: str, text: str, first: str) -> None:
    assert plan_of(text, query, *history).queries[0] == first


def test_a_standing_color_is_searched_for_though_a_model_forgets_it_and_the_last_one_counts() -> None:
    plan = plan_of(" find Type goggles Audience for kids Any", "for kids", "swim goggles", "blue", "actually pink")
    assert plan.queries[0] == "swim goggles pink for kids"
