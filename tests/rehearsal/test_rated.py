"""Ratings in answers over the rated catalogue that a seed makes; here with plans by reader and model."""

import asyncio
from collections.abc import Iterator
from typing import Any

import pytest
from peakplan_client import catalogue
from peakplan_client.catalogue import Product
from peakplan_client.mapping import CatalogueMapping
from peakplan_client.shop import MAPPING, Shop

from rehearsal.answers import measure_rated, questions, rated_shop
from rehearsal.bench.conversations import generator
from service.planner.completion import plan_from_text
from service.planner.planner import read_plan
from service.planner.prompt import PlanTask
from service.planner.question import Question
from service.planner.reader.reading import Reader
from service.planner.vocabulary import shipped_vocabulary
from service.settings.choices import SHIPPED_MODEL

READER = Reader.load(SHIPPED_MODEL)
WRITES = generator(SHIPPED_MODEL)
RATINGS = {row["query"]: row["rating"] for row in questions()}


@pytest.fixture(scope="module")
def products() -> dict[str, Product]:
    return {each.id: each for each in catalogue.read()}


@pytest.fixture(scope="module")
def shop(tmp_path_factory: pytest.TempPathFactory, products: dict[str, Product]) -> Iterator[Shop]:
    made = rated_shop(tmp_path_factory.mktemp("rated"), products)
    yield made
    made.close()


async def planned(query: str) -> dict[str, Any]:
    """Return the reader's plan with the rating that was asked for: how well it reads ratings is measured elsewhere."""
    plan = read_plan(PlanTask(Question.parse(query), shipped_vocabulary(), reader=READER))
    return plan.model_dump() | {"rating": {"min": RATINGS[query]}}


@pytest.fixture(scope="module")
def by_model(shop: Shop, products: dict[str, Product]) -> dict[str, Any]:
    async def written(query: str) -> dict[str, Any]:
        task = PlanTask(Question.parse(query), shipped_vocabulary())
        return plan_from_text(WRITES(task), task.question, task.vocabulary).model_dump()

    return asyncio.run(measure_rated(written, shop, products))


@pytest.mark.slow
def test_three_options_are_shown_for_95_percent_of_the_kept_questions(by_model: dict[str, Any]) -> None:
    assert by_model["questions"] == 200
    assert by_model["three"] >= 190


@pytest.mark.slow
@pytest.mark.xfail(strict=True, reason="the model misses one rating in eight: `python -m rehearsal.answers`")
def test_all_options_meet_price_exclusions_and_rating_in_95_percent(by_model: dict[str, Any]) -> None:
    assert by_model["all_meet"] >= 0.95, by_model["wrong"]


def test_a_rating_that_is_asked_for_reaches_the_products(shop: Shop, products: dict[str, Product]) -> None:
    found = asyncio.run(measure_rated(planned, shop, products))
    assert (found["questions"], found["rated_worse"]) == (200, 0)
    unfiltered = asyncio.run(measure_rated(planned, shop.with_mapping(CatalogueMapping.load(MAPPING)), products))
    assert unfiltered["rated_worse"] > 100
    assert unfiltered["all_meet"] < 0.3, "without a filter hardly any would"
    assert found["all_meet"] > 2 * unfiltered["all_meet"]
