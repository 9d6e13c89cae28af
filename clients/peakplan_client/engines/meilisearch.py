"""Meilisearch (1.10 or newer): the body of a `POST /multi-search`."""

from collections.abc import Iterator, Sequence
from typing import Any

from peakplan_client.engines import Note, bounds, number, said, sorting, visible
from peakplan_client.mapping import CatalogueMapping, Value
from peakplan_client.search import AnyOf, Filter, NotInText, Range, Search, Wanted

Query = dict[str, Any]
ANY_WORD = "frequency"  # the matching strategy that drops the most frequent words first, wherever they stand


def request(search: Search, mapping: CatalogueMapping, *, limit: int, note: Note) -> dict[str, Any]:
    """Return a federation of queries, merged by score times weight; where a field sorts, lists to read in turn.

    A query cannot boost, so that a boost is one more query, with a filter and a greater weight. Weights order no
    sorted results, so that what is the thing is a list of its own before the rest.
    """
    if sort := sorting(search, note):
        return {"queries": list(_in_turn(search, mapping, limit, ":".join(sort)))}
    boosts = [
        (_one_of(boost.field, boost.values), 1 + boost.weight) for boost in search.boosts if boost.field is not None
    ]  # words in the text are in the queries already
    queries: list[Query] = []
    for at, text in enumerate(search.texts):
        common = _query(text.words, search, mapping)
        queries.append(_weighed(common, text.weight))
        singles = boosts if at == 0 or len(boosts) == 1 else []
        queries += [_weighed(common, text.weight * weight, [boost]) for boost, weight in singles]
        if len(boosts) > 1:
            weight = sum(weight - 1 for _, weight in boosts) + 1
            queries.append(_weighed(common, text.weight * weight, [boost for boost, _ in boosts]))
    return {"federation": {"limit": limit}, "queries": queries}


def _query(words: str, search: Search, mapping: CatalogueMapping) -> Query:
    """Return a query of any of the words. What is excluded comes first: Meilisearch reads no more than ten words."""
    refused = [f'-"{each.words}"' if " " in each.words else f"-{each.words}" for each in search.filters
               if isinstance(each, NotInText)]  # fmt: skip
    filters = [_filter(each) for each in search.filters if not isinstance(each, NotInText)]
    return {
        "indexUid": mapping.index,
        "q": " ".join([*refused, words]),
        "matchingStrategy": ANY_WORD,
        **({"filter": filters} if filters else {}),
    }


def _weighed(query: Query, weight: float, filters: Sequence[str] = ()) -> Query:
    both = [*query.get("filter", ()), *filters]
    return {**query, **({"filter": both} if both else {}), "federationOptions": {"weight": round(weight, 6)}}


def _in_turn(search: Search, mapping: CatalogueMapping, limit: int, sort: str) -> Iterator[Query]:
    """Yield sorted lists: of the kind with the other wanted facets, of the kind, of its name, then whatever matches."""
    own, strict = search.texts[-1], search.texts[0]
    common = {**_query(strict.words, search, mapping), "limit": limit, "sort": [sort]}
    limits = common.get("filter", [])
    of_kind = [_holds(each) for each in search.wanted if each.is_kind and each.field]
    others = [_holds(each) for each in search.wanted if not each.is_kind and each.field]
    for tier in dict.fromkeys((tuple([*of_kind, *others]), tuple(of_kind))):
        if of_kind:
            yield {**common, "filter": [*limits, *tier]}
    named = [(each, name) for each in search.kinds if each.field is None for name in each.values[:1]]
    for each, name in named:
        text = {"q": _query(name, search, mapping)["q"], "matchingStrategy": "all"}
        yield {**common, **text, "attributesToSearchOn": list(each.fields)}
    if not named:
        yield {**common, "matchingStrategy": "all"}
    yield {**common, "q": _query(own.words, search, mapping)["q"]}


def _holds(wanted: Wanted) -> str:
    return _one_of(wanted.field or "", wanted.values)


def _filter(condition: Filter) -> str:
    if isinstance(condition, Range):
        name = _name(condition.field)
        return " AND ".join(f"{name} {sign} {number(bound)}" for sign, bound in bounds(condition))
    if isinstance(condition, NotInText):
        raise TypeError("excluded words are part of the query")
    return _one_of(condition.field, condition.values, "IN" if isinstance(condition, AnyOf) else "NOT IN")


def _one_of(field: str, values: Sequence[Value], operator: str = "IN") -> str:
    return f"{_name(field)} {operator} [{', '.join(map(_literal, values))}]"


def _name(field: str) -> str:
    """Return an attribute's name, between quotes where it has more than letters, digits, _ and dots."""
    return field if field.replace("_", "").replace(".", "").isalnum() and field.isascii() else _literal(field)


def _literal(value: Value) -> str:
    """Return a value between quotes. A backslash would take what follows it along, so that it goes."""
    return said(value, lambda text: '"' + visible(text.replace("\\", " ")).replace('"', '\\"') + '"')
