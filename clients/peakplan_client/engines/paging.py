"""A later page, counts of facets, one product of its variants: added to a request, where the engine has them."""

import re
from collections.abc import Sequence
from dataclasses import replace
from typing import Any

from peakplan_client.engines import Note

_FIELD = re.compile(r"[A-Za-z_][A-Za-z0-9_.]*")
_SQL = {"sqlite": "?", "postgresql": "%s"}


def paged(
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
