"""A later page, counts of facets and variants as one product, as each engine's own words have them."""

import sqlite3
from typing import Any, get_args

import pytest
from peakplan_client import CatalogueMapping, Plan, translate
from peakplan_client.shop import MAPPING, Shop
from peakplan_client.translating import Engine

SHOP = CatalogueMapping.load(MAPPING)
PLAN = Plan.model_validate({"facets": {"type": ["boots"]}, "queries": ["red boots"]})


def asked(engine: Any, plan: Plan = PLAN, **page: Any) -> tuple[Any, tuple[str, ...]]:
    made = translate(plan, SHOP, engine, "red boots", **page)
    return made.requests[0], made.notes


@pytest.mark.parametrize("engine", get_args(Engine))
def test_without_them_a_request_is_as_it_was(engine: Engine) -> None:
    assert asked(engine, offset=0, counts=(), group=None) == asked(engine)


@pytest.mark.parametrize(
    ("engine", "expected"),
    [
        ("opensearch", {"from": 20, "aggs": {"brand": {"terms": {"field": "brand"}}}, "collapse": {"field": "parent"}}),
        (
            "solr",
            {
                "offset": 20,
                "facet": {"brand": {"type": "terms", "field": "brand"}},
                "filter": ["{!collapse field=parent}"],
            },
        ),
        ("algolia", {"offset": 20, "length": 10, "facets": ["brand"], "distinct": True}),
        ("vespa", {"offset": 20, "collapsefield": "parent"}),
        (
            "meilisearch",
            {"federation": {"limit": 10, "offset": 20, "facetsByIndex": {"products": ["brand"]}, "distinct": "parent"}},
        ),
    ],
)
def test_an_engine_is_asked_in_its_own_words(engine: Engine, expected: dict[str, Any]) -> None:
    plain, _ = asked(engine)
    request, _ = asked(engine, offset=20, counts=["brand"], group="parent")
    assert request.items() >= expected.items()
    kept = {name: value for name, value in plain.items() if name not in {*expected, "yql"}}
    assert request.items() >= kept.items(), "what was asked stays"
    if engine == "vespa":
        assert request["yql"] == plain["yql"] + " | all(all(group(brand) each(output(count()))))"


@pytest.mark.parametrize("engine", ["typesense", "sqlite", "postgresql"])
def test_what_an_engine_has_not_is_noted(engine: Engine) -> None:
    assert any("neither facets are counted" in note for note in asked(engine, counts=["brand"])[1])
    assert any(
        "several lists" in note
        for note in asked("meilisearch", PLAN.model_copy(update={"sort": "price_asc"}), offset=1)[1]
    )


def test_the_second_page_of_a_table_begins_where_the_first_ends(tmp_path: Any) -> None:
    Shop.open(tmp_path)
    (database,) = tmp_path.glob("*.sqlite")
    pages = {}
    with sqlite3.connect(database) as connection:
        for limit, offset in ((10, 0), (5, 0), (5, 5)):
            statement, _ = asked("sqlite", limit=limit, offset=offset)
            pages[limit, offset] = connection.execute(statement.sql, statement.parameters).fetchall()
    assert pages[5, 0] + pages[5, 5] == pages[10, 0]
    assert len(pages[10, 0]) == 10


def test_a_field_is_a_name_and_nothing_else() -> None:
    with pytest.raises(ValueError, match="plain names"):
        asked("vespa", counts=["brand) each(output(count()"])
