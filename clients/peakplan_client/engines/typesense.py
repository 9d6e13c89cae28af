"""Typesense: the body of a `/multi_search` whose searches are merged into one list (`union`, from version 28 on)."""

from collections.abc import Sequence
from typing import Any

from peakplan_client.engines import Note, bounds, number, refuse_odd_fields, said, sorting
from peakplan_client.mapping import CatalogueMapping, Value
from peakplan_client.search import AnyOf, Filter, NotInText, Range, Search

MOST_RANK = 127  # the largest weight of a field
RELEVANCE_BUCKETS = 10


def request(search: Search, mapping: CatalogueMapping, *, limit: int, note: Note) -> dict[str, Any]:
    """Return the body of `POST /multi_search?per_page=<limit>`: one search a text, all with the same filter and sort.

    Words that too few products have together are dropped one by one, so that any of them may match.
    """
    refuse_odd_fields(mapping, "Typesense")
    heaviest = max(mapping.text.values())
    common = {
        "collection": mapping.index,
        "query_by": ",".join(mapping.text),
        "query_by_weights": ",".join(str(max(1, round(MOST_RANK * w / heaviest))) for w in mapping.text.values()),
        "drop_tokens_threshold": limit,
        "sort_by": _sort(search, sorting(search, note)),
        **({"filter_by": " && ".join(map(_filter, search.filters))} if search.filters else {}),
    }
    return {"union": True, "searches": [{"q": text.words, **common} for text in search.texts]}


def _sort(search: Search, by: tuple[str, str] | None) -> str:
    if by is not None:
        wanted = [each for each in search.wanted if each.field is not None]
        tiers = [
            f"({each.field}:={_literals(each.values)}):{len(wanted) if each.is_kind else 1}" for each in wanted
        ]  # a product has the score of the first that holds
        first = f"_eval([{', '.join(tiers)}]):desc" if tiers else "_text_match(buckets: 2):desc"
        return f"{first},{by[0]}:{by[1]}"
    weighed = [
        f"({boost.field}:={_literals(boost.values)}):{max(1, round(10 * boost.weight))}"
        for boost in search.boosts
        if boost.field is not None  # words in the text are in the queries already
    ]
    boosts = f",_eval([{', '.join(weighed)}]):desc" if weighed else ""
    return f"_text_match(buckets: {RELEVANCE_BUCKETS}):desc{boosts}"


def _filter(condition: Filter) -> str:
    if isinstance(condition, Range):
        return " && ".join(f"{condition.field}:{sign}{number(bound)}" for sign, bound in bounds(condition))
    if isinstance(condition, NotInText):
        return " && ".join(f"{field}:!{_literal(condition.words)}" for field in condition.fields)
    operator = ":=" if isinstance(condition, AnyOf) else ":!="
    return f"{condition.field}{operator}{_literals(condition.values)}"


def _literals(values: Sequence[Value]) -> str:
    return f"[{','.join(_literal(value) for value in values)}]"


def _literal(value: Value) -> str:
    """Return a value between backticks. There is no escape for a backtick, so that it goes."""
    return said(value, lambda text: "`" + " ".join(text.replace("`", " ").split()) + "`")
