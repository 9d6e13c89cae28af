"""Ratings in answers over the rated catalogue that a seed makes; here with plans by rule."""

import asyncio
from collections.abc import Iterator
from typing import Any

import pytest
from peakplan_client import catalogue
from peakplan_client.catalogue import Product
from peakplan_client.mapping import CatalogueMapping
from peakplan_client.shop import MAPPING, Shop

from rehearsal.rated import WAYS, measure, questions, rated_shop, rating_of
from service.planner.fallback.making.plans import plan_by_rule
from service.planner.fallback.reading.conversation import Conversation
from service.planner.question import Question
from service.planner.vocabulary import shipped_vocabulary


@pytest.fixture(scope="module")
def products() -> dict[str, Product]:
    return {each.id: each for each in catalogue.read()}


@pytest.fixture(scope="module")
def shop(tmp_path_factory: pytest.TempPathFactory, products: dict[str, Product]) -> Iterator[Shop]:
    made = rated_shop(tmp_path_factory.mktemp("rated"), products)
    yield made
    made.close()


async def by_rule(query: str) -> dict[str, Any]:
    return plan_by_rule(Conversation(Question.parse(query)), shipped_vocabulary()).model_dump()


def test_three_options_meet_price_exclusions_and_rating_in_95_percent_of_the_kept_questions(
    shop: Shop, products: dict[str, Product]
) -> None:
    found = asyncio.run(measure(by_rule, shop, products))
    assert found["questions"] == 200
    assert found["all_meet"] >= 0.95, found["wrong"]
    assert found["three"] >= 190
    unfiltered = shop.with_mapping(CatalogueMapping.load(MAPPING))
    assert asyncio.run(measure(by_rule, unfiltered, products))["all_meet"] < 0.3, "without a filter hardly any would"


def test_the_catalogue_and_the_questions_are_the_same_every_time(products: dict[str, Product]) -> None:
    ratings = [rating_of(each) for each in products.values()]
    assert ratings == [rating_of(each) for each in products.values()]
    assert 1.0 <= min(ratings) < 2.0 < 4.5 < max(ratings) <= 5.0
    asked = questions()
    assert len({row["query"] for row in asked}) == len(asked) == 200
    assert {row["rating"] for row in asked} == {least for _, least in WAYS}
