"""`translate(plan, mapping, engine, question)`: a plan as what one engine's API takes."""

import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import partial
from itertools import zip_longest
from typing import Any, Literal, TypeVar

from peakplan_client.engines import Note, algolia, meilisearch, opensearch, postgresql, solr, sqlite, typesense, vespa
from peakplan_client.mapping import CatalogueMapping, words
from peakplan_client.plan import Plan
from peakplan_client.search import Search, Text, Wanted
from peakplan_client.searching import searches

Engine = Literal[
    "opensearch", "elasticsearch", "solr", "typesense", "meilisearch", "algolia", "vespa", "postgresql", "sqlite"
]
LIMIT = 10
_FIELD = re.compile(r"[A-Za-z_][A-Za-z0-9_.]*")
_SQL = {"sqlite": "?", "postgresql": "%s"}
T = TypeVar("T")
_REQUESTS: dict[str, Callable[..., Any]] = {
    "opensearch": opensearch.request,
    "elasticsearch": opensearch.request,
    "solr": solr.request,
    "typesense": typesense.request,
    "meilisearch": meilisearch.request,
    "algolia": algolia.request,
    "vespa": vespa.request,
    "postgresql": postgresql.request,
    "sqlite": sqlite.request,
}


@dataclass(frozen=True, slots=True)
class Translation:
    """Requests, one for each part of the plan and one for the question as it stands where there are parts.

    `notes` say in sentences for a log what of the plan the requests leave out, and why.
    """

    requests: tuple[Any, ...]
    notes: tuple[str, ...]
    kinds: tuple[tuple[Wanted, ...], ...] = ()

    @property
    def knows_kind(self) -> bool:
        """Tell whether the mapping has a kind that the plan names."""
        return any(kind.field is not None for kinds in self.kinds for kind in kinds)

    def is_wanted(self, product: Mapping[str, Any]) -> bool:
        """Tell whether a product, as an engine returned its fields, is a thing of a kind that the plan names.

        Where this holds of none of the products found, the shop has nothing of that kind. It holds of every product
        where the plan names no kind.
        """
        return any(kind.holds(product) for kinds in self.kinds for kind in kinds) if any(self.kinds) else True


def translate(
    plan: Plan,
    mapping: CatalogueMapping,
    engine: Engine,
    question: str = "",
    *,
    limit: int = LIMIT,
    offset: int = 0,
    counts: Sequence[str] = (),
    group: str | None = None,
) -> Translation:
    """Return the requests for an engine. `question` is what the shopper wrote; any of its words may match.

    `offset` skips hits, `counts` are fields whose values are counted, and of products with the same value of the field
    `group` (variants) only the best is found; a note says where an engine has no such thing.
    """
    if engine not in _REQUESTS:
        raise ValueError(f"there is no engine {engine!r}; one of {', '.join(_REQUESTS)}")
    wanted = searches(plan, mapping, question)
    notes = dict.fromkeys(wanted.notes)

    def note(text: str) -> None:
        notes[text] = None

    requests = tuple(_REQUESTS[engine](search, mapping, limit=limit, note=note) for search in wanted.searches)
    page = partial(_paged, engine, index=mapping.index, offset=offset, counts=counts, group=group, note=note)
    requests = tuple(map(page, requests)) if offset or counts or group else requests
    return Translation(requests, tuple(notes), tuple(search.kinds for search in wanted.searches if search.kinds))


def _paged(
    engine: str, request: Any, *, index: str, offset: int, counts: Sequence[str], group: str | None, note: Note
) -> Any:
    """Return a request from the hit `offset` on, with counts of the fields `counts`, and of each `group` only the best.

    Raises ValueError for a field that has more in its name than letters, digits, _ and dots.
    """
    if odd := [field for field in (*counts, *filter(None, [group])) if not _FIELD.fullmatch(field)]:
        raise ValueError(f"{', '.join(odd)}: counts and groups are of fields with plain names")
    if engine in _SQL or engine == "typesense":
        if counts or group:
            note(f"{engine}: neither facets are counted nor variants grouped")
        if offset and engine in _SQL:
            sql = f"{request.sql} OFFSET {_SQL[engine]}"
            return replace(request, sql=sql, parameters=(*request.parameters, offset))
        if offset:
            note("typesense: pass `offset` as a parameter of the address, beside per_page")
        return request
    more: dict[str, Any] = {"offset": offset}
    if engine in ("opensearch", "elasticsearch"):
        aggregations = {field: {"terms": {"field": field}} for field in counts}
        more = {"from": offset, "aggs": aggregations, "collapse": group and {"field": group}}
    elif engine == "solr":
        more["facet"] = {field: {"type": "terms", "field": field} for field in counts}
        more["filter"] = group and [f"{{!collapse field={group}}}"]
    elif engine == "algolia":
        more |= {"length": offset and request["hitsPerPage"], "facets": list(counts), "distinct": bool(group)}
        if group:
            note("Algolia groups by its setting attributeForDistinct, whatever field is named here")
    elif engine == "vespa":
        each = " ".join(f"all(group({field}) each(output(count())))" for field in counts)
        more |= {"yql": counts and f"{request['yql']} | all({each})", "collapsefield": group}
    elif "federation" in request:  # of Meilisearch; `distinct` from 1.40 on
        more |= {"facetsByIndex": counts and {index: list(counts)}, "distinct": group}
        more = {"federation": request["federation"] | {name: value for name, value in more.items() if value}}
    else:
        note("Meilisearch: a sorted search is several lists, which share neither an offset nor counts nor groups")
        return request
    return {**request, **{name: value for name, value in more.items() if value}}


def by_words(question: str, mapping: CatalogueMapping, engine: Engine, *, limit: int = LIMIT) -> tuple[Any, ...]:
    """Return the request for what has any word of a question, without a plan; none where it has no words."""
    search = Search((Text(" ".join(words(question)), 1.0),))
    return (_REQUESTS[engine](search, mapping, limit=limit, note=lambda _: None),) if search.texts[0].words else ()


def in_turn(found: Sequence[Sequence[T]]) -> Iterator[T]:
    """Yield what the requests of a translation found: of each part one after the other, then of the whole question."""
    *parts, whole = found or [[]]
    yield from (each for rank in zip_longest(*parts) for each in rank if each is not None)
    yield from whole
