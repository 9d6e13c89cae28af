"""What a plan searches for, what it lifts, filters and wishes, and a later page of it."""

import json
import re
import sqlite3
from pathlib import Path
from typing import Any, get_args

import pytest
import yaml
from peakplan_client import CatalogueMapping, Plan, translate
from peakplan_client.mapping import FacetMapping, words
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


def titled(**more: Any) -> CatalogueMapping:
    """Return a mapping of titles, and what a test is about."""
    return CatalogueMapping.model_validate({"index": "p", "text": {"title": 1}, **more})


def named(said: str, mapping: CatalogueMapping, **plan: Any) -> Search:
    """Return the search for one thing that the shopper names."""
    (search,) = found(said, mapping, queries=[said], **{"facets": {"type": [said]}, **plan}).searches
    return search


def only(question: str = "", **plan: Any) -> Search:
    (search,) = found(question, **plan).searches
    return search


def test_the_shopper_s_own_words_are_always_among_the_texts() -> None:
    texts = only("RED boots, under $80!", queries=["red boots", "boots"]).texts

    assert [text.words for text in texts] == ["red boots", "boots", "red boots under 80"]
    assert texts[0].weight > texts[1].weight


def test_the_catalogue_s_own_names_may_match_where_shoppers_use_others() -> None:
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


def test_what_is_wanted_is_told_of_a_product() -> None:
    kinds = CatalogueMapping.model_validate(
        {
            "index": "p",
            "text": {"title": 3, "text": 1},
            "facets": {"type": {"field": "kind", "values": {"sofas": ["couch"]}}},
        }
    )
    sofa = translate(Plan(queries=["couch"], facets={"type": ["red couch"]}), kinds, "opensearch")
    blender = translate(Plan(queries=["blender"], facets={"type": ["quiet blender"]}), kinds, "opensearch")

    assert sofa.is_wanted({"kind": "Sofas", "title": "Alma"})
    assert sofa.is_wanted({"kind": "misc", "title": "Couch Alma"})
    assert not sofa.is_wanted({"kind": "rugs", "title": "Alma", "text": "goes with any couch"})
    assert sofa.notes == ()
    assert blender.is_wanted({"title": "Blenders, two"})
    assert not blender.is_wanted({"title": "Quiet fan", "text": "no blender"})
    assert blender.notes == ("the mapping knows no kind of this name: what is found may be something else",)
    assert translate(Plan(queries=["x"]), kinds, "sqlite").is_wanted({})


def test_price_rating_and_offers_filter() -> None:
    search = only(price={"min": 10, "max": 80}, rating={"min": 4}, offers=["in_stock", "on_sale"])

    assert search.filters == (
        Range("price", 10, 80),
        Range("stars", 4, None),
        Range("stock", 1, None),
        AnyOf("on_sale", (True,)),
    )


def test_exclusions_filter_by_value_or_else_by_text() -> None:
    search = only(exclude={"color": ["crimson", "teal"], "brand": ["Nike"], "feature": ["ankle straps"]})

    assert search.filters == (
        NoneOf("color_family", ("Red",)),
        NotInText(("title",), "teal"),
        NoneOf("brand", ("nike",)),
        NotInText(("title",), "ankle straps"),
    )


@pytest.mark.parametrize(
    ("price", "filters", "is_told"),
    [
        ({"max": 100, "currency": None}, (Range("price", None, 100),), False),
        ({"max": 100, "currency": "USD"}, (Range("price", None, 100),), False),
        ({"max": 100, "currency": "EUR"}, (Range("price", None, 108),), False),
        ({"max": 100, "currency": "JPY"}, (), True),
    ],
)
def test_a_price_of_another_currency_needs_a_rate(price: dict[str, Any], filters: Any, is_told: bool) -> None:
    result = found(price=price)

    assert result.searches[0].filters == filters
    assert bool(result.notes) == is_told
    assert all("price.rates.JPY" in note for note in result.notes)


def test_a_catalogue_without_a_currency_takes_prices_as_they_are() -> None:
    mapping = CatalogueMapping.model_validate({"index": "p", "text": {"t": 1}, "price": {"field": "cost"}})

    assert found(mapping=mapping, price={"max": 5, "currency": "JPY"}).searches[0].filters == (Range("cost", None, 5),)


def test_notes_say_what_is_left_out_and_no_word_of_the_shopper() -> None:
    mapping = CatalogueMapping.model_validate({"index": "p", "text": {"t": 1}})
    result = found(
        "secretword",
        mapping=mapping,
        price={"max": 5},
        rating={"min": 4},
        offers=["on_sale"],
        sort="newest",
        exclude={"brand": ["secretword"]},
    )

    assert [search.filters for search in result.searches] == [()]
    for name in ("price", "rating", "offers.on_sale", "sort.newest", "brand"):
        assert any(name in note for note in result.notes), name
    assert "secretword" not in " ".join(result.notes)


def test_a_sort_is_the_mapping_s() -> None:
    sort = only(sort="price_asc").sort

    assert sort is not None
    assert (sort.field, sort.order, sort.index) == ("price", "asc", "products_price_asc")
    assert only(sort="relevance").sort is None


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


def test_a_plan_without_queries_searches_nothing() -> None:
    result = found("where is my order", intent="order_status", queries=[])

    assert result.searches == ()
    assert result.notes


def test_a_question_of_signs_alone_is_no_search() -> None:
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


def test_what_no_value_is_called_lifts_nothing_and_still_matches() -> None:
    """A place is no kind of this shop: a product that has the word is not what is wanted for that."""
    mapping = titled(facets={"type": {"field": "kind", "values": {"Chair": ["seat"]}}, "color": {"boost": 0.4}})
    search = named("red place to sit", mapping, facets={"type": ["place to sit"], "color": ["red"]})

    assert [(boost.field, boost.values) for boost in search.boosts] == [(None, ("red",))]
    assert "place" in search.texts[0].words


def test_other_things_of_a_kind_are_no_names_of_the_thing() -> None:
    """A lamp is of the kind "Lighting", and so is a candle; a headset is what this shop calls headphones."""
    values = {"Lighting": ["lamp", "candle"], "Headphones": ["headset"]}
    mapping = titled(facets={"type": {"field": "kind", "values": values}})

    def called(said: str) -> tuple[str, ...]:
        return next(each.values for each in named(said, mapping).kinds if each.field is None)

    assert called("desk lamp") == ("lamp",)
    assert called("wireless headphones") == ("headphones", "headset")


def test_where_a_field_sorts_a_category_s_own_name_is_enough_for_what_is_in_it() -> None:
    """Earrings may be called "Ruby Crown" and be the dearest; without an order, what is called so comes first."""
    facets, sort = {"type": {"field": "kind", "values": {"Earrings": []}}}, {"field": "price", "order": "desc"}
    mapping = titled(facets=facets, sort={"price_desc": sort})

    def fields(said: str, order: str) -> list[str | None]:
        return [each.field for each in named(said, mapping, sort=order).kinds]

    assert fields("gold earrings", "price_desc") == ["kind"]
    assert fields("gold earrings", "relevance") == ["kind", None]
    assert fields("earrings stand", "price_desc")[-1] is None  # which is only called so


@pytest.mark.parametrize(("said", "wanted"), [("bouquet of roses", "Bouquet"), ("box of chocolates", "Chocolates")])
def test_what_a_thing_is_of_is_not_the_thing_unless_the_shop_has_no_other(said: str, wanted: str) -> None:
    search = named(said, titled(facets={"type": {"field": "kind", "values": {"Bouquet": [], "Chocolates": []}}}))
    assert [each.values for each in search.kinds if each.field == "kind"] == [(wanted,)]
    assert [each.values for each in search.kinds if each.field is None] == [(wanted.lower(),)]


def test_a_kind_filters_only_where_the_mapping_says_so() -> None:
    """A word that no value is called filters nothing, whatever the mapping says."""
    for wanted, said, filters in (
        (True, "boots", (AnyOf("kind", ("Boots",)),)), (False, "boots", ()), (True, "tent", ()),
    ):  # fmt: skip
        mapping = titled(facets={"type": {"field": "kind", "values": {"Boots": []}, "filter": wanted}})
        assert named(said, mapping).filters == filters
    with pytest.raises(ValueError, match="names no `values`"):
        titled(facets={"brand": {"field": "b", "filter": True}})


KINDS = {"kinds": [{"id": "a", "name": "Kettles"}, {"id": "b", "name": "Gone"}, {"id": "c", "name": "Mugs"}]}
KITCHEN = CatalogueMapping.model_validate(
    {
        "index": "kitchen",
        "text": {"title": 4, "category": 1},
        "facets": {"type": {"field": "category", "boost": 0.6, "values": {"Kettles": ["kettle"], "Mugs": ["cup"]}}},
        "sort": {"price_asc": {"field": "price", "order": "asc"}},
    }
)


def test_kinds_lift_and_order_where_no_thing_is_named() -> None:
    told = found("boil water for tea", KITCHEN, queries=["boil water tea"], sort="price_asc", **KINDS)
    (search,) = told.searches

    assert search.boosts == (Boost("category", ("Kettles",), 0.6), Boost("category", ("Mugs",), 0.18))
    assert search.filters == ()
    assert [each.values for each in search.kinds] == [("Kettles",), ("Mugs",)]
    assert "kettles mugs" in [text.words for text in search.texts]
    assert told.notes == (
        "a kind of the plan is no value of the mapping: learn shop folder and mapping from one catalogue",
    )


def test_kinds_of_one_name_are_told_apart_by_their_ids() -> None:
    values = {"Men > Boots": ["Boots"], "Women > Boots": ["Boots"]}
    type_ = {"field": "category", "values": values, "ids": {"m": "Men > Boots", "w": "Women > Boots"}}
    shoes = CatalogueMapping.model_validate({"index": "shoes", "text": {"title": 1}, "facets": {"type": type_}})
    named = [{"id": "w", "name": "Boots"}]

    assert found("puddles", shoes, queries=["puddles"], kinds=named).searches[0].boosts == (
        Boost("category", ("Women > Boots",), 0.5),
    )
    with pytest.raises(ValidationError, match="Kids > Boots"):
        FacetMapping.model_validate(type_ | {"ids": {"k": "Kids > Boots"}})


def test_what_the_shopper_names_is_what_is_wanted_whatever_kinds_say() -> None:
    known = found("cups", KITCHEN, queries=["cups"], facets={"type": ["cups"]}, **KINDS).searches[0]
    unknown = found("samovar", KITCHEN, queries=["samovar"], facets={"type": ["samovar"]}, **KINDS).searches[0]

    assert known.boosts == (Boost("category", ("Mugs",), 0.6),)
    assert [boost.values for boost in unknown.boosts] == [("Kettles",), ("Mugs",)]
    assert [each.values for each in unknown.kinds] == [("samovar",)]


def test_kinds_filter_where_the_mapping_says_so() -> None:
    facets = {"type": KITCHEN.facets["type"].model_copy(update={"filter": True})}
    strict = KITCHEN.model_copy(update={"facets": facets})

    assert found("boil water", strict, queries=["boil water"], **KINDS).searches[0].filters == (
        AnyOf("category", ("Kettles", "Mugs")),
    )


def test_the_typescript_client_has_the_same_words_for_materials_and_colours() -> None:
    words = yaml.safe_load(Path("clients/peakplan_client/words.yaml").read_text(encoding="utf-8"))
    source = Path("clients/typescript/src/words.ts").read_text(encoding="utf-8")
    told = [(broad, json.loads(narrow)) for broad, narrow in re.findall(r"^    (\w+): (\[.*\]),$", source, re.M)]
    assert told == [*words["materials"].items(), *words["colors"].items()]


WISHED = CatalogueMapping.model_validate(
    {
        "index": "products",
        "text": {"name": 4, "description": 1},
        "exclude_text": ["name", "description"],
        "facets": {
            "type": {"field": "style", "values": {"boot": ["wellies"], "bag": ["handbag"], "camping": ["tent"]}},
            "brand": {"field": "brand"},
            "color": {},
        },
        "price": {"field": "price", "currency": "USD", "rates": {"EUR": 1.1}},
        "rating": {"field": "stars", "best": 10},
        "offers": {"in_stock": {"field": "stock", "min": 1}, "on_sale": {"field": "sale", "values": [True]}},
    }
)
BOOTS = {
    "name": "Red Leather Boots",
    "description": "Fine.",
    "style": "boot",
    "brand": "Acme",
    "price": 88.0,
    "stars": 9,
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
    ],
)
def test_a_wish_is_met_or_not_or_nobody_knows(
    plan: dict[str, Any], product: dict[str, Any], expected: dict[str, list[str]]
) -> None:
    assert judged(plan, BOOTS | product) == expected


def test_of_several_things_a_product_is_judged_as_the_one_that_it_is() -> None:
    plan = {
        "parts": [
            {"facets": {"type": ["tent"]}, "queries": ["tent"], "price": {"max": 10}},
            {"facets": {"type": ["boots"]}, "queries": ["boots"], "exclude": {"material": ["leather"]}},
        ],
        "offers": ["in_stock"],
    }
    assert judged(plan, BOOTS | {"stock": 1}) == {"met": ["in stock", "boots"], "unmet": ["not leather"]}
    tent = {"name": "Dear tent", "style": "camping", "price": 99}
    assert judged(plan, tent) == {"met": ["tent"], "unmet": ["up to 10"], "unknown": ["in stock"]}


SAMPLE = CatalogueMapping.load(SHOP)
RED_BOOTS = Plan.model_validate({"facets": {"type": ["boots"]}, "queries": ["red boots"]})


def asked(engine: Any, plan: Plan = RED_BOOTS, **page: Any) -> tuple[Any, tuple[str, ...]]:
    made = translate(plan, SAMPLE, engine, "red boots", **page)
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
        for note in asked("meilisearch", RED_BOOTS.model_copy(update={"sort": "price_asc"}), offset=1)[1]
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
