"""The sample shop: built whole or not at all, and searched by a plan and by raw words."""

import gzip
import json
import sqlite3
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest
from peakplan_client import catalogue, shop, sqlite_products
from peakplan_client.errors import CatalogueError, SearchTimeoutError
from peakplan_client.shop import Shop

NAMES = ["Red Leather Boots", "Blue Suede Boots", "Wool Socks", "Red Leather Handbag", "Oak Table"]
STYLES = ["boot", "boot", "socks", "handbag", "tables"]
PRICES = [120.0, 60.0, 9.5, 80.0, 300.0]
ROWS = [
    {"id": f"p{at}", "name": name, "category": "things", "style": STYLES[at], "price": PRICES[at]}
    | {"desc": "A fine thing, " + "word " * 50, "gender": "F" if at % 2 else "M"}
    for at, name in enumerate(NAMES)
]
LINES = "".join(json.dumps(row) + "\n" for row in ROWS).encode()


@pytest.fixture
def source(tmp_path: Path) -> Path:
    path = tmp_path / "products.jsonl"
    path.write_bytes(LINES)
    return path


@pytest.fixture
def open_shop(tmp_path: Path, source: Path) -> Shop:
    return Shop.open(tmp_path / "cache", source)


def names(found: shop.Found) -> list[str]:
    return [hit.name for hit in found.hits]


def test_raw_words_and_a_plan_find(open_shop: Shop) -> None:
    raw = open_shop.search_raw("red boots under 100, not suede")
    plan = {"queries": ["red boots"], "price": {"max": 100}, "exclude": {"material": ["suede"]}, "offers": ["in_stock"]}
    planned = open_shop.search_plan(plan, "red boots under 100, not suede")

    assert {"Red Leather Boots", "Blue Suede Boots"} <= set(names(raw))
    assert names(planned) == ["Red Leather Handbag"]
    assert planned.notes == ("the mapping has no offers.in_stock: it is not filtered",)
    hit = planned.hits[0]
    assert (hit.id, hit.price, hit.category) == ("p3", 80.0, "things, handbag")
    assert hit.snippet.startswith("A fine thing, word")
    assert hit.snippet.endswith("word …")
    assert len(hit.snippet) < 170


def test_each_part_has_its_share(open_shop: Shop) -> None:
    parts = [{"queries": ["boots"]}, {"queries": ["socks"]}]
    found = open_shop.search_plan({"queries": ["boots", "socks"], "parts": parts}, "boots and socks")

    assert names(found)[1] == "Wool Socks"
    assert len(found.hits) == len(set(names(found))) == 3


def test_a_shop_that_has_not_got_it_says_so(open_shop: Shop) -> None:
    plan = {"queries": ["red kettle"], "facets": {"type": ["red kettle"]}}
    found = open_shop.search_plan(plan, "red kettle")

    assert {"Red Leather Boots", "Red Leather Handbag"} == set(names(found))  # a word in common
    assert found.nothing
    assert set(found.nearest) == {"boot", "handbag"}
    assert not open_shop.search_plan({"queries": ["socks"], "facets": {"type": ["socks"]}}, "socks").nothing


def test_what_is_the_thing_stands_above_what_is_not(open_shop: Shop) -> None:
    plan = {"queries": ["red leather boots"], "facets": {"type": ["boots"]}, "sort": "price_asc"}
    found = open_shop.search_plan(plan, "red leather boots cheapest")

    assert names(found) == ["Blue Suede Boots", "Red Leather Boots", "Red Leather Handbag"]


def test_what_is_the_thing_stands_first_though_others_have_more_of_the_words(open_shop: Shop) -> None:
    queries = ["red leather handbag like boots"]
    plain = open_shop.search_plan({"queries": queries}, "")
    assert names(plain)[0] == "Red Leather Handbag"
    of_kind = open_shop.search_plan({"queries": queries, "facets": {"type": ["boots"]}}, "")
    assert names(of_kind) == ["Red Leather Boots", "Blue Suede Boots", "Red Leather Handbag"]


def test_nothing_to_search_finds_nothing(open_shop: Shop) -> None:
    assert open_shop.search_raw("?!").hits == ()
    assert open_shop.search_plan({"intent": "order_status", "queries": []}, "where is my order").hits == ()


def test_threads_share_it(open_shop: Shop) -> None:
    with ThreadPoolExecutor(8) as pool:
        every = list(pool.map(lambda _: names(open_shop.search_raw("leather", timeout=60)), range(50)))

    assert all(found == every[0] for found in every)
    assert len(every[0]) == 2


def test_a_search_ends_in_time(open_shop: Shop, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sqlite_products, "_STEPS_BETWEEN_CHECKS", 1)
    with pytest.raises(SearchTimeoutError, match="within 0 s"):
        open_shop.search_raw("leather", timeout=0)


def test_a_search_that_has_time_is_not_ended(open_shop: Shop, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sqlite_products, "_STEPS_BETWEEN_CHECKS", 1)
    assert len(names(open_shop.search_raw("leather", timeout=60))) == 2


def test_it_is_built_once(tmp_path: Path, source: Path) -> None:
    Shop.open(tmp_path / "cache", source)
    (database,) = (tmp_path / "cache").iterdir()
    built = database.stat().st_mtime_ns

    assert names(Shop.open(tmp_path / "cache", source).search_raw("socks")) == ["Wool Socks"]
    assert database.stat().st_mtime_ns == built


def test_several_may_build_it_at_once(tmp_path: Path, source: Path) -> None:
    with ThreadPoolExecutor(4) as pool:
        shops = list(pool.map(lambda _: Shop.open(tmp_path / "cache", source), range(4)))

    assert [names(each.search_raw("socks", timeout=60)) for each in shops] == [["Wool Socks"]] * 4
    assert len(list((tmp_path / "cache").iterdir())) == 1


@pytest.mark.parametrize(
    ("name", "content", "told"),
    [
        ("a.jsonl", LINES + b'{"id": "p9", "name": "half"}', r"a\.jsonl, product 6 .*KeyError: 'style'"),
        ("b.jsonl", b"\n", "no products"),
        ("d.jsonl.gz", b"not gzip", "no catalogue"),
        ("e.jsonl", b'{"id": 1', "no catalogue"),
        ("f.jsonl", b"[1]\n", r"product 1 .*TypeError"),
    ],
)
def test_a_bad_catalogue_leaves_nothing_behind(tmp_path: Path, name: str, content: bytes, told: str) -> None:
    (tmp_path / name).write_bytes(content)

    with pytest.raises(CatalogueError, match=told):
        Shop.open(tmp_path / "cache", tmp_path / name)

    assert not (tmp_path / "cache").exists() or not list((tmp_path / "cache").iterdir())


def test_a_build_that_breaks_leaves_nothing_behind(
    tmp_path: Path, source: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(shop, "_COLUMNS", ["id", "name", "no-column"])
    with pytest.raises(sqlite3.Error):
        Shop.open(tmp_path / "cache", source)

    assert not list((tmp_path / "cache").iterdir())


def test_json_lines_may_be_gzipped(tmp_path: Path) -> None:
    row = {"id": "1", "name": "Kettle", "category": "k", "style": "s", "desc": "d", "price": 5, "gender": None}
    path = tmp_path / "p.jsonl.gz"
    path.write_bytes(gzip.compress(json.dumps(row).encode()))

    assert list(catalogue.read(path)) == [catalogue.Product("1", "Kettle", "s", "k", "d", 5.0, None)]


def test_a_source_that_is_missing_is_told(tmp_path: Path) -> None:
    with pytest.raises(CatalogueError, match=r"no catalogue at .*missing\.jsonl"):
        Shop.open(tmp_path, tmp_path / "missing.jsonl")


def test_the_catalogue_comes_with_the_package(tmp_path: Path) -> None:
    """No network, no cache and no other file: what a fresh clone has is enough for the first search."""
    assert len(list(catalogue.read())) == 2465
    assert catalogue.PRODUCTS.is_relative_to(Path(catalogue.__file__).parent)
    assert "MIT No Attribution" in catalogue.PRODUCTS.with_name("LICENSE").read_text(encoding="utf-8")
    found = Shop.open(tmp_path / "cache").search_raw("red boots", timeout=60)
    assert len(found.hits) == 10
