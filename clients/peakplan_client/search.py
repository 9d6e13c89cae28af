"""A search that is independent of any engine: texts, filters, boosts, a sort, and wanted facets."""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from peakplan_client.mapping import SortMapping, Value, normal


@dataclass(frozen=True, slots=True)
class Text:
    """Words of which any may match; nothing but words and spaces."""

    words: str
    weight: float


@dataclass(frozen=True, slots=True)
class Range:
    """A field's value lies within bounds, both included; None is no bound."""

    field: str
    min: float | None
    max: float | None


@dataclass(frozen=True, slots=True)
class AnyOf:
    """A field has one of these values."""

    field: str
    values: tuple[Value, ...]


@dataclass(frozen=True, slots=True)
class NoneOf:
    """A field has none of these values."""

    field: str
    values: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class NotInText:
    """The words do not stand side by side in any of the text fields."""

    fields: tuple[str, ...]
    words: str


Filter = Range | AnyOf | NoneOf | NotInText


@dataclass(frozen=True, slots=True)
class Boost:
    """Products with one of the values score `1 + weight` times as much; without a field the text has the words."""

    field: str | None
    values: tuple[str, ...]
    weight: float


@dataclass(frozen=True, slots=True)
class Wanted:
    """A facet that the shopper wants: `field` has one of `values`, or one of the text `fields` has one as a phrase.

    `is_kind`: the facet says what the product is; other facets only describe it. A product is of a kind if its category
    or its name says so, and ranks higher if both do.
    """

    field: str | None
    values: tuple[str, ...]
    fields: tuple[str, ...]
    is_kind: bool

    def holds(self, product: Mapping[str, Any]) -> bool:
        """Tell whether a product has it, as an engine returned its fields."""
        names = {normal(value) for value in self.values}
        if self.field is not None:
            held = product.get(self.field)
            return any(normal(str(each)) in names for each in (held if isinstance(held, list | tuple) else [held]))
        texts = [normal(str(product.get(field) or "")) for field in self.fields]
        return any(
            text[at : at + len(name)] == name for text in texts for name in names for at in range(len(text)) if name
        )


@dataclass(frozen=True, slots=True)
class Search:
    """One search. `texts` start with the strictest and end with the shopper's own words.

    Where a field sorts, `wanted` tells what is the thing: it comes before what only shares a word with it.
    """

    texts: tuple[Text, ...]
    filters: tuple[Filter, ...] = ()
    boosts: tuple[Boost, ...] = ()
    sort: SortMapping | None = None
    wanted: tuple[Wanted, ...] = ()

    @property
    def kinds(self) -> tuple[Wanted, ...]:
        """What of `wanted` says what the thing is."""
        return tuple(each for each in self.wanted if each.is_kind)


@dataclass(frozen=True, slots=True)
class Searches:
    """The searches of a plan; `notes` say what of it they leave out and why, never in the shopper's words."""

    searches: tuple[Search, ...]
    notes: tuple[str, ...] = ()
