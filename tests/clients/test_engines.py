"""What each engine is sent, that no word of a shopper is more than a word in it, and that its own library takes it."""

import copy
import inspect
import json
import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any, get_type_hints

import pytest
from hypothesis import example, given
from hypothesis import strategies as st
from peakplan_client import CatalogueMapping, Plan, translate
from peakplan_client.mapping import words
from peakplan_client.operators import read_operators
from pydantic import TypeAdapter

from tests.clients import vectors

MAPPING = CatalogueMapping.load(Path(__file__).parents[2] / "clients" / "examples" / "mapping.yaml")


PLAN = Plan.model_validate(vectors.PLAN)


def one(engine: Any, plan: Plan = PLAN, question: str = vectors.ASKED) -> Any:
    (request,) = translate(plan, MAPPING, engine, question).requests
    return request


def test_an_engine_is_sent_what_the_file_says() -> None:
    """`python -m tests.clients.vectors` writes it: read each changed line, it is what a search engine will get."""
    assert vectors.TRANSLATIONS.read_text(encoding="utf-8") == vectors.translations()
    assert one("elasticsearch") == one("opensearch")
    with pytest.raises(ValueError, match="one of opensearch, elasticsearch, solr, typesense"):
        translate(PLAN, MAPPING, "lunr")  # type: ignore[arg-type]


def test_algolia_takes_no_more_than_its_longest_query() -> None:
    words = [f"{word}{at}" for at, word in enumerate(["wort"] * 100 + ["größe"] * 100)]
    body = one("algolia", PLAN.model_copy(update={"queries": ["boots " * 200]}), " ".join(words))

    assert len(body["query"].encode()) <= 512
    assert body["query"].endswith("-teal")


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
@example('red\\" or true')
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


# Below: the engines' own Python libraries, whose builders and types follow the engines' published APIs. No engine runs.
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
libraries = pytest.mark.filterwarnings("ignore")  # their own
REASON = "the engine's library is not installed: pip install -r requirements-dev.txt"


def bodies(plan: dict[str, Any], engine: Any) -> list[Any]:
    return list(translate(Plan.model_validate(plan), MAPPING, engine, "red boots x").requests)


@libraries
@plans
@pytest.mark.parametrize(
    ("engine", "library"), [("opensearch", "opensearchpy"), ("elasticsearch", "elasticsearch.dsl")]
)
def test_the_builders_read_a_body_and_write_it_again(plan: dict[str, Any], engine: str, library: str) -> None:
    builder = pytest.importorskip(library, reason=REASON)
    for body in bodies(plan, engine):
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


@libraries
@plans
def test_elasticsearch_knows_every_parameter(plan: dict[str, Any]) -> None:
    dsl = pytest.importorskip("elasticsearch.dsl", reason=REASON)
    types = pytest.importorskip("elasticsearch.dsl.types", reason=REASON)
    for body in bodies(plan, "elasticsearch"):
        for name, parameters in clauses(body["query"]):
            known = set(inspect.signature(dsl.query.Query.get_dsl_class(name)).parameters)
            if name in ("term", "range", "terms"):  # of one field each, with parameters of their own
                ((_, inner),) = parameters.items()
                own = {"term": set(inspect.signature(types.TermQuery).parameters), "range": set(dsl.Range.OPS)}
                known = own.get(name, known)
                parameters = inner if isinstance(inner, dict) else {}
            assert set(parameters) <= known, name


@libraries
@plans
def test_typesense_knows_every_parameter(plan: dict[str, Any]) -> None:
    types = pytest.importorskip("typesense.types.multi_search", reason=REASON)
    known = get_type_hints(types.MultiSearchParameters)
    for body in bodies(plan, "typesense"):
        assert TypeAdapter(get_type_hints(types.MultiSearchRequestSchema)["union"]).validate_python(body["union"])
        assert set(body) <= set(get_type_hints(types.MultiSearchRequestSchema))
        for search in body["searches"]:
            for name, value in search.items():
                TypeAdapter(known[name]).validate_python(value, strict=True)


@libraries
@plans
def test_algolia_knows_every_parameter(plan: dict[str, Any]) -> None:
    models = pytest.importorskip("algoliasearch.search.models", reason=REASON)
    known = {field.alias or name for name, field in models.SearchForHits.model_fields.items()}
    for body in bodies(plan, "algolia"):
        read = json.loads(models.SearchForHits.from_dict(copy.deepcopy(body)).to_json())
        assert {name: value for name, value in read.items() if value is not None} == body
        assert set(body) <= known


@libraries
@plans
def test_meilisearch_knows_every_parameter(plan: dict[str, Any]) -> None:
    models = pytest.importorskip("meilisearch_python_sdk.models.search", reason=REASON)
    for body in bodies(plan, "meilisearch"):
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


@libraries
@plans
def test_solr_s_parsers_take_every_parameter_and_lucene_s_syntax_is_a_range(plan: dict[str, Any]) -> None:
    parse = pytest.importorskip("luqum.parser", reason=REASON).parser.parse
    tree = pytest.importorskip("luqum.tree", reason=REASON)
    for body in bodies(plan, "solr"):
        assert set(body) <= {"query", "limit", "sort", "queries"}
        for query in (body["query"], *body.get("queries", {}).values()):
            for parser, asked in solr_clauses(query):
                assert set(asked) <= SOLR_PARSERS[parser]
                if parser == "lucene":
                    read = parse(asked["query"])
                    assert isinstance(read, tree.SearchField)
                    assert isinstance(read.expr, tree.Range)
                if parser == "dismax":  # words alone: what the parser would take for an operator or a phrase is none
                    assert not re.search(r'(^|\s)[+-]|"', asked["query"])


@libraries
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
    (request,) = bodies(plan, "vespa")

    ours, theirs = request["yql"], str(qb.select("*").from_("products").where(lifted))
    assert ours.replace(" ", "") == theirs.replace(" ", "")
