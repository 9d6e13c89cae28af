"""Translations to tables, executed by SQLite and by a PostgreSQL server."""

import contextlib
import re
import sqlite3
from collections.abc import Iterator
from typing import Any

import pytest
import yaml
from hypothesis import given
from hypothesis import strategies as st
from peakplan_client import CatalogueMapping, MappingError, Plan, translate

from tests.clients.test_engines import HOSTILE
from tests.postgresql_server import postgresql

MAPPING = CatalogueMapping.model_validate(
    yaml.safe_load("""
index: products
text: {title: 3, description: 1}
exclude_text: [title, description]
facets: {brand: {field: brand}, color: {field: color, values: {Red: [crimson]}}, type: {}}
vertical: {field: department, values: {apparel-accessories: [Shoes]}}
price: {field: price, currency: USD}
rating: {field: stars}
offers: {in_stock: {field: stock, min: 1}, on_sale: {field: sale, values: [true]}}
sort: {price_asc: {field: price, order: asc}, price_desc: {field: price}}
""")
)
COLUMNS = (
    "title text, description text, brand text, color text, department text, price numeric, stars real, "
    "stock integer, sale boolean"
)
SEARCH = (
    "search tsvector GENERATED ALWAYS AS (setweight(to_tsvector('english', coalesce(title, '')), 'A') || "
    "setweight(to_tsvector('english', coalesce(description, '')), 'B')) STORED"
)
ROWS = [
    ("red boots", "of leather", "Nike", "Red", "Shoes", 120, 4.5, 3, False),
    ("blue boots", "of suede", "Adidas", "Blue", "Shoes", 60, 3.0, 0, True),
    ("boot tray", "keeps the floor dry", None, None, "Home", 9, None, 5, False),
    ("crimson hiking boots", "no leather at all", "Keen", "Red", "Shoes", 90, 4.8, 1, True),
    ("red candle", "smells of apple", "Glow", "Red", "Home", 12, 4.0, 7, False),
]
TITLES = {row[0] for row in ROWS}


class Table:
    """The catalogue in one database."""

    def __init__(self, engine: Any, connection: Any) -> None:
        self.engine, self.connection = engine, connection

    def titles(self, question: str, **plan: Any) -> list[str]:
        """Return the titles that a plan finds, best first."""
        asked = Plan.model_validate({"queries": [question], **plan})
        requests = translate(asked, MAPPING, self.engine, question).requests
        return [row[0] for each in requests for row in self.connection.execute(each.sql, each.parameters)]

    @contextlib.contextmanager
    def changed(self, statement: str) -> Iterator[None]:
        """Change the table for a while."""
        if self.engine == "sqlite":
            self.connection.execute(statement)
            yield
            self.connection.rollback()
        else:
            with self.connection.transaction(force_rollback=True):
                self.connection.execute(statement)
                yield


def in_sqlite() -> sqlite3.Connection:
    connection = sqlite3.connect(":memory:")
    connection.execute(f"CREATE TABLE products ({COLUMNS})")
    connection.executemany(f"INSERT INTO products VALUES ({','.join('?' * 9)})", ROWS)
    text = "products_text USING fts5(title, description, content='products', tokenize='porter')"
    connection.execute(f"CREATE VIRTUAL TABLE {text}")
    copied = "products_text (rowid, title, description) SELECT rowid, title, description FROM products"
    connection.execute(f"INSERT INTO {copied}")
    connection.commit()
    return connection


def in_postgresql(address: str) -> Any:
    import psycopg

    connection = psycopg.connect(address, autocommit=True)
    connection.execute(f"CREATE TABLE products ({COLUMNS}, {SEARCH})")
    connection.execute("CREATE INDEX ON products USING gin (search)")
    connection.cursor().executemany(f"INSERT INTO products VALUES ({', '.join(['%s'] * 9)})", ROWS)
    return connection


@pytest.fixture(scope="module")
def postgresql_table() -> Iterator[Table]:
    with postgresql() as address, contextlib.closing(in_postgresql(address)) as connection:
        yield Table("postgresql", connection)


@pytest.fixture(scope="module", params=["sqlite", "postgresql"])
def table(request: pytest.FixtureRequest) -> Iterator[Table]:
    """Return the catalogue in each kind of database, which a test leaves as it found it."""
    if request.param == "postgresql":
        yield request.getfixturevalue("postgresql_table")
        return
    with contextlib.closing(in_sqlite()) as connection:
        yield Table("sqlite", connection)


def test_any_word_finds_and_more_words_lead(table: Table) -> None:
    found = table.titles("red boots")

    assert found[0] == "red boots"
    assert set(found) == TITLES


def test_price_rating_offers_and_exclusions_filter(table: Table) -> None:
    def found(**plan: object) -> set[str]:
        return set(table.titles("boots", **plan))

    assert found(price={"min": 60, "max": 120}) == {"red boots", "blue boots", "crimson hiking boots"}
    assert found(rating={"min": 4}) == {"red boots", "crimson hiking boots"}
    assert found(offers=["in_stock"]) == {"red boots", "boot tray", "crimson hiking boots"}
    assert found(offers=["on_sale"]) == {"blue boots", "crimson hiking boots"}
    assert found(exclude={"brand": ["NIKE"]}) == {"blue boots", "boot tray", "crimson hiking boots"}
    assert found(exclude={"material": ["leather"]}) == {"boot tray"}  # suede is leather
    assert found(exclude={"color": ["crimson"]}, price={"min": 10}) == {"blue boots"}
    assert found(exclude={"feature": ["hiking boots"]}) == {"red boots", "blue boots", "boot tray"}  # a phrase


def test_facets_lift_and_hide_nothing(table: Table) -> None:
    facets = {"brand": ["keen"], "type": ["hiking boots"]}
    plain, lifted = table.titles("boots"), table.titles("boots", facets=facets, vertical="apparel-accessories")

    assert lifted[0] == "crimson hiking boots" != plain[0]
    assert set(lifted) == set(plain)


def test_a_price_sort_orders_what_is_the_thing(table: Table) -> None:
    found = table.titles("red boots", sort="price_asc", facets={"type": ["boots"], "color": ["red"]})

    # The candle is cheaper and as red, the tray and the blue boots are cheaper and not red.
    assert found == ["crimson hiking boots", "red boots", "boot tray", "blue boots", "red candle"]
    assert table.titles("blue boots", sort="price_asc")[0] == "blue boots", "the tray is cheaper"


def test_a_product_without_a_price_is_not_the_cheapest(table: Table) -> None:
    with table.changed("UPDATE products SET price = NULL WHERE title = 'red boots'"):
        found = table.titles("boots", sort="price_asc")
    assert found.index("red boots") > max(found.index("blue boots"), found.index("boot tray"))


@pytest.mark.parametrize("said", HOSTILE)
def test_hostile_words_are_words(table: Table, said: str) -> None:
    for place in ("facets", "exclude"):
        values = {facet: [said, "boots"] for facet in ("brand", "color", "type", "material")}
        table.titles(said, **{place: values})
    assert table.connection.execute("SELECT count(*) FROM products").fetchone() == (len(ROWS),)
    assert "red candle" in table.titles(f"{said} candle")


@pytest.mark.parametrize("facet", ["brand", "material"])
def test_thousands_of_words_and_exclusions_are_one_condition(table: Table, facet: str) -> None:
    """SQLite refuses an expression that is deeper than 1,000."""
    refused = [f"x{number}" for number in range(3000)]
    real = "nike" if facet == "brand" else "red"
    assert "red boots" in table.titles("boots", exclude={facet: refused})
    assert "red boots" not in table.titles("boots", exclude={facet: [*refused, real]})


def test_a_nested_field_is_refused(table: Table) -> None:
    mapping = CatalogueMapping.model_validate({"index": "p", "text": {"t": 1}, "price": {"field": "price.usd"}})
    with pytest.raises(MappingError, match=r"'price\.usd' is no column"):
        translate(Plan.model_validate({"queries": ["x"], "price": {"max": 1}}), mapping, table.engine, "x")


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
def test_a_plan_without_filters_finds_all_that_the_raw_words_find(
    table: Table, plan: dict[str, Any], question: str
) -> None:
    assert set(table.titles(question)) <= set(table.titles(question, **plan))


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


def test_a_catalogue_s_quotes_are_a_parameter(postgresql_table: Table) -> None:
    """A mapping is trusted, but its values may hold quotes and signs of any kind."""
    for value in ("it's", 'a"b', "\\", "%s", "{a,b}", "x'; DROP TABLE products; --"):
        facets = {"brand": {"field": "brand", "values": {value: ["it"]}}}
        mapping = MAPPING.model_copy(
            update={"facets": CatalogueMapping.model_validate({**MAPPING.model_dump(), "facets": facets}).facets}
        )
        plan = Plan(queries=["boots"], exclude={"brand": ["it"]}, facets={"brand": ["it"]}, sort="price_asc")
        (request,) = translate(plan, mapping, "postgresql", "boots").requests
        assert len(re.findall("%s", request.sql)) == len(request.parameters)
        assert len(postgresql_table.connection.execute(request.sql, request.parameters).fetchall()) == 4


def test_a_search_uses_the_index_and_takes_thousands_of_words(postgresql_table: Table) -> None:
    connection, rows = postgresql_table.connection, "SELECT 'thing ' || n, n FROM generate_series(1, 5000) n"
    (request,) = translate(Plan(queries=["red boots"]), MAPPING, "postgresql", "red boots").requests
    with postgresql_table.changed(f"INSERT INTO products (title, price) {rows}"):
        connection.execute("ANALYZE products")
        steps = connection.execute(f"EXPLAIN {request.sql}", request.parameters).fetchall()
    assert any("Bitmap Index Scan" in step for (step,) in steps), steps
    assert "red boots" in postgresql_table.titles(" ".join(f"w{number}" for number in range(3000)) + " boots")
