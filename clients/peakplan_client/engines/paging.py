"""A later page, counts of facets, one product of its variants: added to a request, where the engine has them."""

import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from typing import Any

_FIELD = re.compile(r"[A-Za-z_][A-Za-z0-9_.]*")
_SQL = {"sqlite": "?", "postgresql": "%s"}


def paged(
    engine: str,
    request: Any,
    index: str,
    *,
    offset: int,
    counts: Sequence[str],
    group: str | None,
    note: Callable[[str], None],
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
            return replace(
                request, sql=f"{request.sql} OFFSET {_SQL[engine]}", parameters=(*request.parameters, offset)
            )
        if offset:
            note("typesense: pass `offset` as a parameter of the address, beside per_page")
        return request
    first = {"offset": offset} if offset else {}
    terms = {field: {"field": field} for field in counts}
    if engine in ("opensearch", "elasticsearch"):
        more: dict[str, Any] = {"from": offset, "aggs": {name: {"terms": each} for name, each in terms.items()}}
        more["collapse"] = {"field": group} if group else None
    elif engine == "solr":
        more = {**first, "facet": {name: {"type": "terms", **each} for name, each in terms.items()}}
        more["filter"] = [f"{{!collapse field={group}}}"] if group else None
    elif engine == "algolia":
        more = {
            **first,
            "length": request["hitsPerPage"] if offset else None,
            "facets": list(counts),
            "distinct": bool(group),
        }
        if group:
            note("Algolia groups by its setting attributeForDistinct, whatever field is named here")
    elif engine == "vespa":
        each = " ".join(f"all(group({field}) each(output(count())))" for field in counts)
        more = {**first, "yql": f"{request['yql']} | all({each})" if counts else None, "collapsefield": group}
    else:
        return _federated(
            request, {**first, **({"facetsByIndex": {index: list(counts)}} if counts else {})}, group, note
        )
    return {**request, **{name: value for name, value in more.items() if value}}


def _federated(
    request: Mapping[str, Any], more: Mapping[str, Any], group: str | None, note: Callable[[str], None]
) -> Any:
    """Return a request of Meilisearch; its lists to read in turn, where a field sorts, are no one page."""
    if "federation" not in request:
        if more or group:
            note("Meilisearch: a sorted search is several lists, which share neither an offset nor counts nor groups")
        return request
    distinct = {"distinct": group} if group else {}  # from 1.40 on
    return {**request, "federation": {**request["federation"], **more, **distinct}}
