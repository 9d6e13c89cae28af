"""Translations against the engines' own Python libraries: the client itself does without them.

Elsewhere each test is skipped, library by library. No engine runs: what is checked is that the libraries' builders and
types, which follow the engines' published APIs, know every part of our requests and would write the same.
"""

import copy
import inspect
import json
import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any, get_type_hints

import pytest
from peakplan_client import CatalogueMapping, Plan, translate
from pydantic import TypeAdapter

from tests.clients.test_engines import HOSTILE

pytestmark = pytest.mark.filterwarnings("ignore")  # the libraries' own
MAPPING = CatalogueMapping.load(Path(__file__).parents[2] / "clients" / "examples" / "mapping.yaml")
EVERYTHING: dict[str, Any] = {
    "queries": ["red boots", "boots"],
    "facets": {"color": ["red", "navy"], "brand": ["keen"], "type": ["boots"]},
    "vertical": "apparel-accessories",
    "exclude": {"brand": ["nike"], "color": ["teal", "dark teal"]},
    "price": {"min": 10, "max": 80.5, "currency": "USD"},
    "rating": {"min": 4},
    "offers": ["in_stock", "on_sale", "free_shipping"],
}
PARTS = {**EVERYTHING, "parts": [{"queries": ["tent"], "price": {"max": 99}}, {"queries": ["lamp"]}]}
PLANS = [{"queries": ["x"]}, EVERYTHING, {**EVERYTHING, "sort": "price_asc"}, PARTS]
PLANS += [
    {**EVERYTHING, "queries": [said], "facets": {"brand": [said]}, "exclude": {"brand": [said]}} for said in HOSTILE
]
plans = pytest.mark.parametrize("plan", PLANS)
REASON = "the engine's library is not installed: pip install -r requirements-dev.txt"


def requests(plan: dict[str, Any], engine: Any) -> list[Any]:
    return list(translate(Plan.model_validate(plan), MAPPING, engine, "red boots x").requests)


@plans
@pytest.mark.parametrize(
    ("engine", "library"), [("opensearch", "opensearchpy"), ("elasticsearch", "elasticsearch.dsl")]
)
def test_the_builders_read_a_body_and_write_it_again(plan: dict[str, Any], engine: str, library: str) -> None:
    builder = pytest.importorskip(library, reason=REASON)
    for body in requests(plan, engine):
        assert builder.Search.from_dict(body).to_dict() == body


def clauses(query: Any) -> Iterator[tuple[str, dict[str, Any]]]:
    """Yield every clause of a query by its name."""
    ((name, body),) = query.items()
    yield name, body
    inner = [body["query"]] if name == "function_score" else []
    inner += [each["filter"] for each in body["functions"]] if name == "function_score" else []
    inner += [body["filter"]] if name == "constant_score" else []
    inner += (
        [each for kind in ("must", "filter", "should", "must_not") for each in body.get(kind, [])]
        if name == "bool"
        else []
    )
    for each in inner:
        yield from clauses(each)


@plans
def test_elasticsearch_knows_every_parameter(plan: dict[str, Any]) -> None:
    dsl = pytest.importorskip("elasticsearch.dsl", reason=REASON)
    types = pytest.importorskip("elasticsearch.dsl.types", reason=REASON)
    for body in requests(plan, "elasticsearch"):
        for name, parameters in clauses(body["query"]):
            known = set(inspect.signature(dsl.query.Query.get_dsl_class(name)).parameters)
            if name in ("term", "range", "terms"):  # of one field each, with parameters of their own
                ((_, inner),) = parameters.items()
                own = {"term": set(inspect.signature(types.TermQuery).parameters), "range": set(dsl.Range.OPS)}
                known = own.get(name, known)
                parameters = inner if isinstance(inner, dict) else {}
            assert set(parameters) <= known, name


@plans
def test_typesense_knows_every_parameter(plan: dict[str, Any]) -> None:
    types = pytest.importorskip("typesense.types.multi_search", reason=REASON)
    known = get_type_hints(types.MultiSearchParameters)
    for body in requests(plan, "typesense"):
        assert TypeAdapter(get_type_hints(types.MultiSearchRequestSchema)["union"]).validate_python(body["union"])
        assert set(body) <= set(get_type_hints(types.MultiSearchRequestSchema))
        for search in body["searches"]:
            for name, value in search.items():
                TypeAdapter(known[name]).validate_python(value, strict=True)


@plans
def test_algolia_knows_every_parameter(plan: dict[str, Any]) -> None:
    models = pytest.importorskip("algoliasearch.search.models", reason=REASON)
    known = {field.alias or name for name, field in models.SearchForHits.model_fields.items()}
    for body in requests(plan, "algolia"):
        read = json.loads(models.SearchForHits.from_dict(copy.deepcopy(body)).to_json())
        assert {name: value for name, value in read.items() if value is not None} == body
        assert set(body) <= known


@plans
def test_meilisearch_knows_every_parameter(plan: dict[str, Any]) -> None:
    models = pytest.importorskip("meilisearch_python_sdk.models.search", reason=REASON)
    for body in requests(plan, "meilisearch"):
        assert set(body) <= {"federation", "queries"}
        for query in body["queries"]:
            read = models.SearchParams.model_validate(query).model_dump(by_alias=True, exclude_none=True)
            assert {name: value for name, value in read.items() if name in query} == query
        if "federation" in body:
            read = models.Federation.model_validate(body["federation"]).model_dump(by_alias=True, exclude_none=True)
            assert {name: value for name, value in read.items() if name in body["federation"]} == body["federation"]


# The parameters of Solr's parsers, as its reference guide ("Query DSL", "Other Parsers", "DisMax") names them.
SOLR_PARSERS = {
    "bool": {"must", "must_not", "should", "filter"},
    "boost": {"b", "query"},
    "dismax": {"qf", "mm", "tie", "query"},
    "field": {"f", "query"},
    "lucene": {"query"},
}


def solr_clauses(query: Any) -> Iterator[tuple[str, dict[str, Any]]]:
    ((parser, given),) = query.items()
    yield parser, given
    lists = [each for name in SOLR_PARSERS["bool"] for each in given.get(name, [])] if parser == "bool" else []
    for each in [*lists, *([given["query"]] if parser == "boost" else [])]:
        yield from solr_clauses(each)


@plans
def test_solr_s_parsers_take_every_parameter_and_lucene_s_syntax_is_a_range(plan: dict[str, Any]) -> None:
    parse = pytest.importorskip("luqum.parser", reason=REASON).parser.parse
    tree = pytest.importorskip("luqum.tree", reason=REASON)
    for body in requests(plan, "solr"):
        assert set(body) <= {"query", "limit", "sort", "queries"}
        for query in (body["query"], *body.get("queries", {}).values()):
            for parser, given in solr_clauses(query):
                assert set(given) <= SOLR_PARSERS[parser]
                if parser == "lucene":
                    read = parse(given["query"])
                    assert isinstance(read, tree.SearchField)
                    assert isinstance(read.expr, tree.Range)
                if parser == "dismax":  # words alone: what the parser would take for an operator or a phrase is none
                    assert not re.search(r'(^|\s)[+-]|"', given["query"])


def test_vespa_s_builder_writes_the_same_query() -> None:
    qb = pytest.importorskip("vespa.querybuilder", reason=REASON)
    grammar = {"grammar": "weakAnd", "targetHits": 100}
    texts = [qb.userInput(f"@text{at}", grammar) for at in range(2)]
    price, stars, brand, title = (qb.QueryField(name) for name in ("price", "stars", "brand", "title"))
    unwanted = [~brand.contains("nike"), ~title.contains(qb.phrase("dark", "teal"))]
    where = qb.all(qb.any(*texts), price >= 10, price <= 80.5, stars >= 4, *unwanted)
    lifted = qb.rank(where, qb.QueryField("color_family").contains("Red", {"weight": 150}))
    plan = {
        "queries": ["red boots"],
        "facets": {"color": ["red"]},
        "exclude": {"brand": ["nike"], "color": ["dark teal"]},
        "price": {"min": 10, "max": 80.5},
        "rating": {"min": 4},
    }
    (request,) = requests(plan, "vespa")

    ours, theirs = request["yql"], str(qb.select("*").from_("products").where(lifted))
    assert ours.replace(" ", "") == theirs.replace(" ", "")
