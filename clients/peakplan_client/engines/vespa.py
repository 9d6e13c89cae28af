"""Vespa: the JSON body of a `/search/`, with the query in YQL and the shopper's words in parameters beside it."""

from collections.abc import Sequence
from typing import Any

from peakplan_client.engines import Note, bounds, number, refuse_odd_fields, said, sorting, visible
from peakplan_client.mapping import CatalogueMapping, Value
from peakplan_client.search import AnyOf, Boost, Filter, NotInText, Range, Search

TARGET_HITS = 100  # how many products weakAnd offers to ranking at least


def request(search: Search, mapping: CatalogueMapping, *, limit: int, note: Note) -> dict[str, Any]:
    """Return the body of `POST /search/`. The schema's fieldset `default` says which fields are text.

    Boosts are second arguments of `rank`, which match nothing and count in the rank profile. Where a field sorts, all
    words of a text must match, since `order by` leaves no room for how well they do.
    """
    refuse_odd_fields(mapping, "Vespa")
    sort = sorting(search, note)
    grammar = '{grammar:"all"}' if sort else f'{{grammar:"weakAnd",targetHits:{TARGET_HITS}}}'
    texts = [f"({grammar}userInput(@text{at}))" for at in range(len(search.texts))]
    where = " and ".join([f"({' or '.join(texts)})" if len(texts) > 1 else texts[0], *map(_filter, search.filters)])
    boosts = [] if sort else [_boost(boost) for boost in search.boosts if boost.field is not None]
    if boosts:
        where = f"rank({', '.join([where, *boosts])})"
    order = f" order by {sort[0]} {sort[1]}" if sort else ""
    parameters = {f"text{at}": text.words for at, text in enumerate(search.texts)}
    return {"yql": f"select * from {mapping.index} where {where}{order}", "hits": limit, **parameters}


def _filter(condition: Filter) -> str:
    if isinstance(condition, Range):
        return " and ".join(f"{condition.field} {sign} {number(bound)}" for sign, bound in bounds(condition))
    if isinstance(condition, NotInText):
        return " and ".join(f"!({field} contains {_phrase(condition.words)})" for field in condition.fields)
    inside = _any([_equals(condition.field, value) for value in condition.values])
    return inside if isinstance(condition, AnyOf) else f"!({inside})"


def _any(conditions: Sequence[str]) -> str:
    return conditions[0] if len(conditions) == 1 else f"({' or '.join(conditions)})"


def _equals(field: str, value: Value) -> str:
    return f"{field} {'contains' if isinstance(value, str) else '='} {said(value, _literal)}"


def _boost(boost: Boost) -> str:
    weight = round(100 * (1 + boost.weight))  # a term's own weight is 100
    return _any([f"{boost.field} contains ({{weight:{weight}}}{_literal(value)})" for value in boost.values])


def _phrase(words: str) -> str:
    parts = words.split()
    return _literal(parts[0]) if len(parts) == 1 else f"phrase({', '.join(map(_literal, parts))})"


def _literal(text: str) -> str:
    """Return a string of YQL: backslash and quote are escaped, and what cannot be seen goes."""
    return '"' + visible(text).replace("\\", "\\\\").replace('"', '\\"') + '"'
