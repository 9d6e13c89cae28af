"""Solr 9: the body of a JSON request (`POST /solr/<index>/query`); every text is the query of a parser of its own."""

from collections.abc import Callable, Sequence
from typing import Any

from peakplan_client.engines import number, refuse_odd_fields
from peakplan_client.mapping import CatalogueMapping, Value
from peakplan_client.search import Filter, NoneOf, NotInText, Range, Search, Wanted

Clause = dict[str, Any]
STRONG_MATCH = "60%"  # of a query's words, where results are sorted by something else than relevance


def request(search: Search, mapping: CatalogueMapping, *, limit: int, note: Callable[[str], None]) -> Clause:
    """Return the body. Boosts multiply the score; where a field sorts, what is the thing comes first.

    Words and values are each the whole query of a parser (`dismax`, `field`), never a part of Lucene's syntax. A field
    is compared as its type is analysed: one in which case does not count needs a type that lowers it.
    """
    refuse_odd_fields(mapping, "Solr")
    queries: dict[str, Clause] = {}
    any_text = _any([_weighed(_any_word(text.words, mapping), text.weight) for text in search.texts])
    wanted = [_filter(each) for each in search.filters if not isinstance(each, NoneOf | NotInText)]
    unwanted = [_filter(each) for each in search.filters if isinstance(each, NoneOf | NotInText)]
    limits = {name: found for name, found in (("filter", wanted), ("must_not", unwanted)) if found}
    query: Clause = {"bool": {"must": [any_text], **limits}}
    body: Clause = {"limit": limit}
    if search.sort is not None and search.sort.field is None:
        note("this sort has no field in the mapping: results stay sorted by relevance")
    if search.sort is not None and search.sort.field is not None:
        body["sort"] = f"{_tiers(search, mapping, queries)} desc,{search.sort.field} {search.sort.order},score desc"
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
    """Return a function: the weight where a product matches a query of `queries`, else nothing."""
    return f"if(exists(query(${query})),{number(weight)},0)"


def _tiers(search: Search, mapping: CatalogueMapping, queries: dict[str, Clause]) -> str:
    """Return a function that says how much a product is what is wanted: its kind counts more than all the rest.

    A thing is of a kind by its category or its name, so that whatever says so counts once.
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
    return _any([_equals(name, value) for name in names for value in values])


def _equals(field: str, value: Value) -> Clause:
    """Return a clause of the parser that takes a whole value, as a phrase where the field's type has words."""
    text = str(value).lower() if isinstance(value, str | bool) else number(value)
    return {"field": {"f": field, "query": value if isinstance(value, str) else text}}


def _filter(condition: Filter) -> Clause:
    if isinstance(condition, Range):
        low, high = ("*" if bound is None else number(bound) for bound in (condition.min, condition.max))
        return {"lucene": {"query": f"{condition.field}:[{low} TO {high}]"}}
    if isinstance(condition, NotInText):
        return _has(None, (condition.words,), condition.fields)
    return _has(condition.field, condition.values, ())
