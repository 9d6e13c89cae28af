"""OpenSearch and Elasticsearch: the body of a `_search`. Both understand all of it."""

from collections.abc import Sequence
from typing import Any

from peakplan_client.engines import Note, limits, sorting
from peakplan_client.mapping import CatalogueMapping
from peakplan_client.search import Boost, Filter, NoneOf, NotInText, Range, Search, Wanted

Clause = dict[str, Any]
STRONG_MATCH = "60%"  # of a query's words, where results are sorted by something else than relevance


def request(search: Search, mapping: CatalogueMapping, *, limit: int, note: Note) -> Clause:
    """Return the body of `POST /<index>/_search`.

    Where a field sorts, what is the thing comes first, by its kind and the wanted facets, and where no kind is told
    what matches a query well; otherwise the cheapest product that shares one word would lead.
    """
    any_text: Clause = {
        "bool": {
            "should": [_any_word(text.words, text.weight, mapping) for text in search.texts],
            "minimum_should_match": 1,
        }
    }
    within = limits(search.filters, _filter)
    if (sort := sorting(search, note)) is None:
        query: Clause = {"bool": {"must": [any_text], **within}}
        return {"size": limit, "query": _boosted(query, search.boosts, mapping)}
    strong = [_strong_match(text.words, mapping) for text in search.texts[:1]] if not search.kinds else []
    strong += [_has(each, len(search.wanted)) for each in search.wanted]
    query = {"bool": {**within, "filter": [any_text, *within.get("filter", [])], "should": strong}}
    by_field: Clause = {sort[0]: {"order": sort[1], "missing": "_last"}}
    return {"size": limit, "query": query, "sort": [{"_score": {"order": "desc"}}, by_field]}


def _fields(mapping: CatalogueMapping) -> list[str]:
    return [f"{field}^{weight:g}" for field, weight in mapping.text.items()]


def _any_word(text: str, weight: float, mapping: CatalogueMapping) -> Clause:
    return {
        "multi_match": {
            "query": text,
            "fields": _fields(mapping),
            "type": "most_fields",
            "operator": "or",
            "boost": weight,
        }
    }


def _has(wanted: Wanted, count: int) -> Clause:
    """Return a clause that scores a wanted facet: the kind counts more than all others together."""
    condition = _one_of(wanted.field, wanted.values) if wanted.field else _phrases(wanted.values, list(wanted.fields))
    return {"constant_score": {"filter": condition, "boost": count if wanted.is_kind else 1}}


def _phrases(values: Sequence[str], fields: list[str]) -> Clause:
    return {"bool": {"should": [_phrase(words, fields) for words in values]}}


def _strong_match(text: str, mapping: CatalogueMapping) -> Clause:
    match = {"query": text, "fields": _fields(mapping), "type": "cross_fields", "minimum_should_match": STRONG_MATCH}
    return {"constant_score": {"filter": {"multi_match": match}, "boost": 1}}


def _filter(condition: Filter) -> Clause:
    if isinstance(condition, Range):
        bounds = {"gte": condition.min, "lte": condition.max}
        return {"range": {condition.field: {name: bound for name, bound in bounds.items() if bound is not None}}}
    if isinstance(condition, NotInText):
        return _phrase(condition.words, list(condition.fields))
    if isinstance(condition, NoneOf):
        return _one_of(condition.field, condition.values)
    return {"terms": {condition.field: list(condition.values)}}


def _one_of(field: str, values: tuple[str, ...]) -> Clause:
    """Return a clause for a keyword field, whatever case its values are written in."""
    return {"bool": {"should": [{"term": {field: {"value": value, "case_insensitive": True}}} for value in values]}}


def _phrase(words: str, fields: list[str]) -> Clause:
    return {"multi_match": {"query": words, "fields": fields, "type": "phrase"}}


def _boosted(query: Clause, boosts: tuple[Boost, ...], mapping: CatalogueMapping) -> Clause:
    """Multiply the score by one plus the weights of the boosts that hold."""
    if not boosts:
        return query
    functions: list[Clause] = [{"filter": {"match_all": {}}, "weight": 1}]
    for boost in boosts:
        if boost.field is not None:
            condition = _one_of(boost.field, boost.values)
        else:
            condition = _phrases(boost.values, list(mapping.text))
        functions.append({"filter": condition, "weight": boost.weight})
    return {"function_score": {"query": query, "functions": functions, "score_mode": "sum", "boost_mode": "multiply"}}
