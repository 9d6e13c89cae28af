"""Translations to SQLite, executed."""

import contextlib
import sqlite3
from collections.abc import Iterator
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from peakplan_client import CatalogueMapping, MappingError, Plan, translate

from tests.clients.test_engine_words import HOSTILE

MAPPING = CatalogueMapping.model_validate(
    {
        "index": "products",
        "text": {"title": 3, "description": 1},
        "exclude_text": ["title", "description"],
        "facets": {
            "brand": {"field": "brand"},
            "color": {"field": "color", "values": {"Red": ["crimson"]}},
            "type": {},
        },
        "vertical": {"field": "department", "values": {"apparel-accessories": ["Shoes"]}},
        "price": {"field": "price", "currency": "USD"},
        "rating": {"field": "stars"},
        "offers": {"in_stock": {"field": "stock", "min": 1}, "on_sale": {"field": "sale", "values": [True]}},
        "sort": {"price_asc": {"field": "price", "order": "asc"}, "price_desc": {"field": "price"}},
    }
)
COLUMNS = "title, description, brand, color, department, price, stars, stock, sale"
ROWS = [
    ("red boots", "of leather", "Nike", "Red", "Shoes", 120, 4.5, 3, 0),
    ("blue boots", "of suede", "Adidas", "Blue", "Shoes", 60, 3.0, 0, 1),
    ("boot tray", "keeps the floor dry", None, None, "Home", 9, None, 5, 0),
    ("crimson hiking boots", "no leather at all", "Keen", "Red", "Shoes", 90, 4.8, 1, 1),
    ("red candle", "smells of apple", "Glow", "Red", "Home", 12, 4.0, 7, 0),
]


def build() -> sqlite3.Connection:
    connection = sqlite3.connect(":memory:")
    connection.execute(f"CREATE TABLE products ({COLUMNS})")
    connection.executemany(f"INSERT INTO products VALUES ({','.join('?' * 9)})", ROWS)
    connection.execute(
        "CREATE VIRTUAL TABLE products_text USING fts5(title, description, content='products', tokenize='porter')"
    )
    connection.execute(
        "INSERT INTO products_text (rowid, title, description) SELECT rowid, title, description FROM products"
    )
    return connection


@pytest.fixture(scope="module")
def catalogue() -> Iterator[sqlite3.Connection]:
    with contextlib.closing(build()) as connection:
        yield connection


def titles(catalogue: sqlite3.Connection, question: str, **plan: Any) -> list[str]:
    found: list[str] = []
    for statement in translate(
        Plan.model_validate({"queries": [question], **plan}), MAPPING, "sqlite", question
    ).requests:
        found += [row[0] for row in catalogue.execute(statement.sql, statement.parameters)]
    return found


def test_any_word_finds_and_more_words_lead(catalogue: sqlite3.Connection) -> None:
    found = titles(catalogue, "red boots")

    assert found[0] == "red boots"
    assert set(found) == {row[0] for row in ROWS}


def test_price_rating_offers_and_exclusions_filter(catalogue: sqlite3.Connection) -> None:
    assert set(titles(catalogue, "boots", price={"min": 60, "max": 120})) == {
        "red boots",
        "blue boots",
        "crimson hiking boots",
    }
    assert set(titles(catalogue, "boots", rating={"min": 4})) == {"red boots", "crimson hiking boots"}
    assert set(titles(catalogue, "boots", offers=["in_stock"])) == {"red boots", "boot tray", "crimson hiking boots"}
    assert set(titles(catalogue, "boots", offers=["on_sale"])) == {"blue boots", "crimson hiking boots"}
    assert set(titles(catalogue, "boots", exclude={"brand": ["NIKE"]})) == {
        "blue boots",
        "boot tray",
        "crimson hiking boots",
    }
    assert set(titles(catalogue, "boots", exclude={"material": ["leather"]})) == {"boot tray"}  # suede is leather
    assert titles(catalogue, "boots", exclude={"color": ["crimson"]}, price={"min": 10}) == ["blue boots"]


def test_facets_lift_and_hide_nothing(catalogue: sqlite3.Connection) -> None:
    plain = titles(catalogue, "boots")
    lifted = titles(
        catalogue, "boots", facets={"brand": ["keen"], "type": ["hiking boots"]}, vertical="apparel-accessories"
    )

    assert lifted[0] == "crimson hiking boots" != plain[0]
    assert set(lifted) == set(plain)


def test_a_sort_orders_what_matches_well_first(catalogue: sqlite3.Connection) -> None:
    found = titles(catalogue, "blue boots", sort="price_asc")

    assert found[:2] == ["blue boots", "boot tray"]  # the tray is the cheapest of all that has one of the words
    assert set(found) == set(titles(catalogue, "blue boots"))
    assert titles(catalogue, "boots", sort="price_desc", exclude={"type": ["tray"]})[0] == "red boots"


def test_a_price_sort_orders_what_is_the_thing(catalogue: sqlite3.Connection) -> None:
    found = titles(catalogue, "red boots", sort="price_asc", facets={"type": ["boots"], "color": ["red"]})

    # The candle is cheaper and as red, the tray and the blue boots are cheaper and not red.
    assert found == ["crimson hiking boots", "red boots", "boot tray", "blue boots", "red candle"]
    assert set(found) == set(titles(catalogue, "red boots"))


@pytest.mark.parametrize("said", HOSTILE)
def test_hostile_words_are_words(catalogue: sqlite3.Connection, said: str) -> None:
    for place in ("facets", "exclude"):
        values = {facet: [said, "boots"] for facet in ("brand", "color", "type", "material")}
        titles(catalogue, said, **{place: values})
    assert catalogue.execute("SELECT count(*) FROM products").fetchone() == (len(ROWS),)
    assert "red candle" in titles(catalogue, f"{said} candle")


plans = st.fixed_dictionaries(
    {
        "queries": st.lists(st.text(max_size=30), min_size=1, max_size=3),
        "facets": st.dictionaries(
            st.sampled_from(["brand", "color", "type", "x"]), st.lists(st.text(max_size=20), max_size=2)
        ),
        "vertical": st.sampled_from([None, "apparel-accessories", "other"]),
        "sort": st.sampled_from(["relevance", "price_asc", "newest"]),
    }
)


@given(plans, st.lists(st.sampled_from('red boots candle floor suede NOT " ( ?'.split()), max_size=6).map(" ".join))
def test_a_plan_without_filters_finds_all_that_the_raw_words_find(plan: dict[str, Any], question: str) -> None:
    with contextlib.closing(build()) as catalogue:
        assert set(titles(catalogue, question)) <= set(titles(catalogue, question, **plan))


def test_a_nested_field_is_refused() -> None:
    mapping = CatalogueMapping.model_validate({"index": "p", "text": {"t": 1}, "price": {"field": "price.usd"}})
    with pytest.raises(MappingError, match=r"'price\.usd' is no column"):
        translate(Plan.model_validate({"queries": ["x"], "price": {"max": 1}}), mapping, "sqlite", "x")


@pytest.mark.parametrize("facet", ["brand", "material"])
def test_thousands_of_exclusions_are_one_condition(catalogue: sqlite3.Connection, facet: str) -> None:
    """SQLite refuses an expression that is deeper than 1,000."""
    refused = [f"x{number}" for number in range(3000)]
    real = "nike" if facet == "brand" else "red"
    assert "red boots" in titles(catalogue, "boots", exclude={facet: refused})
    assert "red boots" not in titles(catalogue, "boots", exclude={facet: [*refused, real]})


def test_a_product_without_a_price_is_not_the_cheapest() -> None:
    with contextlib.closing(build()) as catalogue:
        catalogue.execute("UPDATE products SET price = NULL WHERE title = 'red boots'")
        found = titles(catalogue, "boots", sort="price_asc")
    assert found.index("red boots") > max(found.index("blue boots"), found.index("boot tray"))
