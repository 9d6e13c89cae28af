"""The sample shop, and the badges on its products."""

import json
import sys
import time
from collections import Counter
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import pytest
from peakplan_client import catalogue, shop, sqlite_products
from peakplan_client.errors import CatalogueError, SearchTimeoutError
from peakplan_client.mapping import normal
from peakplan_client.shop import _JUDGED, LIMIT, Findings, Option, Shop
from peakplan_client.wishes import Wishes
from peakplan_client.wording import begins_a_name, calls_itself, ends_a_name, says, says_another

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


@pytest.mark.parametrize(
    ("queries", "more", "first"),
    [
        ("red leather boots", {"facets": {"type": ["boots"]}, "sort": "price_asc"},
         ["Blue Suede Boots", "Red Leather Boots"]),
        ("red leather handbag like boots", {}, ["Red Leather Handbag"]),
        ("red leather handbag like boots", {"facets": {"type": ["boots"]}}, ["Red Leather Boots", "Blue Suede Boots"]),
    ],
)  # fmt: skip
def test_what_is_the_thing_stands_above_what_has_more_of_the_words_or_costs_less(
    open_shop: Shop, queries: str, more: dict[str, Any], first: list[str]
) -> None:
    found = names(open_shop.search_plan({"queries": [queries], **more}, ""))
    assert found[: len(first)] == first
    assert len(found) == 3


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


def test_judging_ends_in_time(sample: Shop, monkeypatch: pytest.MonkeyPatch) -> None:
    judge = Wishes.judge
    monkeypatch.setattr(Wishes, "judge", lambda *given: time.sleep(0.05) or judge(*given))
    with pytest.raises(SearchTimeoutError):
        sample.find({"queries": ["boots"]}, "boots", timeout=0.2)


LONG = [f"x{at}" for at in range(1000)]


@pytest.mark.parametrize(
    ("wish", "steps"),
    [
        ({"facets": {"type": ["hiking boot " * 700]}}, 20_000),
        ({"facets": {"type": LONG}}, 100_000),
        ({"exclude": {"brand": LONG}}, 100_000),
        ({"exclude": {"color": LONG}}, 100_000),
    ],
)
def test_a_long_plan_is_judged_in_few_steps(wish: dict[str, Any], steps: int, sample: Shop) -> None:
    """So that a caller with a plan of 16 KiB keeps no thread, and by it every other one, for seconds."""
    taken = Counter[str]()
    sys.setprofile(lambda _, event, __: taken.update((event,)))
    try:
        sample.find({"queries": ["boots"], **wish}, "boots", timeout=60.0)
    finally:
        sys.setprofile(None)
    assert taken["call"] < _JUDGED * LIMIT * steps


def test_several_may_build_it_at_once_and_it_is_built_once(tmp_path: Path, source: Path) -> None:
    with ThreadPoolExecutor(4) as pool:
        shops = list(pool.map(lambda _: Shop.open(tmp_path / "cache", source), range(4)))

    assert [names(each.search_raw("socks", timeout=60)) for each in shops] == [["Wool Socks"]] * 4
    (database,) = (tmp_path / "cache").iterdir()
    built = database.stat().st_mtime_ns
    assert names(Shop.open(tmp_path / "cache", source).search_raw("socks")) == ["Wool Socks"]
    assert database.stat().st_mtime_ns == built


@pytest.mark.parametrize(
    ("name", "content", "told"),
    [
        ("a.jsonl", LINES + b'{"id": "p9", "name": "half"}', r"a\.jsonl, product 6 .*KeyError: 'style'"),
        ("b.jsonl", b"\n", "no products"),
        ("d.jsonl.gz", b"not gzip", "no catalogue"),
        ("e.jsonl", b'{"id": 1', "no catalogue"),
        ("f.jsonl", b"[1]\n", r"product 1 .*TypeError"),
        ("missing.jsonl", None, r"no catalogue at .*missing\.jsonl"),
    ],
)
def test_a_bad_catalogue_leaves_nothing_behind(tmp_path: Path, name: str, content: bytes | None, told: str) -> None:
    if content is not None:
        (tmp_path / name).write_bytes(content)

    with pytest.raises(CatalogueError, match=told):
        Shop.open(tmp_path / "cache", tmp_path / name)

    assert not (tmp_path / "cache").exists() or not list((tmp_path / "cache").iterdir())


def test_the_catalogue_comes_with_the_package(tmp_path: Path) -> None:
    """No network, no cache and no other file: what a fresh clone has is enough for the first search."""
    assert len(list(catalogue.read())) == 2465
    assert catalogue.PRODUCTS.is_relative_to(Path(catalogue.__file__).parent)
    assert "MIT No Attribution" in catalogue.PRODUCTS.with_name("LICENSE").read_text(encoding="utf-8")
    found = Shop.open(tmp_path / "cache").search_raw("red boots", timeout=60)
    assert len(found.hits) == 10


@pytest.fixture(scope="module")
def sample(tmp_path_factory: pytest.TempPathFactory) -> Shop:
    folder: Path = tmp_path_factory.mktemp("sample")
    return Shop.open(folder)


def found(shop: Shop, question: str, **plan: Any) -> Findings:
    return shop.find({"queries": [question], **plan}, question, timeout=60)


def badges(option: Option) -> dict[str, str]:
    named = {"✓": option.judged.met, "✗": option.judged.unmet, "?": option.judged.unknown}
    return {wish.says: sign for sign, wishes in named.items() for wish in wishes}


def test_a_skate_shoe_is_no_running_shoe_and_a_suede_one_is_of_leather(sample: Shop) -> None:
    """The shop's own running shoes cost more than $80."""
    facets, exclude = {"color": ["red"], "type": ["running shoes"]}, {"material": ["leather"]}
    planned = {"facets": facets, "exclude": exclude, "price": {"max": 80, "currency": "USD"}}
    findings = found(sample, "red running shoes", **planned)
    assert findings.found.nothing
    assert findings.found.missing == ("running shoes",)
    assert findings.found.nearest[0] == "sneaker"
    assert not any("Suede" in option.name for option in findings.options())
    for option in findings.options(0, 3):
        told = badges(option)
        assert told["running shoes"] != "✓", option.name
        assert not (told["not leather"] == "✓" and "canvas" not in option.snippet.lower() + option.name.lower())
    dear = found(sample, "running shoes", facets={"type": ["running shoes"]}).options(0, 2)
    assert {"Running Shoe" in option.name for option in dear} == {True}
    assert [badges(option)["running shoes"] for option in dear] == ["✓", "✓"]


def test_what_the_shop_has_not_got_is_said_and_no_tote_stands_for_it(sample: Shop) -> None:
    parts = [{"facets": {"type": [each]}, "queries": [each]} for each in ("tent", "sleeping bag")]
    findings = sample.find(
        {"queries": ["tent", "sleeping bag"], "parts": parts}, "a tent and a sleeping bag", timeout=60
    )
    assert not findings.found.nothing
    assert findings.found.missing == ("sleeping bag",)
    assert all("tent" in option.name.lower() for option in findings.options(0, 3))
    assert not any(badges(option).get("sleeping bag") == "✓" for option in findings.options())


def test_the_cheapest_is_the_cheapest_of_the_things_and_no_wall_art(sample: Shop) -> None:
    options = found(sample, "cheap guitar", facets={"type": ["guitar"]}, sort="price_asc").options()
    prices = [option.price for option in options if badges(option)["guitar"] == "✓"]
    assert prices[:3] == [299.99] * 3
    assert prices == sorted(prices)
    assert "Wall" not in options[0].name


@pytest.mark.parametrize(
    ("name", "kind", "is_one"),
    [
        ("Classic Beachcomber Skate Shoe", "shoe", True),
        ("Vintage Acoustic Guitar Wall Art", "guitar", False),
        ("Retro Denim Jacket with Donut Pin", "jacket", True),
        ("Retro Denim Jacket with Donut Pin", "pin", False),
        ("Compact Drum Set", "drum", True),
        ("Farmhouse Chic Chest of Drawers", "chest of drawers", True),
        ("Cozy Loveseat", "couch", True),
        ("Cozy Sofa", "loveseat", False),
        ("Non-Stick Skillet", "frying pan", True),
        ("Rainbow Carrot Medley", "carrot", True),
    ],
)
def test_a_name_says_what_a_thing_is_where_it_ends(name: str, kind: str, is_one: bool) -> None:
    assert ends_a_name(name, normal(kind)) is is_one


def test_words_say_what_they_say_and_no_more() -> None:
    assert begins_a_name("Classic Striped Shirt and Watch Set", ("shirt",))
    assert calls_itself("Elevate it with this stunning silver laptop. Buy.", ("laptop",))
    assert not calls_itself("With our exclusive Graffiti Laptop Skin.", ("laptop",))
    assert says("soft suede upper", "leather", "material")
    assert not says("soft faux leather upper", "leather", "material")
    assert says_another(["a canvas upper"], "leather", "material")
    assert not says_another(["a vegan canvas upper"], "leather", "material"), "vegan what?"
    assert says_another(["navy and beige"], "red", "color")
    assert not says_another(["crimson and navy"], "red", "color")
    assert not says_another(["ruby and navy"], "red", "color"), "it may be red"
    assert not says_another(["sneakers with rubber soles"], "leather", "material")
    assert says_another(["canvas sneakers with rubber soles"], "leather", "material")


@pytest.mark.parametrize(
    ("text", "said", "facet", "is_said"),
    [
        ("soft khaki suede upper, contrasting white soles", "white", "color", False),
        ("A navy pack, complementing the vibrant yellow coat", "yellow", "color", False),
        ("these classic black and white sneakers", "white", "color", True),
        ("a vibrant red, white, and blue pattern", "blue", "color", True),
        ("a black base with vibrant purple and yellow accents", "purple", "color", False),
        ("this table, with wooden legs", "wooden", "material", False),
        ("a sturdy wooden table with slender white legs", "wooden", "material", True),
    ],
)
def test_the_colour_of_a_part_is_not_that_of_the_thing(text: str, said: str, facet: str, is_said: bool) -> None:
    assert says(text, said, facet) is is_said
    assert says(text, said, facet, whole=False)


def test_white_soles_make_no_white_sneaker_and_order_no_less_by_price(sample: Shop) -> None:
    plan: dict[str, Any] = {"facets": {"color": ["white"], "type": ["sneakers"]}}
    options = {each.name: each for each in found(sample, "white sneakers", **plan, sort="price_asc").options()}
    signs = {badges(each)["color: white"] for each in options.values()}
    assert signs == {"✓", "?"}, signs
    prices = [option.price or 0 for option in options.values()]
    assert prices == sorted(prices), "what may be white stands in its place"
    best = found(sample, "white sneakers", **plan).options(0, 3)
    assert [badges(each)["color: white"] for each in best] == ["✓"] * 3


def test_a_wish_is_read_without_the_words_that_lead_to_it(sample: Shop) -> None:
    planned = {"facets": {"type": ["speaker"], "feature": ["that is waterproof"]}}
    best = found(sample, "speaker that is waterproof", **planned).options()[0]
    assert badges(best) == {"speaker": "✓", "feature: waterproof": "✓"}


def test_a_backpack_filed_under_handbags_is_none_and_a_set_of_other_tools_no_set_of_wrenches(sample: Shop) -> None:
    options = found(sample, "leather handbag", facets={"type": ["handbag"], "material": ["leather"]}).options()
    assert {badges(each)["handbag"] for each in options if "Backpack" not in each.name} == {"✓"}
    assert not [each.name for each in options if "Backpack" in each.name and badges(each)["handbag"] == "✓"]
    for each in found(sample, "wrench set", facets={"type": ["wrench set"]}).options():
        assert ("Wrench" in each.name) is (badges(each)["wrench set"] == "✓"), each.name


def test_who_wants_no_wood_gets_nothing_wooden(sample: Shop) -> None:
    planned = {"facets": {"type": ["chairs"]}, "exclude": {"material": ["wood"]}}
    options = found(sample, "chairs not wood", **planned).options()
    assert options
    assert not [each.name for each in options if "wooden" in (each.name + each.snippet).lower()]


def test_what_may_be_the_thing_comes_before_what_is_another_where_a_price_sorts(sample: Shop) -> None:
    options = found(sample, "cheap pub hammers", facets={"type": ["pub hammers"]}, sort="price_asc").options()
    assert badges(options[0])["pub hammers"] == "?"
    assert "Hammer" in options[0].name
