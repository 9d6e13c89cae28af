"""A catalogue's mapping, operators in a question, and what a shopper refuses as a filter."""

import re
from pathlib import Path

import pytest
import yaml
from hypothesis import given
from hypothesis import strategies as st
from peakplan_client import CatalogueMapping, MappingError, Plan, translate
from peakplan_client.mapping import FacetMapping, normal, words

SMALLEST = b"index: products\ntext: {title: 1}\n"


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
    refused(tmp_path, SMALLEST + more.encode(), told)


@pytest.mark.parametrize(
    ("content", "told"),
    [(b"", "must have keys with values"), (b"[]", "must have keys with values"),
     (b"just words", "must have keys with values"), (b"index: products", "text is required: add it"),
     (b"\xff\xfe\x00", "cannot be read"), (None, "cannot be read")],
)  # fmt: skip
def test_what_is_no_mapping_is_refused(tmp_path: Path, content: bytes | None, told: str) -> None:
    refused(tmp_path, content, told)


def refused(folder: Path, content: bytes | None, told: str) -> None:
    path = folder / "shop.yaml"
    if content is not None:
        path.write_bytes(content)
    with pytest.raises(MappingError, match=rf"(?s)shop\.yaml.*{told}"):
        CatalogueMapping.load(path)


COLORS = FacetMapping(field="color", values={"Navy Blue": ["midnight"], "Red": ["crimson", "dark-red"], "Gray": []})
TYPES = FacetMapping(
    field="style", values={"boot": ["booties"], "glasses": [], "bag": ["tote bag"], "tote": ["tote bag"]}
)


@pytest.mark.parametrize(
    ("facet", "said", "exact", "within"),
    [
        (COLORS, "navy blue", ["Navy Blue"], ["Navy Blue"]),
        (COLORS, "NAVY-blue", ["Navy Blue"], ["Navy Blue"]),
        (COLORS, "crimson", ["Red"], ["Red"]),
        (COLORS, "Dark Red", ["Red"], ["Red"]),
        (COLORS, "teal", [], []),
        (TYPES, "boots", ["boot"], ["boot"]),
        (TYPES, "leather hiking boots", [], ["boot"]),
        (TYPES, "women's glasses", [], ["glasses"]),
        (TYPES, "canvas tote bags", [], ["bag", "tote"]),  # one name may mean two values
        (TYPES, "glasses for boots", [], ["boot"]),  # the last word is what the product is
        (TYPES, "reboot", [], []),
        (TYPES, "boot jacks", [], []),  # a boot does not make it one
        (FacetMapping(field="brand"), "  Nike! ", ["nike"], ["nike"]),  # without values a field holds what is said
        (FacetMapping(), "nike", [], []),
    ],
)
def test_values_are_found_by_their_names_and_synonyms_and_within_longer_names(
    facet: FacetMapping, said: str, exact: list[str], within: list[str]
) -> None:
    assert facet.exact(said) == exact
    assert facet.within(said) == within


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


SHOES = CatalogueMapping.model_validate(
    yaml.safe_load("""
index: shop
text: {Product Name: 3, Body (HTML): 1}
exclude_text: [Product Name]
facets: {brand: {field: "g:brand", values: {Nike: [], Puma: []}}}
price: {field: Price 10%, currency: USD, currency_field: price currency}
""")
)
PLAN = Plan.model_validate({"facets": {"brand": ["nike"]}, "queries": ["running shoes nike"]})


@pytest.mark.parametrize(
    ("question", "is_refused"),
    [
        ("running shoes -nike", True),
        ("running shoes !nike", True),
        ("running shoes NOT nike", True),
        ("t-shirt", False),
        ("shirt - nike", False),
        ("under -5 degrees", False),
        ('a 24" wide 30" tall nike', False),
    ],
)
def test_what_an_operator_refuses_is_excluded_and_not_wanted(question: str, is_refused: bool) -> None:
    (found,) = translate(PLAN, SHOES, "opensearch", question).requests
    assert ("must_not" in str(found)) == is_refused
    if is_refused:
        query = found["query"]["bool"]
        assert "nike" not in str(query["must"]).lower()
        assert [each for each in query["must_not"] if "g:brand" in str(each)]


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
