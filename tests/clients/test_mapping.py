"""A catalogue's mapping, operators in a question, and what a shopper refuses as a filter."""

import re
from collections.abc import Mapping, Sequence
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st
from peakplan_client import CatalogueMapping, MappingError, Plan, translate
from peakplan_client.mapping import FacetMapping, normal, words
from peakplan_client.search import Filter, NoneOf, NotInText
from peakplan_client.searching import searches
from peakplan_client.shop import MAPPING

from rehearsal.bench.machine import operations

EXAMPLE = Path(__file__).parents[2] / "clients" / "examples" / "mapping.yaml"
SMALLEST = "index: products\ntext: {title: 1}\n"


def load(tmp_path: Path, text: str) -> CatalogueMapping:
    path = tmp_path / "shop.yaml"
    path.write_text(text, encoding="utf-8")
    return CatalogueMapping.load(path)


@pytest.mark.parametrize("path", [EXAMPLE, MAPPING])
def test_the_mappings_that_we_ship_are_right(path: Path) -> None:
    assert CatalogueMapping.load(path).index == "products"


@pytest.mark.parametrize(
    ("more", "told"),
    [
        ("prize: {field: cost}", "prize is not a key of a mapping"),
        ("price: {currency: USD}", "price.field is required: add it"),
        ("price: {field: 'a; DROP'}", "price.field must be a name"),
        ("price: {field: cost, currency: dollars}", "price.currency must be"),
        ("price: {field: cost, rates: {EUR: 1.1}}", "no `currency` that they lead to"),
        ("price: {field: cost, currency: USD, rates: {EUR: 0}}", "price.rates.EUR input should be greater than 0"),
        ("facets: {brand: {values: {Nike: []}}}", "facets.brand .*name the `field`"),
        ("facets: {brand: {field: brand, values: {Nike: swoosh}}}", "facets.brand.values.Nike"),
        ("facets: {brand: {field: brand, boost: -1}}", "facets.brand.boost"),
        ("offers: {in_stock: {field: stock}}", "offers.in_stock .*either `values`"),
        ("offers: {in_stok: {field: stock, min: 1}}", "in_stok is not known: use in_stock"),
        ("sort: {price_asc: {order: asc}}", "sort.price_asc .*needs a `field`"),
        ("sort: {cheapest: {field: price}}", "cheapest is not known: use price_asc"),
        ("exclude_text: [name]", "exclude_text names name"),
        ("index: products", "'index' stands twice"),
        ("text: [", "neither YAML nor JSON"),
    ],
)
def test_a_bad_mapping_is_refused_with_file_key_and_what_to_do(tmp_path: Path, more: str, told: str) -> None:
    with pytest.raises(MappingError, match=rf"(?s)shop\.yaml.*{told}"):
        load(tmp_path, f"{SMALLEST}{more}\n")


@pytest.mark.parametrize("text", ["", "[]", "just words", "index: products"])
def test_what_is_no_mapping_is_refused(tmp_path: Path, text: str) -> None:
    with pytest.raises(MappingError, match=r"shop\.yaml"):
        load(tmp_path, text)


def test_a_file_that_is_missing_or_no_text_is_refused(tmp_path: Path) -> None:
    (tmp_path / "bytes.yaml").write_bytes(b"\xff\xfe\x00")
    for name in ("missing.yaml", "bytes.yaml"):
        with pytest.raises(MappingError, match=f"{name} cannot be read"):
            CatalogueMapping.load(tmp_path / name)


COLORS = FacetMapping(field="color", values={"Navy Blue": ["midnight"], "Red": ["crimson", "dark-red"], "Gray": []})
TYPES = FacetMapping(
    field="style", values={"boot": ["booties"], "glasses": [], "bag": ["tote bag"], "tote": ["tote bag"]}
)


@pytest.mark.parametrize(
    ("said", "values"),
    [
        ("navy blue", ["Navy Blue"]),
        ("NAVY-blue", ["Navy Blue"]),
        ("crimson", ["Red"]),
        ("Dark Red", ["Red"]),
        ("teal", []),
    ],
)
def test_values_are_found_by_their_names_and_synonyms(said: str, values: list[str]) -> None:
    assert COLORS.exact(said) == values


@pytest.mark.parametrize(
    ("said", "values"),
    [
        ("boots", ["boot"]),
        ("leather hiking boots", ["boot"]),
        ("women's glasses", ["glasses"]),
        ("canvas tote bags", ["bag", "tote"]),  # one name may mean two values
        ("glasses for boots", ["boot"]),  # the last word is what the product is
        ("reboot", []),
        ("boot jacks", []),  # a boot does not make it one
    ],
)
def test_a_longer_name_is_known_by_the_value_within(said: str, values: list[str]) -> None:
    assert TYPES.within(said) == values


def test_without_values_a_field_holds_what_is_said() -> None:
    assert FacetMapping(field="brand").exact("  Nike! ") == ["nike"]
    assert FacetMapping().exact("nike") == []


@pytest.mark.parametrize(
    ("one", "other"),
    [
        ("dresses", "dress"),
        ("watches", "watch"),
        ("berries", "berry"),
        ("men's", "mens"),
        ("boxes", "box"),
        ("axes", "axe"),
        ("ties", "tie"),
        ("socks", "sock"),
    ],
)
def test_plurals_are_the_same(one: str, other: str) -> None:
    assert normal(one) == normal(other)


@given(st.text())
def test_words_hold_no_query_syntax(text: str) -> None:
    for word in words(text):
        plain = re.sub(r"(?<=\d)[,/](?=\d)", "", word)  # inside numbers: 5,5 and 1/2
        assert not set(plain) & set('"`()[]{}:&|!<>=\\/*^~@#%;,+ \t\n')
        assert word[0].isalnum() or word[0].isalpha() or word[0].isnumeric()
        assert word == word.lower() or word.casefold() == word


@pytest.mark.parametrize("word", ["hiking", "a", "3.5-in", "flower"])
def test_the_words_of_a_value_cost_their_number(word: str) -> None:
    """1,700 words once took nine seconds."""
    types = CatalogueMapping.load(MAPPING).facets["type"]
    types.within("warm up")
    few, many = (operations(lambda n=n: types.within(" ".join([word] * n))) for n in (500, 1000))  # type: ignore[misc]
    assert few < many < 2.1 * few
    assert many < 1_000_000


SHOES = CatalogueMapping.model_validate(
    {
        "index": "shop",
        "text": {"Product Name": 3, "Body (HTML)": 1},
        "exclude_text": ["Product Name"],
        "facets": {"brand": {"field": "g:brand", "values": {"Nike": [], "Puma": []}}},
        "price": {"field": "Price 10%", "currency": "USD", "currency_field": "price currency"},
    }
)
PLAN = Plan.model_validate({"facets": {"brand": ["nike"]}, "queries": ["running shoes nike"]})


@pytest.mark.parametrize("question", ["running shoes -nike", "running shoes !nike", "running shoes NOT nike"])
def test_what_an_operator_refuses_is_excluded_and_not_wanted(question: str) -> None:
    (found,) = translate(PLAN, SHOES, "opensearch", question).requests
    query = found["query"]["bool"]
    assert "nike" not in str(query["must"]).lower()
    assert [each for each in query["must_not"] if "g:brand" in str(each)]


@pytest.mark.parametrize("question", ["t-shirt", "shirt - nike", "under -5 degrees", 'a 24" wide 30" tall nike'])
def test_a_dash_inside_or_alone_refuses_nothing(question: str) -> None:
    (found,) = translate(PLAN, SHOES, "opensearch", question).requests
    assert "must_not" not in str(found)


def test_a_quoted_phrase_lifts_what_has_it() -> None:
    (found,) = translate(Plan(queries=["lamp"]), SHOES, "opensearch", 'lamp "tiffany style"').requests
    (lifted,) = found["query"]["function_score"]["functions"][1:]
    assert "tiffany style" in str(lifted["filter"])


@pytest.mark.parametrize(
    ("said", "kept"),
    [("din340 5,5", ["din340", "5,5"]), ("size 10½", ["size", "10-1/2"]), ("18-1/4 saw", ["18-1/4", "saw"]),
     ("and/or a,b", ["and", "or", "a", "b"])],
)  # fmt: skip
def test_numbers_stay_whole(said: str, kept: list[str]) -> None:
    assert words(said) == kept


@pytest.mark.parametrize(
    ("engine", "named"),
    [("meilisearch", '"Price 10%" <= 50'), ("postgresql", '"Price 10%%" <= %s'), ("sqlite", '"Price 10%" <= ?')],
)
def test_a_field_of_any_name_is_quoted(engine: str, named: str) -> None:
    plan = Plan.model_validate({"price": {"max": 50, "currency": "USD"}, "queries": ["shoes"]})
    (found,) = translate(plan, SHOES, engine, "shoes").requests  # type: ignore[arg-type]
    assert named in (found.sql if engine != "meilisearch" else str(found))
    assert "price currency" in (found.sql if engine != "meilisearch" else str(found))


@pytest.mark.parametrize("engine", ["solr", "typesense", "vespa", "algolia"])
def test_a_field_that_an_engine_cannot_name_is_refused_with_what_to_do(engine: str) -> None:
    with pytest.raises(MappingError, match="index it under a name of letters"):
        translate(PLAN, SHOES, engine, "shoes")  # type: ignore[arg-type]


def filters(mapping: CatalogueMapping, exclude: Mapping[str, Sequence[str]]) -> tuple[Filter, ...]:
    (search,) = searches(Plan.model_validate({"queries": ["anything"], "exclude": exclude}), mapping, "").searches
    return search.filters


def test_a_refused_value_is_looked_up_in_every_facet() -> None:
    wines = CatalogueMapping.model_validate(
        {
            "index": "wines",
            "text": {"name": 1},
            "exclude_text": ["name"],
            "facets": {"brand": {"field": "maker"}, "type": {"field": "grape", "values": {"Merlot": ["merlots"]}}},
        }
    )
    assert filters(wines, {"feature": ["merlot", "oak"], "brand": ["Muga"]}) == (
        NoneOf("grape", ("Merlot",)),
        NotInText(("name",), "merlot"),
        NotInText(("name",), "oak"),
        NoneOf("maker", ("muga",)),
    )


@pytest.mark.parametrize(
    ("exclude", "refused"),
    [
        ({"type": ["balls"]}, (NotInText(("name",), "balls"),)),  # of which the shop has some among pet toys
        ({"type": ["pet toys"]}, (NoneOf("kind", ("pet toys",)),)),
        (
            {"material": ["glass"]},  # of which crystal is one
            (NoneOf("kind", ("glasses",)), NotInText(("name",), "glass"), NotInText(("name",), "crystal")),
        ),
        ({"color": ["scarlet"]}, (NoneOf("color", ("red",)),)),
    ],
)
def test_what_a_shopper_refuses_is_no_more_and_no_less_than_that(
    exclude: dict[str, list[str]], refused: tuple[Filter, ...]
) -> None:
    kinds = {"pet toys": ["ball", "chew bone"], "glasses": ["sunglasses"]}
    shop = CatalogueMapping.model_validate(
        {
            "index": "p",
            "text": {"name": 1},
            "exclude_text": ["name"],
            "facets": {
                "type": {"field": "kind", "values": kinds},
                "color": {"field": "color", "values": {"red": ["scarlet"]}},
            },
        }
    )
    assert filters(shop, exclude) == refused
