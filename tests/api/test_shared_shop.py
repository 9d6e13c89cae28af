"""A sample shop in PostgreSQL: written whole, shared by hosts, searched through translations to PostgreSQL."""

import json
from collections.abc import Iterator
from contextlib import closing
from pathlib import Path
from typing import Any

import pytest
from peakplan_client import catalogue
from peakplan_client.errors import CatalogueError, SearchTimeoutError
from peakplan_client.mapping import CatalogueMapping
from peakplan_client.shop import MAPPING, Shop

from tests.api.client import talking_to
from tests.postgresql_server import postgresql
from tests.processes import PATIENCE

ROWS = [
    ("1", "Red Leather Boots", "boot", "footwear", "They are red.", 120.0, "F"),
    ("2", "Blue Suede Boots", "boot", "footwear", "Not for dancing, in blue.", 60.0, "M"),
    ("3", "Red Leather Handbag", "handbag", "accessories", "It holds boots.", 80.0, None),
    ("4", "Wool Socks", "socks", "apparel", "Warm; for boots.", 9.5, None),
]
BOOTS = {
    "mode": "keyword", "intent": "find_product", "queries": ["red boots"], "facets": {"type": ["boots"]},
    "price": {"max": 100, "currency": "USD"},
}  # fmt: skip


@pytest.fixture(scope="module")
def database(tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    """A database with the products of ROWS, as the command writes them."""
    with postgresql() as url, pytest.MonkeyPatch.context() as patch:
        from peakplan_client.postgres_products import fill

        patch.setattr(catalogue, "read", lambda _: (catalogue.Product(*row) for row in ROWS))
        assert fill(url, _file(tmp_path_factory.mktemp("here"), "1")) == len(ROWS)
        yield url


@pytest.fixture
def empty(database: str) -> Iterator[str]:
    """Another database of that server, in which nothing is."""
    import psycopg

    with psycopg.connect(database, autocommit=True) as connection:
        connection.execute("CREATE DATABASE another")
        yield database.replace("dbname=postgres", "dbname=another")
        connection.execute("DROP DATABASE another WITH (FORCE)")


def _file(folder: Path, content: str) -> Path:
    (folder / "products.jsonl").write_text(content, encoding="utf-8")
    return folder / "products.jsonl"


@pytest.mark.anyio
async def test_hosts_answer_from_it_and_need_no_catalogue_of_their_own(
    database: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(catalogue, "digest", lambda _: pytest.fail("it made a shop of its own"))
    async with talking_to(cache_dir=tmp_path, sample_shop_url=database) as client:
        found = (await client.post("/shop/search", json={"query": "red boots", "plan": BOOTS})).json()

    assert [hit["id"] for hit in found["by_plan"]] == ["2", "3", "4"], "boots first; those for 120 are too dear"
    assert {hit["id"] for hit in found["by_words"]} == {"1", "2", "3", "4"}
    assert found["by_plan"][0] == {
        "id": "2", "name": "Blue Suede Boots", "price": 60.0, "currency": "USD", "category": "footwear, boot",
        "snippet": "Not for dancing, in blue.",
    }  # fmt: skip
    assert found["reason"] is None
    assert not list(tmp_path.iterdir())


def test_a_shop_folder_s_table_is_searched_there(database: str, tmp_path: Path) -> None:
    roles = {"id": "id", "name": "title", "category": "category 1", "description": "description"}
    (tmp_path / "mapping.yaml").write_bytes(MAPPING.read_bytes())
    (tmp_path / "shop.json").write_text(json.dumps({"summary": {"roles": roles}}), encoding="utf-8")
    with closing(Shop.of_folder(tmp_path, database)) as shop:
        first = shop.search_plan(BOOTS, "red boots", timeout=PATIENCE).hits[0]
    assert (first.id, first.name, first.category, first.currency) == ("2", "Blue Suede Boots", "footwear", "USD")


def test_a_shop_that_has_not_got_it_names_what_comes_near(database: str) -> None:
    plan = {"queries": ["red watch"], "facets": {"type": ["watch"]}, "vertical": "apparel-accessories"}
    with closing(Shop.connect(database)) as shop:
        found = shop.search_plan(plan, "red watch", timeout=PATIENCE)

    assert found.nothing
    assert found.nearest == ("boot", "handbag", "socks")


def test_both_engines_let_the_same_products_through(database: str, tmp_path: Path) -> None:
    from peakplan_client.indexing import build_index
    from peakplan_client.shop import _COLUMNS, MAPPING
    from peakplan_client.sqlite_products import SqliteProducts

    mapping = CatalogueMapping.load(MAPPING)
    build_index(tmp_path / "own.sqlite", _COLUMNS, ROWS, mapping)
    own = Shop(SqliteProducts(tmp_path / "own.sqlite"), mapping)
    excluding = {"queries": ["boots"], "exclude": {"material": ["leather"]}}
    several = {"queries": ["boots"], "parts": [{"queries": ["boots"]}, {"queries": ["socks"]}]}
    with closing(Shop.connect(database)) as shared:
        for plan in (BOOTS, excluding, several):
            ids = [{hit.id for hit in shop.search_plan(plan, "boots", timeout=PATIENCE).hits} for shop in (shared, own)]
            assert ids[0] == ids[1] != set()


def test_a_database_without_the_table_says_what_writes_it(empty: str) -> None:
    with pytest.raises(CatalogueError, match=r"no table products: for the sample shop `python -m .*` writes it"):
        Shop.connect(empty)


def test_a_table_of_somebody_else_is_left_alone(empty: str, tmp_path: Path) -> None:
    import psycopg
    from peakplan_client.postgres_products import fill

    with psycopg.connect(empty, autocommit=True) as other:
        other.execute("CREATE TABLE products (sold int)")
        with pytest.raises(CatalogueError, match="of somebody else"):
            fill(empty, _file(tmp_path, "2"))
        assert other.execute("SELECT count(*) FROM products").fetchone() == (0,)


def test_a_new_catalogue_replaces_the_old_one_and_a_broken_one_does_not(
    empty: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    from peakplan_client.postgres_products import fill

    asked: list[Path] = []

    def read(path: Path) -> Iterator[catalogue.Product]:
        asked.append(path)
        yield from (catalogue.Product(*row) for row in ROWS[: int(path.read_text("utf-8"))])
        if path.read_text("utf-8") == "3":
            raise CatalogueError("product 4 is not as the sample catalogue has them")

    monkeypatch.setattr(catalogue, "read", read)
    assert [fill(empty, _file(tmp_path, said)) for said in ("2", "2", "1")] == [2, 2, 1]
    assert len(asked) == 2, "what is there already is not written again"
    with closing(Shop.connect(empty)) as shop:
        with pytest.raises(CatalogueError):
            fill(empty, _file(tmp_path, "3"))
        assert [hit.id for hit in shop.search_raw("boots", timeout=PATIENCE).hits] == ["1"]


def test_a_connection_that_broke_is_made_anew(database: str) -> None:
    import psycopg

    with closing(Shop.connect(database)) as shop, psycopg.connect(database, autocommit=True) as other:
        other.execute(
            "SELECT pg_terminate_backend(pid) FROM pg_stat_activity WHERE pid <> pg_backend_pid() "
            "AND backend_type = 'client backend'"
        )

        assert shop.search_raw("socks", timeout=PATIENCE).hits


def test_a_search_ends_at_its_time_and_where_nobody_waits(database: str) -> None:
    from peakplan_client.engines.postgresql import Statement

    with closing(Shop.connect(database)) as shop:
        with pytest.raises(SearchTimeoutError, match=r"within 0\.05 s"):
            shop._products.run([Statement("SELECT pg_sleep(60)", ())], 0.05, lambda: False)
        with pytest.raises(SearchTimeoutError, match="Nobody waits"):
            shop.find(BOOTS, "red boots", timeout=PATIENCE, given_up=lambda: True)
        assert shop.search_raw("socks", timeout=PATIENCE).hits, "and the next one is answered"


@pytest.mark.anyio
async def test_without_its_server_the_answer_says_so_and_names_no_address(tmp_path: Path) -> None:
    pytest.importorskip("psycopg")
    url = f"host={tmp_path} user=shop password=secret"
    async with talking_to(cache_dir=tmp_path, sample_shop_url=url) as client:
        answer: dict[str, Any] = (await client.post("/shop/search", json={"query": "boots", "plan": BOOTS})).json()

    assert answer["reason"] == "The shop's PostgreSQL does not answer (OperationalError)."


def test_the_command_says_what_it_wrote_or_why_not(
    database: str, monkeypatch: pytest.MonkeyPatch, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    from peakplan_client.postgres_products import main

    monkeypatch.delenv("PEAKPLAN_SAMPLE_SHOP_URL", raising=False)
    assert main(()) == 2
    assert main((f"host={tmp_path} user=shop",)) == 1
    assert "no sample shop in PostgreSQL" in capsys.readouterr().err
    monkeypatch.setattr(catalogue, "read", lambda _: (catalogue.Product(*row) for row in ROWS))
    monkeypatch.setenv("PEAKPLAN_SAMPLE_SHOP_URL", database)
    assert main(()) == 0
    assert capsys.readouterr().out == "the sample shop has 4 products\n"
