"""Algolia: one request of a multi-query (`POST /1/indexes/*/queries` takes {"requests": [...]})."""

from typing import Any

from peakplan_client.engines import Note, bounds, number, refuse_odd_fields, said
from peakplan_client.mapping import CatalogueMapping, Value
from peakplan_client.search import AnyOf, NoneOf, NotInText, Range, Search

MAX_QUERY_BYTES = 512  # of Algolia
SORTED_STRICTNESS = 60  # per cent, of virtual replicas: how relevant a result must be to be sorted


def request(search: Search, mapping: CatalogueMapping, *, limit: int, note: Note) -> dict[str, Any]:
    """Return one request. Every word is optional, so that any may match; what has more of them ranks first.

    Filters are lists of values, never the language of `filters`, in which a value could be more than a value.
    """
    refuse_odd_fields(mapping, "Algolia", ":<>=,")
    own_first = [*search.texts[-1:], *search.texts[:-1]]
    asked = _cut(dict.fromkeys(word for text in own_first for word in text.words.split()))
    body: dict[str, Any] = {"indexName": mapping.index, "query": asked, "optionalWords": [asked], "hitsPerPage": limit}
    numeric = [
        f"{r.field}{sign}{number(bound)}" for r in search.filters if isinstance(r, Range) for sign, bound in bounds(r)
    ]
    facets: list[Any] = []
    for condition in search.filters:
        if isinstance(condition, AnyOf):
            facets.append([_facet(condition.field, value) for value in condition.values])
        elif isinstance(condition, NoneOf):
            facets += [_facet(condition.field, value, "-") for value in condition.values]
    body |= _excluded([each.words for each in search.filters if isinstance(each, NotInText)], asked, note)
    boosts = [
        [f"{_facet(boost.field, value)}<score={max(1, round(10 * boost.weight))}>" for value in boost.values]
        for boost in search.boosts
        if boost.field is not None  # words in the text are in the query already
    ]
    given = {"numericFilters": numeric, "facetFilters": facets, "optionalFilters": boosts}
    body |= {name: value for name, value in given.items() if value}
    if search.sort is not None and search.sort.index is not None:
        body |= {"indexName": search.sort.index, "relevancyStrictness": SORTED_STRICTNESS}
    elif search.sort is not None:
        note("Algolia sorts by a replica: give this sort its `index`; results stay sorted by relevance")
    return body


def _facet(field: str, value: Value, sign: str = "") -> str:
    """Return `field:value`; a minus that begins the value is escaped, for it would negate."""
    text = said(value)
    escape = "\\" if text.startswith("-") else ""
    return f"{field}:{sign}{escape}{text}"


def _excluded(phrases: list[str], asked: str, note: Note) -> dict[str, Any]:
    """Return the query with `-word` for each word that no text may have."""
    for phrase in phrases:
        if " " in phrase:
            note("Algolia excludes single words of a text only: a phrase is not excluded")
    if not (single := [phrase for phrase in phrases if " " not in phrase]):
        return {}
    kept = _cut([word for word in asked.split() if word not in single], sum(len(word.encode()) + 2 for word in single))
    return {
        "query": " ".join([kept, *(f"-{word}" for word in single)]),
        "optionalWords": [kept],
        "advancedSyntax": True,
        "advancedSyntaxFeatures": ["excludeWords"],
    }


def _cut(words: Any, taken: int = 0) -> str:
    """Join as many words as a query may hold beside `taken` bytes."""
    kept: list[str] = []
    for word in words:
        taken += len(word.encode()) + 1
        if taken > MAX_QUERY_BYTES:
            break
        kept.append(word)
    return " ".join(kept)
