"""No word of a shopper, and no value of a catalogue, can be more than a word in what an engine is sent."""

import re
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from peakplan_client import CatalogueMapping, Plan, translate
from peakplan_client.mapping import words
from peakplan_client.operators import read_operators

from tests.clients.test_engines import PLAN, one

HOSTILE = [
    'x" OR "1"="1', "x' OR 1=1 --", "`) || price:>0 || brand:=`", "brand:-nike", "-nike", "--", "\\",
    '\\" or true) or ("',
    "nike) OR category:book", "NOT NEAR AND OR", "*", "^boots", "{color} : red", "a:b", "\x00\x1b[31m", "&& !( ||",
    "@text0", "${jndi:ldap://x}", "'; DROP TABLE products; --", "ni\u202eke", "“quoted”", "price>0", "<score=99>", ",",
]  # fmt: skip
hostile = pytest.mark.parametrize("said", HOSTILE)


def with_values(said: str) -> Plan:
    """Return a plan that says this wherever a shopper's words can stand."""
    said_by_all = {facet: [said] for facet in ("brand", "color", "material", "type", "unknown")}
    return PLAN.model_copy(update={"queries": [said, "boots"], "facets": said_by_all, "exclude": said_by_all})


def refused_in(said: str) -> set[str]:
    """Return the words that a text's own operators refuse, which a translation excludes as it is asked to."""
    return {" ".join(words(each)) for each in read_operators(said).refused}


@hostile
def test_typesense_filters_cannot_be_broken_out_of(said: str) -> None:
    for search in one("typesense", with_values(said), said)["searches"]:
        outside = re.sub(r"`[^`]*`", "v", search["filter_by"])
        condition = r"[a-z_]+(:(>=|<=)[0-9.]+|:!?=\[v(,v)*\]|:!v)"
        assert re.fullmatch(rf"{condition}( && {condition})*", outside), search["filter_by"]
        assert re.fullmatch(
            r"_text_match\(buckets: 10\):desc(,_eval\(.*\):desc)?", re.sub(r"`[^`]*`", "v", search["sort_by"])
        )
        assert not re.search(r'["*]|(^| )-', search["q"])  # no phrase, wildcard or exclusion of the shopper's making


@hostile
@pytest.mark.parametrize("sort", ["relevance", "price_asc"])
def test_solr_s_syntax_cannot_be_broken_into(said: str, sort: str) -> None:
    """Words are whole queries of parsers that know no fields, ranges or functions; the rest is the mapping's."""
    plain = " ".join(words(said))

    def check(clause: Any) -> None:
        ((parser, given),) = clause.items()
        if parser in ("bool", "boost"):
            inner = [given["query"]] if parser == "boost" else [each for kind in given.values() for each in kind]
            for each in inner:
                check(each)
        elif parser == "lucene":
            assert re.fullmatch(r"(price|stock):\[[\d.]+ TO [\d.*]+\]", given["query"])
        else:
            assert parser in ("dismax", "field")
            known = {"free", "Red", "boot", "boots", "leather"}
            assert set(given["query"].split()) <= {*plain.split(), *known}, given["query"]

    body = one("solr", with_values(said).model_copy(update={"sort": sort}), said)
    for clause in (body["query"], *body.get("queries", {}).values()):
        check(clause)
    assert re.fullmatch(r"[\w(),$. ]+", body.get("sort", "x"))


@hostile
@pytest.mark.parametrize("sort", ["relevance", "price_asc"])
def test_meilisearch_filters_cannot_be_broken_out_of(said: str, sort: str) -> None:
    plain = " ".join(words(said))
    for query in one("meilisearch", with_values(said).model_copy(update={"sort": sort}), said)["queries"]:
        for each in query["filter"]:
            outside = re.sub(r'"(?:[^"\\]|\\.)*"', "v", each)
            condition = r"[a-z_]+ ((>=|<=) [0-9.]+|(NOT )?IN \[v(, v)*\])"
            assert re.fullmatch(rf"{condition}( AND {condition})*", outside), each
        negative = re.findall(r'(?:^| )-("[^"]*"|\S+)', query["q"])
        assert {each.strip('"') for each in negative} <= {plain, "boots", *refused_in(said)}


@hostile
def test_algolia_filters_cannot_be_broken_out_of(said: str) -> None:
    plain = " ".join(words(said))
    body = one("algolia", with_values(said), said)

    assert body["numericFilters"] == ["price>=10", "price<=1234567.89", "stock>=1"]
    assert body.get("filters") is None
    for each in body["facetFilters"]:
        assert each in (["shipping:free"], f"brand:-{plain}", f"material:-{plain}")
    excluded = [word for word in body["query"].split() if word.startswith("-")]
    assert {word[1:] for word in excluded} <= {plain, *refused_in(said)}
    for (value,) in body.get("optionalFilters", []):
        assert value in (f"brand:{plain}<score=5>", f"material:{plain}<score=3>", "color_family:Red<score=5>")


@hostile
def test_vespa_s_query_cannot_be_broken_out_of(said: str) -> None:
    body = one("vespa", with_values(said), said)
    outside = re.sub(r'"(?:[^"\\]|\\.)*"', "v", body["yql"])

    assert re.fullmatch(r"[\w\s*().,:<>={}@!]*", outside), body["yql"]
    assert set(re.findall(r"[a-zA-Z_]\w*", outside)) <= set(
        "select from products where rank grammar v targetHits userInput text0 text1 text2 text3 or and price stock "
        "shipping contains brand material title phrase weight color_family".split()
    )
    assert outside.count("(") == outside.count(")")
    for name, text in body.items():
        if name.startswith("text"):
            assert text == " ".join(words(text))


@given(st.text(max_size=60))
def test_catalogue_values_are_escaped_too(value: str) -> None:
    """A mapping is trusted, but its values may hold quotes and signs of any kind."""
    facets = {"brand": {"field": "brand", "values": {value: ["it"]}}}
    mapping = CatalogueMapping.model_validate({"index": "p", "text": {"t": 1}, "facets": facets})
    plan = Plan(queries=["x"], exclude={"brand": ["it"]}, facets={"brand": ["it"]})

    yql = translate(plan, mapping, "vespa", "x").requests[0]["yql"]
    assert re.fullmatch(r"[\w\s*().,:<>={}@!]*", re.sub(r'"(?:[^"\\]|\\.)*"', "v", yql))
    filter_by = translate(plan, mapping, "typesense", "x").requests[0]["searches"][0]["filter_by"]
    assert re.fullmatch(r"brand:!=\[`[^`]*`\]", filter_by)
    (excluded,) = translate(plan, mapping, "algolia", "x").requests[0]["facetFilters"]
    assert excluded.startswith("brand:-")
    assert not excluded.startswith("brand:--")
    (query, *_) = translate(plan, mapping, "meilisearch", "x").requests[0]["queries"]
    assert re.fullmatch(r"brand NOT IN \[v\]", re.sub(r'"(?:[^"\\]|\\.)*"', "v", query["filter"][0]))


def test_a_catalogue_s_backslash_ends_no_literal_of_vespa() -> None:
    mapping = CatalogueMapping.model_validate(
        {
            "index": "products",
            "text": {"title": 1},
            "facets": {"color": {"field": "color", "values": {'red\\" or true': ["crimson"]}}},
        }
    )
    plan = Plan.model_validate({"queries": ["boots"], "exclude": {"color": ["crimson"]}})
    (request,) = translate(plan, mapping, "vespa", "boots").requests
    assert r'contains "red\\\" or true"' in request["yql"]
