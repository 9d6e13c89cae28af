"""What each engine is sent, and that no word of a shopper or value of a catalogue is more than a word in it."""

import json
import re
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from peakplan_client import CatalogueMapping, Plan, translate
from peakplan_client.mapping import words
from peakplan_client.operators import read_operators

MAPPING = CatalogueMapping.load(Path(__file__).parents[2] / "clients" / "examples" / "mapping.yaml")
QUESTION = "red boots under $1234567.89 not nike or teal in stock"
PLAN = Plan.model_validate(
    {
        "queries": ["red boots"],
        "facets": {"color": ["crimson"]},
        "exclude": {"brand": ["nike"], "color": ["teal"]},
        "price": {"min": 10, "max": 1234567.89},
        "offers": ["in_stock", "free_shipping"],
    }
)


def one(engine: Any, plan: Plan = PLAN, question: str = QUESTION) -> Any:
    (request,) = translate(plan, MAPPING, engine, question).requests
    return request


def test_an_unknown_engine_is_refused() -> None:
    with pytest.raises(ValueError, match="one of opensearch, elasticsearch, solr, typesense"):
        translate(PLAN, MAPPING, "lunr", QUESTION)  # type: ignore[arg-type]


def test_opensearch_and_elasticsearch() -> None:
    body = one("opensearch")
    scored = body["query"]["function_score"]
    query = scored["query"]["bool"]

    assert one("elasticsearch") == body
    assert [each["multi_match"]["query"] for each in query["must"][0]["bool"]["should"]] == [
        "red boots",
        "red boots under 1234567.89 not nike or teal in stock",
    ]
    assert query["must"][0]["bool"]["minimum_should_match"] == 1
    assert query["filter"] == [
        {"range": {"price": {"gte": 10, "lte": 1234567.89}}},
        {"range": {"stock": {"gte": 1}}},
        {"terms": {"shipping": ["free"]}},
    ]
    nike, teal = query["must_not"]
    assert nike["bool"]["should"] == [{"term": {"brand": {"value": "nike", "case_insensitive": True}}}]
    assert teal["multi_match"] == {"query": "teal", "fields": ["title"], "type": "phrase"}
    assert [each["weight"] for each in scored["functions"]] == [1, 0.5]


def test_opensearch_sorts_what_matches_well_before_the_rest() -> None:
    body = one("opensearch", PLAN.model_copy(update={"sort": "price_asc"}))

    assert body["sort"] == [{"_score": {"order": "desc"}}, {"price": {"order": "asc", "missing": "_last"}}]
    strong, color = [clause["constant_score"] for clause in body["query"]["bool"]["should"]]
    assert strong["filter"]["multi_match"]["minimum_should_match"] == "60%"
    assert color["filter"]["bool"]["should"] == [{"term": {"color_family": {"value": "Red", "case_insensitive": True}}}]
    assert body["query"]["bool"]["filter"][0]["bool"]["minimum_should_match"] == 1  # all that matches is still found


def test_opensearch_sorts_what_is_the_thing_first() -> None:
    facets = {"type": ["hiking boots"], "color": ["crimson"]}
    body = one("opensearch", PLAN.model_copy(update={"sort": "price_asc", "facets": facets}))

    kind, color = [clause["constant_score"] for clause in body["query"]["bool"]["should"]]
    assert kind["filter"]["bool"]["should"][0]["multi_match"]["query"] == "boots"
    assert kind["boost"] > color["boost"]


def test_typesense() -> None:
    body = one("typesense")

    assert body["union"] is True
    assert [search["q"] for search in body["searches"]] == [
        "red boots",
        "red boots under 1234567.89 not nike or teal in stock",
    ]
    (common,) = {json.dumps({**search, "q": ""}) for search in body["searches"]}  # a union needs the same sort in all
    assert json.loads(common) == {
        "q": "",
        "collection": "products",
        "query_by": "title,description",
        "query_by_weights": "127,42",
        "drop_tokens_threshold": 10,
        "sort_by": "_text_match(buckets: 10):desc,_eval([(color_family:=[`Red`]):5]):desc",
        "filter_by": "price:>=10 && price:<=1234567.89 && stock:>=1 && shipping:=[`free`] && brand:!=[`nike`] "
        "&& title:!`teal`",
    }


def test_solr() -> None:
    def words(said: str, least: str = "1") -> Any:
        return {"dismax": {"qf": "title^3 description^1", "mm": least, "tie": "1", "query": said}}

    own = words("red boots under 1234567.89 not nike or teal in stock")
    assert one("solr") == {
        "query": {
            "boost": {
                "b": "sum(1,if(exists(query($boost0)),0.5,0))",
                "query": {
                    "bool": {
                        "must": [
                            {"bool": {"should": [words("red boots"), {"boost": {"b": "0.5", "query": own}}]}},
                        ],
                        "filter": [
                            {"lucene": {"query": "price:[10 TO 1234567.89]"}},
                            {"lucene": {"query": "stock:[1 TO *]"}},
                            {"field": {"f": "shipping", "query": "free"}},
                        ],
                        "must_not": [
                            {"field": {"f": "brand", "query": "nike"}},
                            {"field": {"f": "title", "query": "teal"}},
                        ],
                    }
                },
            }
        },
        "limit": 10,
        "queries": {"boost0": {"field": {"f": "color_family", "query": "Red"}}},
    }
    facets = {"type": ["hiking boots"], "color": ["crimson"]}
    body = one("solr", PLAN.model_copy(update={"sort": "price_asc", "facets": facets}))
    assert body["sort"] == (
        "sum(if(exists(query($kind)),3,0),if(exists(query($wanted0)),1,0),if(exists(query($wanted1)),1,0),0) desc,"
        "price asc,score desc"
    )
    assert body["queries"]["kind"] == {"field": {"f": "title", "query": "boots"}}
    assert "boost" not in body["query"]
    body = one("solr", PLAN.model_copy(update={"sort": "price_asc", "facets": {}}))
    assert body["queries"] == {"strong": words("red boots", "60%")}


def test_meilisearch() -> None:
    body = one("meilisearch")

    assert body["federation"] == {"limit": 10}
    assert [(each["q"], each["federationOptions"]["weight"]) for each in body["queries"]] == [
        ("-teal red boots", 1.0),
        ("-teal red boots", 1.5),
        ("-teal red boots under 1234567.89 not nike or teal in stock", 0.5),
        ("-teal red boots under 1234567.89 not nike or teal in stock", 0.75),
    ]
    limits = ["price >= 10 AND price <= 1234567.89", "stock >= 1", 'shipping IN ["free"]', 'brand NOT IN ["nike"]']
    assert body["queries"][0]["filter"] == limits
    assert body["queries"][1]["filter"] == [*limits, 'color_family IN ["Red"]']
    assert body["queries"][0]["matchingStrategy"] == "frequency"

    facets = {"type": ["hiking boots"], "color": ["crimson"]}
    body = one("meilisearch", PLAN.model_copy(update={"sort": "price_asc", "facets": facets, "exclude": {}}))
    assert "federation" not in body
    of_name, all_of_it = body["queries"]
    assert (of_name["q"], of_name["matchingStrategy"], of_name["attributesToSearchOn"]) == ("boots", "all", ["title"])
    assert all(each["sort"] == ["price:asc"] and each["limit"] == 10 for each in body["queries"])
    assert all_of_it["q"].startswith("red boots under")


def test_meilisearch_lists_the_kind_first_where_a_field_sorts() -> None:
    facets = {"type": {"field": "kind", "values": {"Boots": []}}, "color": {"field": "color"}}
    mapping = CatalogueMapping.model_validate({**MAPPING.model_dump(), "facets": facets})
    plan = PLAN.model_copy(update={"sort": "price_asc", "facets": {"type": ["boots"], "color": ["red"]}, "exclude": {}})
    (body,) = translate(plan, mapping, "meilisearch", "red boots cheapest").requests

    narrow, of_kind, of_name, _ = body["queries"]
    assert narrow["filter"][-2:] == ['kind IN ["Boots"]', 'color IN ["red"]']
    assert of_kind["filter"][-1] == 'kind IN ["Boots"]'
    assert "filter" in of_name


def test_algolia() -> None:
    assert one("algolia") == {
        "indexName": "products",
        "query": "red boots under 1234567.89 not nike or in stock -teal",
        "optionalWords": ["red boots under 1234567.89 not nike or in stock"],
        "hitsPerPage": 10,
        "advancedSyntax": True,
        "advancedSyntaxFeatures": ["excludeWords"],
        "numericFilters": ["price>=10", "price<=1234567.89", "stock>=1"],
        "facetFilters": [["shipping:free"], "brand:-nike"],
        "optionalFilters": [["color_family:Red<score=5>"]],
    }
    body = one("algolia", PLAN.model_copy(update={"sort": "price_asc"}))
    assert (body["indexName"], body["relevancyStrictness"]) == ("products_price_asc", 60)


def test_algolia_takes_no_more_than_its_longest_query() -> None:
    question = "wort " * 100 + "größe " * 100
    body = one(
        "algolia",
        PLAN.model_copy(update={"queries": ["boots " * 200]}),
        " ".join(f"{w}{i}" for i, w in enumerate(question.split())),
    )

    assert len(body["query"].encode()) <= 512
    assert body["query"].endswith("-teal")


def test_vespa() -> None:
    assert one("vespa") == {
        "yql": 'select * from products where rank((({grammar:"weakAnd",targetHits:100}userInput(@text0)) or '
        '({grammar:"weakAnd",targetHits:100}userInput(@text1))) and price >= 10 and price <= 1234567.89 and '
        'stock >= 1 and shipping contains "free" and !(brand contains "nike") and !(title contains "teal"), '
        'color_family contains ({weight:150}"Red"))',
        "hits": 10,
        "text0": "red boots",
        "text1": "red boots under 1234567.89 not nike or teal in stock",
    }
    body = one("vespa", PLAN.model_copy(update={"sort": "price_asc", "exclude": {"feature": ["ankle strap"]}}))
    assert body["yql"].endswith('!(title contains phrase("ankle", "strap")) order by price asc')
    assert '{grammar:"all"}userInput(@text0)' in body["yql"]


def test_a_sort_without_what_the_engine_needs_is_told() -> None:
    sort = {"newest": {"index": "newest_first"}, "rating": {"field": "stars"}}
    mapping = CatalogueMapping.model_validate({"index": "p", "text": {"t": 1}, "sort": sort})
    for engine in ("opensearch", "solr", "typesense", "meilisearch", "vespa", "postgresql", "sqlite"):
        notes = translate(PLAN.model_copy(update={"sort": "newest"}), mapping, engine, "x").notes  # type: ignore[arg-type]
        assert any("no field" in note for note in notes), engine
    notes = translate(PLAN.model_copy(update={"sort": "rating"}), mapping, "algolia", "x").notes
    assert any("replica" in note for note in notes)


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
