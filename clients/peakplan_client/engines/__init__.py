"""Translators: one module an engine, each with `request(search, mapping, ...)` that needs no library of the engine."""

from collections.abc import Callable, Sequence

from peakplan_client.errors import MappingError
from peakplan_client.mapping import CatalogueMapping, Value
from peakplan_client.search import Filter, NoneOf, NotInText, Range, Search

Note = Callable[[str], None]


def number(value: float) -> str:
    """Return a number in digits, never rounded to six of them and never with an exponent."""
    return f"{value:.6f}".rstrip("0").rstrip(".")


def said(value: Value, quoted: Callable[[str], str] = str) -> str:
    """Return a value as JSON writes it: a text as `quoted` does."""
    if isinstance(value, str):
        return quoted(value)
    return str(value).lower() if isinstance(value, bool) else number(value)


def visible(text: str) -> str:
    """Return a text without signs that cannot be seen."""
    return " ".join("".join(each if each.isprintable() else " " for each in text).split())


def sorting(search: Search, note: Note) -> tuple[str, str] | None:
    """Return the field that sorts and its order; a note says where the mapping has none."""
    if search.sort is None or search.sort.field is not None:
        return (search.sort.field, search.sort.order) if search.sort and search.sort.field else None
    note("this sort has no field in the mapping: results stay sorted by relevance")
    return None


def bounds(condition: Range) -> list[tuple[str, float]]:
    """Return the signs and bounds of a range."""
    return [(sign, bound) for sign, bound in ((">=", condition.min), ("<=", condition.max)) if bound is not None]


def limits(filters: Sequence[Filter], clause: Callable[[Filter], object]) -> dict[str, list[object]]:
    """Return the clauses of a boolean query: those a product must match, and those it must not."""
    found: dict[str, list[object]] = {"filter": [], "must_not": []}
    for each in filters:
        found["must_not" if isinstance(each, NoneOf | NotInText) else "filter"].append(clause(each))
    return {name: clauses for name, clauses in found.items() if clauses}


def refuse_odd_fields(mapping: CatalogueMapping, engine: str, signs: str = "") -> None:
    """Raise MappingError for a field that an engine's query language cannot name: any odd one, or one with a sign."""
    for field in mapping.odd_fields:
        if not signs or any(sign in field for sign in signs):
            raise MappingError(
                f"{field!r} cannot be named in a query of {engine}: index it under a name of letters, digits and _, "
                "and write that into the mapping."
            )
