"""What a plan searches for, what it lifts, filters and wishes, and a later page of it."""

import json
import re
import sqlite3
from pathlib import Path
from typing import Any

import pytest
import yaml
from peakplan_client import CatalogueMapping, Plan, translate
from peakplan_client.mapping import words
from peakplan_client.search import AnyOf, Boost, NoneOf, NotInText, Range, Search, Searches
from peakplan_client.searching import searches
from peakplan_client.shop import MAPPING as SHOP
from peakplan_client.shop import Shop
from peakplan_client.translating import Engine
from peakplan_client.wishes import Wishes
from pydantic import ValidationError

from rehearsal.bench.machine import operations

MAPPING = CatalogueMapping.load(Path(__file__).parents[2] / "clients" / "examples" / "mapping.yaml")


def found(question: str = "", mapping: CatalogueMapping = MAPPING, **plan: Any) -> Searches:
    return searches(Plan.model_validate({"queries": ["red boots"], **plan}), mapping, question)


def titled(text: str) -> CatalogueMapping:
    """Return a mapping of titles, and what a test is about."""
    return CatalogueMapping.model_validate({"index": "p", "text": {"title": 1}, **yaml.safe_load(text)})


def named(said: str, mapping: CatalogueMapping, **plan: Any) -> Search:
    """Return the search for one thing that the shopper names."""
    (search,) = found(said, mapping, queries=[said], **{"facets": {"type": [said]}, **plan}).searches
    return search


def only(question: str = "", **plan: Any) -> Search:
    (search,) = found(question, **plan).searches
    return search


def test_the_shopper_s_own_words_are_always_among_the_texts_and_the_catalogue_s_names_may_match_too() -> None:
    texts = only("RED boots, under $80!", queries=["red boots", "boots"]).texts
    assert [text.words for text in texts] == ["red boots", "boots", "red boots under 80"]
    assert texts[0].weight > texts[1].weight
    texts = only("crimson boots", queries=["crimson boots"], facets={"color": ["crimson"], "brand": ["keen"]}).texts
    assert [text.words for text in texts] == ["crimson boots", "red"]


def test_facets_boost_and_filter_nothing() -> None:
    search = only(facets={"color": ["crimson"], "type": ["hiking boots"], "unknown": ["x"]}, vertical="luggage-bags")

    assert search.filters == ()
    assert set(search.boosts) == {
        Boost("color_family", ("Red",), 0.5),
        Boost(None, ("hiking boots",), 0.3),
        Boost("department", ("Bags",), 0.2),
    }


WITHOUT_CURRENCY = titled("price: {field: cost}")
WINES = titled("{exclude_text: [title], facets: {brand: {field: maker}, type: {field: grape, values: {Merlot: []}}}}")
TOYS = titled("""
exclude_text: [title]
facets:
  type: {field: kind, values: {pet toys: [ball, chew bone], glasses: [sunglasses]}}
  color: {field: color, values: {red: [scarlet]}}
""")


@pytest.mark.parametrize(
    ("mapping", "plan", "filters"),
    [
        (MAPPING, {"price": {"min": 10, "max": 80}}, [Range("price", 10, 80)]),
        (MAPPING, {"price": {"max": 100, "currency": "USD"}}, [Range("price", None, 100)]),
        (MAPPING, {"price": {"max": 100, "currency": "EUR"}}, [Range("price", None, 108)]),
        (MAPPING, {"price": {"max": 100, "currency": "JPY"}}, []),
        (WITHOUT_CURRENCY, {"price": {"max": 5, "currency": "JPY"}}, [Range("cost", None, 5)]),
        (MAPPING, {"rating": {"min": 4}}, [Range("stars", 4, None)]),
        (MAPPING, {"offers": ["in_stock", "on_sale"]}, [Range("stock", 1, None), AnyOf("on_sale", (True,))]),
        (MAPPING, {"exclude": {"color": ["crimson", "teal"]}},
         [NoneOf("color_family", ("Red",)), NotInText(("title",), "teal")]),
        (MAPPING, {"exclude": {"brand": ["Nike"], "feature": ["ankle straps"]}},
         [NoneOf("brand", ("nike",)), NotInText(("title",), "ankle straps")]),
        # A refused value is looked up in every facet.
        (WINES, {"exclude": {"feature": ["merlot", "oak"], "brand": ["Muga"]}},
         [NoneOf("grape", ("Merlot",)), NotInText(("title",), "merlot"), NotInText(("title",), "oak"),
          NoneOf("maker", ("muga",))]),
        (TOYS, {"exclude": {"type": ["balls"]}}, [NotInText(("title",), "balls")]),  # the shop has some among pet toys
        (TOYS, {"exclude": {"type": ["pet toys"]}}, [NoneOf("kind", ("pet toys",))]),
        (TOYS, {"exclude": {"material": ["glass"]}},  # of which crystal is one
         [NoneOf("kind", ("glasses",)), NotInText(("title",), "glass"), NotInText(("title",), "crystal")]),
        (TOYS, {"exclude": {"color": ["scarlet"]}}, [NoneOf("color", ("red",))]),
    ],
)  # fmt: skip
def test_what_a_plan_demands_is_filtered(mapping: CatalogueMapping, plan: dict[str, Any], filters: list[Any]) -> None:
    result = found(mapping=mapping, **plan)

    assert list(result.searches[0].filters) == filters
    assert any("price.rates.JPY" in note for note in result.notes) == (filters == [])


@pytest.mark.parametrize(
    ("said", "product", "is_wanted"),
    [
        ("red couch", {"kind": "Sofas", "title": "Alma"}, True),
        ("red couch", {"kind": "misc", "title": "Couch Alma"}, True),
        ("red couch", {"kind": "rugs", "title": "Alma", "text": "goes with any couch"}, False),
        ("quiet blender", {"title": "Blenders, two"}, True),
        ("quiet blender", {"title": "Quiet fan", "text": "no blender"}, False),
        (None, {}, True),
    ],
)
def test_what_is_wanted_is_told_of_a_product(said: str | None, product: dict[str, str], is_wanted: bool) -> None:
    kinds = titled("{text: {title: 3, text: 1}, facets: {type: {field: kind, values: {sofas: [couch]}}}}")
    made = translate(Plan(queries=["x"], facets={"type": [said]} if said else {}), kinds, "opensearch")

    assert made.is_wanted(product) == is_wanted
    unknown = "the mapping knows no kind of this name: what is found may be something else"
    assert made.notes == ((unknown,) if said == "quiet blender" else ())


def test_notes_say_what_is_left_out_and_no_word_of_the_shopper() -> None:
    plan = {"price": {"max": 5}, "rating": {"min": 4}, "offers": ["on_sale"], "sort": "newest"}
    result = found("secretword", titled("{}"), **plan, exclude={"brand": ["secretword"]})

    assert [search.filters for search in result.searches] == [()]
    for name in ("price", "rating", "offers.on_sale", "sort.newest", "brand"):
        assert any(name in note for note in result.notes), name
    assert "secretword" not in " ".join(result.notes)


def test_parts_have_a_search_each_and_the_question_one() -> None:
    parts = [
        {"facets": {"color": ["red"]}, "price": {"max": 150}, "queries": ["red tent"]},
        {"exclude": {"brand": ["nike"]}, "queries": ["sleeping bag"]},
    ]
    tent, bag, whole = found(
        "a red tent under 150 and a sleeping bag", queries=["red tent", "sleeping bag"], parts=parts
    ).searches

    assert [text.words for text in tent.texts] == ["red tent"]
    assert tent.filters == (Range("price", None, 150),)
    assert bag.filters == (NoneOf("brand", ("nike",)),)
    assert [text.words for text in whole.texts] == ["a red tent under 150 and a sleeping bag"]
    assert whole.filters == ()


def test_a_plan_without_queries_or_a_question_of_signs_alone_searches_nothing() -> None:
    result = found("where is my order", intent="order_status", queries=[])

    assert result.searches == ()
    assert result.notes
    assert found("?!", queries=["…"]).searches == ()
    assert words("?!") == []


def test_a_plan_costs_its_size() -> None:
    """A caller of a shop's search may send a plan of any size: its cost grows linearly."""
    mapping = CatalogueMapping.load(SHOP)

    def cost(size: int) -> int:
        said = " ".join(f"hiking w{number}" for number in range(size))
        values = [f"boot {number}" for number in range(size)]
        plan = Plan.model_validate(
            {"queries": [said], "facets": {"type": [said], "feature": values}, "exclude": {"type": [said, *values]}}
        )
        return operations(lambda: searches(plan, mapping, said))

    cost(10)
    few, many = cost(200), cost(400)
    assert few < many < 2.1 * few


SHOP_OF_KINDS = titled("""
facets:
  type:
    field: kind
    values: {Lighting: [lamp, candle], Headphones: [headset], Earrings: [], Bouquet: [], Chocolates: [], Chair: [seat]}
  color: {boost: 0.4}
sort: {price_desc: {field: price, order: desc}}
""")


@pytest.mark.parametrize(
    ("said", "order", "kinds"),
    [
        # A lamp is of the kind "Lighting", and so is a candle; a headset is what this shop calls headphones.
        ("desk lamp", "relevance", [("kind", ("Lighting",)), (None, ("lamp",))]),
        ("wireless headphones", "relevance", [("kind", ("Headphones",)), (None, ("headphones", "headset"))]),
        # Earrings may be called "Ruby Crown" and be the dearest; without an order, what is called so comes first.
        ("gold earrings", "price_desc", [("kind", ("Earrings",))]),
        ("gold earrings", "relevance", [("kind", ("Earrings",)), (None, ("earrings",))]),
        # What a thing is of is not the thing, unless the shop has no other.
        ("bouquet of roses", "relevance", [("kind", ("Bouquet",)), (None, ("bouquet",))]),
        ("box of chocolates", "relevance", [("kind", ("Chocolates",)), (None, ("chocolates",))]),
    ],
)
def test_a_thing_is_known_by_its_kind_and_by_its_own_names(
    said: str, order: str, kinds: list[tuple[str | None, tuple[str, ...]]]
) -> None:
    assert [(each.field, each.values) for each in named(said, SHOP_OF_KINDS, sort=order).kinds] == kinds


def test_what_no_value_is_called_lifts_nothing_and_still_matches() -> None:
    """A place is no kind of this shop: a product that has the word is not what is wanted for that."""
    assert named("earrings stand", SHOP_OF_KINDS, sort="price_desc").kinds[-1].field is None
    search = named("red place to sit", SHOP_OF_KINDS, facets={"type": ["place to sit"], "color": ["red"]})
    assert [(boost.field, boost.values) for boost in search.boosts] == [(None, ("red",))]
    assert "place" in search.texts[0].words


def test_a_kind_filters_only_where_the_mapping_says_so() -> None:
    """A word that no value is called filters nothing, whatever the mapping says."""
    for wanted, said, filters in (
        ("true", "boots", (AnyOf("kind", ("Boots",)),)), ("false", "boots", ()), ("true", "tent", ()),
    ):  # fmt: skip
        mapping = titled(f"facets: {{type: {{field: kind, values: {{Boots: []}}, filter: {wanted}}}}}")
        assert named(said, mapping).filters == filters
    with pytest.raises(ValueError, match="names no `values`"):
        titled("facets: {brand: {field: b, filter: true}}")
    strict = KITCHEN.model_copy(update={"facets": {"type": KITCHEN.facets["type"].model_copy(update={"filter": True})}})
    search = found("boil water", strict, queries=["boil water"], **KINDS).searches[0]
    assert search.filters == (AnyOf("category", ("Kettles", "Mugs")),)


KINDS = {"kinds": [{"id": "a", "name": "Kettles"}, {"id": "b", "name": "Gone"}, {"id": "c", "name": "Mugs"}]}
KITCHEN = titled("""
text: {title: 4, category: 1}
facets: {type: {field: category, boost: 0.6, values: {Kettles: [kettle], Mugs: [cup]}}}
sort: {price_asc: {field: price, order: asc}}
""")


def test_kinds_lift_and_order_where_no_thing_is_named() -> None:
    told = found("boil water for tea", KITCHEN, queries=["boil water tea"], sort="price_asc", **KINDS)
    (search,) = told.searches

    assert search.boosts == (Boost("category", ("Kettles",), 0.6), Boost("category", ("Mugs",), 0.18))
    assert search.filters == ()
    assert [each.values for each in search.kinds] == [("Kettles",), ("Mugs",)]
    assert "kettles mugs" in [text.words for text in search.texts]
    (note,) = told.notes
    assert note.startswith("a kind of the plan is no value of the mapping: learn shop folder and mapping from one")
    known, unknown = (named(said, KITCHEN, **KINDS) for said in ("cups", "samovar"))
    assert known.boosts == (Boost("category", ("Mugs",), 0.6),), "what the shopper names is what is wanted"
    assert [boost.values for boost in unknown.boosts] == [("Kettles",), ("Mugs",)]
    assert [each.values for each in unknown.kinds] == [("samovar",)]


def test_kinds_of_one_name_are_told_apart_by_their_ids() -> None:
    values = "values: {Men > Boots: [Boots], Women > Boots: [Boots]}"
    shoes = titled(f"facets: {{type: {{field: category, {values}, ids: {{m: Men > Boots, w: Women > Boots}}}}}}")
    (search,) = found("puddles", shoes, queries=["puddles"], kinds=[{"id": "w", "name": "Boots"}]).searches
    assert search.boosts == (Boost("category", ("Women > Boots",), 0.5),)
    with pytest.raises(ValidationError, match="Kids > Boots"):
        titled(f"facets: {{type: {{field: category, {values}, ids: {{k: Kids > Boots}}}}}}")


def test_the_typescript_client_has_the_same_words_for_materials_and_colours() -> None:
    words = yaml.safe_load(Path("clients/peakplan_client/words.yaml").read_text(encoding="utf-8"))
    source = Path("clients/typescript/src/words.ts").read_text(encoding="utf-8")
    told = [(broad, json.loads(narrow)) for broad, narrow in re.findall(r"^    (\w+): (\[.*\]),$", source, re.M)]
    assert told == [*words["materials"].items(), *words["colors"].items()]


WISHED = titled("""
text: {name: 4, description: 1}
exclude_text: [name, description]
facets:
  type: {field: style, values: {boot: [wellies], bag: [handbag], camping: [tent]}}
  brand: {field: brand}
  color: {}
price: {field: price, currency: USD, rates: {EUR: 1.1}}
rating: {field: stars, best: 10}
offers: {in_stock: {field: stock, min: 1}, on_sale: {field: sale, values: [true]}}
""")
BOOTS = {"name": "Red Leather Boots", "description": "Fine.", "style": "boot", "brand": "Acme", "price": 88, "stars": 9}
TENT = {"name": "Dear tent", "style": "camping", "price": 99, "brand": None, "stars": None}
PARTS = {  # of several things a product is judged as the one that it is
    "parts": [
        {"facets": {"type": ["tent"]}, "queries": ["tent"], "price": {"max": 10}},
        {"facets": {"type": ["boots"]}, "queries": ["boots"], "exclude": {"material": ["leather"]}},
    ],
    "offers": ["in_stock"],
}


def judged(plan: dict[str, Any], product: dict[str, Any]) -> dict[str, list[str]]:
    found = Wishes(Plan.model_validate(plan | {"queries": ["x"]}), WISHED).judge(product)
    return {
        name: [wish.says for wish in wishes]
        for name, wishes in (("met", found.met), ("unmet", found.unmet), ("unknown", found.unknown))
        if wishes
    }


@pytest.mark.parametrize(
    ("plan", "product", "expected"),
    [
        ({"facets": {"type": ["boots"]}}, {}, {"met": ["boots"]}),
        ({"facets": {"type": ["wellies"]}}, {}, {"unknown": ["wellies"]}),
        ({"facets": {"type": ["tent"]}}, {}, {"unmet": ["tent"]}),
        ({"facets": {"type": ["leather boots"]}}, {}, {"met": ["leather boots"]}),
        ({"facets": {"type": ["hiking boots"]}}, {}, {"unknown": ["hiking boots"]}),
        ({"facets": {"type": ["kettle"]}}, {}, {"unmet": ["kettle"]}),
        ({"facets": {"color": ["red"]}}, {}, {"met": ["color: red"]}),
        ({"facets": {"color": ["blue"]}}, {}, {"unmet": ["color: blue"]}),
        ({"facets": {"color": ["blue"]}}, {"name": "Boots"}, {"unknown": ["color: blue"]}),
        ({"facets": {"brand": ["acme"]}}, {}, {"met": ["brand: acme"]}),
        ({"facets": {"brand": ["other"]}}, {}, {"unmet": ["brand: other"]}),
        ({"facets": {"brand": ["other"]}}, {"brand": None}, {"unknown": ["brand: other"]}),
        ({"price": {"max": 90, "currency": "USD"}}, {}, {"met": ["up to 90 USD"]}),
        ({"price": {"min": 20, "max": 80}}, {}, {"unmet": ["20 to 80"]}),
        ({"price": {"max": 80, "currency": "EUR"}}, {}, {"met": ["up to 80 EUR"]}),
        ({"price": {"min": 90, "currency": "JPY"}}, {}, {"unknown": ["from 90 JPY"]}),
        ({"price": {"max": 90}}, {"price": None}, {"unknown": ["up to 90"]}),
        ({"rating": {"min": 4.5}}, {}, {"met": ["rated 4.5 of 5 or better"]}),
        ({"rating": {"min": 4.6}}, {}, {"unmet": ["rated 4.6 of 5 or better"]}),
        ({"rating": {"min": 4.6}}, {"stars": None}, {"unknown": ["rated 4.6 of 5 or better"]}),
        ({"exclude": {"material": ["leather"]}}, {}, {"unmet": ["not leather"]}),
        ({"exclude": {"material": ["suede"]}}, {}, {"unknown": ["not suede"]}),
        ({"exclude": {"material": ["leather"]}}, {"name": "Canvas Boots"}, {"met": ["not leather"]}),
        ({"exclude": {"brand": ["Acme"]}}, {}, {"unmet": ["not Acme"]}),
        ({"exclude": {"brand": ["Other"]}}, {}, {"met": ["not Other"]}),
        ({"offers": ["in_stock"]}, {"stock": 3}, {"met": ["in stock"]}),
        ({"offers": ["in_stock"]}, {"stock": 0}, {"unmet": ["in stock"]}),
        ({"offers": ["on_sale"]}, {"sale": False}, {"unmet": ["on sale"]}),
        ({"offers": ["free_shipping"]}, {}, {"unknown": ["free shipping"]}),
        (PARTS, {"stock": 1}, {"met": ["in stock", "boots"], "unmet": ["not leather"]}),
        (PARTS, TENT, {"met": ["tent"], "unmet": ["up to 10"], "unknown": ["in stock"]}),
    ],
)
def test_a_wish_is_met_or_not_or_nobody_knows(
    plan: dict[str, Any], product: dict[str, Any], expected: dict[str, list[str]]
) -> None:
    assert judged(plan, BOOTS | product) == expected


SAMPLE = CatalogueMapping.load(SHOP)
RED_BOOTS = Plan.model_validate({"facets": {"type": ["boots"]}, "queries": ["red boots"]})


def asked(engine: Any, plan: Plan = RED_BOOTS, **page: Any) -> tuple[Any, tuple[str, ...]]:
    made = translate(plan, SAMPLE, engine, "red boots", **page)
    return made.requests[0], made.notes


@pytest.mark.parametrize("engine", ["typesense", "sqlite", "postgresql"])
def test_what_an_engine_has_not_is_noted(engine: Engine) -> None:
    assert any("neither facets are counted" in note for note in asked(engine, counts=["brand"])[1])
    several = RED_BOOTS.model_copy(update={"sort": "price_asc"})
    assert any("several lists" in note for note in asked("meilisearch", several, offset=1)[1])
    with pytest.raises(ValueError, match="plain names"):
        asked("vespa", counts=["brand) each(output(count()"])


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
