"""Solr 9: the body of a JSON request (`POST /solr/<index>/query`); every text is the query of a parser of its own."""

from collections.abc import Sequence
from typing import Any

from peakplan_client.engines import Note, limits, number, refuse_odd_fields, said, sorting
from peakplan_client.mapping import CatalogueMapping, Value
from peakplan_client.search import Filter, NotInText, Range, Search, Wanted

Clause = dict[str, Any]
STRONG_MATCH = "60%"  # of a query's words, where results are sorted by something else than relevance


def request(search: Search, mapping: CatalogueMapping, *, limit: int, note: Note) -> Clause:
    """Return the body. Boosts multiply the score; where a field sorts, what is the thing comes first.

    Words and values are each the whole query of a parser (`dismax`, `field`), never a part of Lucene's syntax. A field
    is compared as its type is analysed: one in which case does not count needs a type that lowers it.
    """
    refuse_odd_fields(mapping, "Solr")
    queries: dict[str, Clause] = {}
    any_text = _any([_weighed(_any_word(text.words, mapping), text.weight) for text in search.texts])
    query: Clause = {"bool": {"must": [any_text], **limits(search.filters, _filter)}}
    body: Clause = {"limit": limit}
    if sort := sorting(search, note):
        body["sort"] = f"{_tiers(search, mapping, queries)} desc,{sort[0]} {sort[1]},score desc"
    elif search.boosts:
        factors = ["1"]
        for at, boost in enumerate(search.boosts):
            queries[f"boost{at}"] = _has(boost.field, boost.values, list(mapping.text))
            factors.append(_worth(f"boost{at}", boost.weight))
        query = {"boost": {"b": f"sum({','.join(factors)})", "query": query}}
    return {"query": query, **body, **({"queries": queries} if queries else {})}


def _any_word(words: str, mapping: CatalogueMapping, least: str = "1") -> Clause:
    fields = " ".join(f"{field}^{number(weight)}" for field, weight in mapping.text.items())
    return {"dismax": {"qf": fields, "mm": least, "tie": "1", "query": words}}


def _weighed(query: Clause, weight: float) -> Clause:
    return query if weight == 1 else {"boost": {"b": number(weight), "query": query}}


def _any(clauses: list[Clause]) -> Clause:
    return clauses[0] if len(clauses) == 1 else {"bool": {"should": clauses}}


def _worth(query: str, weight: float) -> str:
    """Return a function: the weight where a product matches a query of `queries`, otherwise zero."""
    return f"if(exists(query(${query})),{number(weight)},0)"


def _tiers(search: Search, mapping: CatalogueMapping, queries: dict[str, Clause]) -> str:
    """Return a function that scores a product by its wanted facets: the kind counts more than all others together.

    The category and the name both tell the kind; a product that matches by both counts once.
    """
    found = []
    if search.kinds:
        queries["kind"] = _any([_holds(each) for each in search.kinds])
        found.append(_worth("kind", len(search.wanted) + 1))
    else:
        queries["strong"] = _any_word(search.texts[0].words, mapping, STRONG_MATCH)
        found.append(_worth("strong", 1))
    for at, each in enumerate(search.wanted):
        queries[f"wanted{at}"] = _holds(each)
        found.append(_worth(f"wanted{at}", 1))
    return f"sum({','.join([*found, '0'])})"


def _holds(wanted: Wanted) -> Clause:
    return _has(wanted.field, wanted.values, wanted.fields)


def _has(field: str | None, values: Sequence[Value], fields: Sequence[str]) -> Clause:
    """Return whether the field, or one of the text `fields` where there is none, has one of the values."""
    names = [field] if field is not None else fields
    # The parser takes a whole value, as a phrase where the field's type has words.
    return _any([{"field": {"f": name, "query": said(value)}} for name in names for value in values])


def _filter(condition: Filter) -> Clause:
    if isinstance(condition, Range):
        low, high = ("*" if bound is None else number(bound) for bound in (condition.min, condition.max))
        return {"lucene": {"query": f"{condition.field}:[{low} TO {high}]"}}
    if isinstance(condition, NotInText):
        return _has(None, (condition.words,), condition.fields)
    return _has(condition.field, condition.values, ())
