"""Translations to PostgreSQL, executed by a real server."""

import re
from collections.abc import Iterator
from typing import Any

import pytest
from peakplan_client import CatalogueMapping, MappingError, Plan, translate

from tests.clients.test_engine_words import HOSTILE
from tests.clients.test_sqlite import MAPPING, ROWS
from tests.postgresql_server import postgresql

COLUMNS = (
    "title text, description text, brand text, color text, department text, price numeric, stars real, "
    "stock integer, sale boolean"
)
SEARCH = (
    "search tsvector GENERATED ALWAYS AS (setweight(to_tsvector('english', coalesce(title, '')), 'A') || "
    "setweight(to_tsvector('english', coalesce(description, '')), 'B')) STORED"
)


@pytest.fixture(scope="module")
def catalogue() -> Iterator[Any]:
    with postgresql() as address:
        import psycopg

        with psycopg.connect(address, autocommit=True) as connection:
            connection.execute(f"CREATE TABLE products ({COLUMNS}, {SEARCH})")
            connection.execute("CREATE INDEX ON products USING gin (search)")
            rows = [(*row[:8], bool(row[8])) for row in ROWS]
            marks = ", ".join(["%s"] * 9)
            connection.cursor().executemany(f"INSERT INTO products VALUES ({marks})", rows)
            yield connection


def titles(catalogue: Any, question: str, **plan: Any) -> list[str]:
    plan = {"queries": [question], **plan}
    requests = translate(Plan.model_validate(plan), MAPPING, "postgresql", question).requests
    return [row[0] for each in requests for row in catalogue.execute(each.sql, each.parameters)]


def test_any_word_finds_and_more_words_lead(catalogue: Any) -> None:
    found = titles(catalogue, "red boots")

    assert found[0] == "red boots"
    assert set(found) == {row[0] for row in ROWS}


def test_price_rating_offers_and_exclusions_filter(catalogue: Any) -> None:
    def found(**plan: Any) -> set[str]:
        return set(titles(catalogue, "boots", **plan))

    assert found(price={"min": 60, "max": 120}) == {"red boots", "blue boots", "crimson hiking boots"}
    assert found(rating={"min": 4}) == {"red boots", "crimson hiking boots"}
    assert found(offers=["in_stock"]) == {"red boots", "boot tray", "crimson hiking boots"}
    assert found(offers=["on_sale"]) == {"blue boots", "crimson hiking boots"}
    assert found(exclude={"brand": ["NIKE"]}) == {"blue boots", "boot tray", "crimson hiking boots"}
    assert found(exclude={"material": ["leather"]}) == {"boot tray"}  # suede is leather
    assert found(exclude={"color": ["crimson"]}, price={"min": 10}) == {"blue boots"}
    assert found(exclude={"feature": ["hiking boots"]}) == {"red boots", "blue boots", "boot tray"}  # a phrase


def test_facets_lift_and_hide_nothing(catalogue: Any) -> None:
    facets = {"brand": ["keen"], "type": ["hiking boots"]}
    plain, lifted = titles(catalogue, "boots"), titles(catalogue, "boots", facets=facets)

    assert lifted[0] == "crimson hiking boots" != plain[0]
    assert set(lifted) == set(plain)


def test_a_price_sort_orders_what_is_the_thing(catalogue: Any) -> None:
    found = titles(catalogue, "red boots", sort="price_asc", facets={"type": ["boots"], "color": ["red"]})

    assert found == ["crimson hiking boots", "red boots", "boot tray", "blue boots", "red candle"]
    assert titles(catalogue, "blue boots", sort="price_asc")[0] == "blue boots"  # the tray is cheaper


def test_a_product_without_a_price_is_not_the_cheapest(catalogue: Any) -> None:
    with catalogue.transaction(force_rollback=True):
        catalogue.execute("UPDATE products SET price = NULL WHERE title = 'red boots'")
        found = titles(catalogue, "boots", sort="price_asc")
    assert found.index("red boots") > max(found.index("blue boots"), found.index("boot tray"))


@pytest.mark.parametrize("said", HOSTILE)
def test_hostile_words_are_words(catalogue: Any, said: str) -> None:
    for place in ("facets", "exclude"):
        values = {facet: [said, "boots"] for facet in ("brand", "color", "type", "material")}
        titles(catalogue, said, **{place: values})
    assert catalogue.execute("SELECT count(*) FROM products").fetchone() == (len(ROWS),)
    assert "red candle" in titles(catalogue, f"{said} candle")


KNOWN = set(
    "WITH asked AS SELECT to_tsquery s text0 text1 text2 scored item ts_rank search int coalesce lower text ANY FALSE "
    "phraseto_tsquery said FROM unnest CROSS JOIN products WHERE AND NOT ts_filter ORDER BY score DESC ASC LIMIT brand "
    "color a b COALESCE is_kind has_facets max NULLS LAST price".split()
)


@pytest.mark.parametrize("said", HOSTILE)
def test_no_word_of_a_shopper_is_part_of_the_statement(said: str) -> None:
    values = {facet: [said, "boots"] for facet in ("brand", "color", "type", "material")}
    plan = {"queries": [said, "boots"], "facets": values, "exclude": values, "sort": "price_asc"}
    for request in translate(Plan.model_validate(plan), MAPPING, "postgresql", f"{said} candle").requests:
        assert set(re.findall(r"[^\W\d]\w*", request.sql)) <= KNOWN
        assert request.sql.count("%s") == len(request.parameters)


def test_a_catalogue_s_quotes_are_a_parameter(catalogue: Any) -> None:
    """A mapping is trusted, but its values may hold quotes and signs of any kind."""
    for value in ("it's", 'a"b', "\\", "%s", "{a,b}", "x'; DROP TABLE products; --"):
        facets = {"brand": {"field": "brand", "values": {value: ["it"]}}}
        mapping = MAPPING.model_copy(
            update={"facets": CatalogueMapping.model_validate({**MAPPING.model_dump(), "facets": facets}).facets}
        )
        plan = Plan(queries=["boots"], exclude={"brand": ["it"]}, facets={"brand": ["it"]}, sort="price_asc")
        (request,) = translate(plan, mapping, "postgresql", "boots").requests
        assert len(re.findall("%s", request.sql)) == len(request.parameters)
        assert len(catalogue.execute(request.sql, request.parameters).fetchall()) == 4


def test_thousands_of_words_and_exclusions_are_one_condition(catalogue: Any) -> None:
    refused = {facet: [f"x{number}" for number in range(3000)] for facet in ("brand", "material")}
    assert "red boots" in titles(catalogue, "boots", exclude=refused)
    assert "red boots" in titles(catalogue, " ".join(f"w{number}" for number in range(3000)) + " boots")


def test_a_search_uses_the_index(catalogue: Any) -> None:
    (request,) = translate(Plan(queries=["red boots"]), MAPPING, "postgresql", "red boots").requests
    with catalogue.transaction(force_rollback=True):
        catalogue.execute("INSERT INTO products (title, price) SELECT 'thing ' || n, n FROM generate_series(1, 5000) n")
        catalogue.execute("ANALYZE products")
        steps = catalogue.execute(f"EXPLAIN {request.sql}", request.parameters).fetchall()
    assert any("Bitmap Index Scan" in step for (step,) in steps), steps


def test_a_nested_field_is_refused_and_a_schema_is_not() -> None:
    mapping = CatalogueMapping.model_validate({"index": "a.p", "text": {"t": 1}, "price": {"field": "price.usd"}})
    with pytest.raises(MappingError, match=r"'price\.usd' is no column"):
        translate(Plan.model_validate({"queries": ["x"], "price": {"max": 1}}), mapping, "postgresql", "x")
    (request,) = translate(Plan(queries=["x"]), mapping, "postgresql", "x").requests
    assert 'FROM "a"."p" AS item' in request.sql


def test_the_fifth_text_and_those_after_it_share_the_last_weight() -> None:
    text = dict(zip("abcdef", range(6, 0, -1), strict=True))
    mapping = CatalogueMapping.model_validate({"index": "p", "text": text, "exclude_text": ["b", "e", "f"]})
    (request,) = translate(Plan(queries=["x"], exclude={"brand": ["y"]}), mapping, "postgresql", "x").requests

    assert "ts_rank('{0.5000,0.6667,0.8333,1.0000}'" in request.sql
    assert "ts_filter(item.\"search\", '{b,d}')" in request.sql
