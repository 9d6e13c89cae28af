"""Translators: one module an engine, each with `request(search, mapping, ...)` that needs no library of the engine."""

from peakplan_client.errors import MappingError
from peakplan_client.mapping import CatalogueMapping


def number(value: float) -> str:
    """Return a number in digits, never rounded to six of them and never with an exponent."""
    return f"{value:.6f}".rstrip("0").rstrip(".")


def refuse_odd_fields(mapping: CatalogueMapping, engine: str, signs: str = "") -> None:
    """Raise MappingError for a field that an engine's query language cannot name: any odd one, or one with a sign."""
    for field in mapping.odd_fields:
        if not signs or any(sign in field for sign in signs):
            raise MappingError(
                f"{field!r} cannot be named in a query of {engine}: index it under a name of letters, digits and _, "
                "and write that into the mapping."
            )
