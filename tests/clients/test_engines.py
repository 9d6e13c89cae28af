"""What each engine is sent."""

import json
from pathlib import Path
from typing import Any

import pytest
from peakplan_client import CatalogueMapping, Plan, translate

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


def test_meilisearch_weighs_two_wishes_together_by_the_sum_of_both() -> None:
    body = one("meilisearch", PLAN.model_copy(update={"facets": {"color": ["crimson"], "material": ["suede"]}}))
    plain, color, material, both = (each["federationOptions"]["weight"] for each in body["queries"][:4])
    assert [plain, color, material] == [1.0, 1.5, 1.3]
    assert both == pytest.approx(1.8)
    assert len(body["queries"][3]["filter"]) == len(body["queries"][0]["filter"]) + 2


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
