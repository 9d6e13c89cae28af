"""Operators of search engines in a question, and numbers that stay whole: what is sent is what the shopper means."""

import pytest
from peakplan_client import CatalogueMapping, MappingError, Plan, translate
from peakplan_client.mapping import words

MAPPING = CatalogueMapping.model_validate(
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
    (found,) = translate(PLAN, MAPPING, "opensearch", question).requests
    query = found["query"]["bool"]
    assert "nike" not in str(query["must"]).lower()
    assert [each for each in query["must_not"] if "g:brand" in str(each)]


@pytest.mark.parametrize("question", ["t-shirt", "shirt - nike", "under -5 degrees", 'a 24" wide 30" tall nike'])
def test_a_dash_inside_or_alone_refuses_nothing(question: str) -> None:
    (found,) = translate(PLAN, MAPPING, "opensearch", question).requests
    assert "must_not" not in str(found)


def test_a_quoted_phrase_lifts_what_has_it() -> None:
    (found,) = translate(Plan(queries=["lamp"]), MAPPING, "opensearch", 'lamp "tiffany style"').requests
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
    (found,) = translate(plan, MAPPING, engine, "shoes").requests  # type: ignore[arg-type]
    assert named in (found.sql if engine != "meilisearch" else str(found))
    assert "price currency" in (found.sql if engine != "meilisearch" else str(found))


@pytest.mark.parametrize("engine", ["solr", "typesense", "vespa", "algolia"])
def test_a_field_that_an_engine_cannot_name_is_refused_with_what_to_do(engine: str) -> None:
    with pytest.raises(MappingError, match="index it under a name of letters"):
        translate(PLAN, MAPPING, engine, "shoes")  # type: ignore[arg-type]
