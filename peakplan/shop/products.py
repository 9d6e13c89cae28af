"""A product as the learner knows it, whatever the catalogue calls its fields."""

import ast
import json
import re
from collections.abc import Iterator
from typing import Any, Final, NamedTuple

from peakplan.shop.fields import SECTIONS, is_in_stock, plain_name
from peakplan.shop.inducing import KIND_FIELD, kind_of
from peakplan.shop.merging import Row
from peakplan.shop.roles import Roles
from peakplan.shop.texts import LISTED, Notation, amounts_of, currency_of, number, plain
from service.planner.amounts import Amount
from service.planner.text import fold

_MOST_TEXT: Final = 400  # characters of a description
_MOST_VALUES: Final = 200  # of a list
_MOST_OF_ONE: Final = 20  # values of an attribute
_NAMES: Final = ("name", "key", "label", "attribute_code", "attribute_name", "code", "PARAM_NAME")
_VALUES: Final = ("value", "values", "val", "option", "options", "attribute_value", "VAL", "value_name")
_EVERYTHING: Final = frozenset(SECTIONS["categories of everything"])
Attributes = dict[str, list[str]]
Path = tuple[str, ...]


class Product(NamedTuple):
    """One product; `path` are its categories from the top, `leaf` the raw value of the field that has the last.

    `others` are paths and leaves of its other categories. `price` is the lowest of its prices, `most` the highest.
    """

    line: int
    id: str
    title: str
    brand: str
    path: Path
    leaf: str
    price: float | None
    currency: str | None
    rating: float | None
    stock: str
    attributes: Attributes
    text: str
    others: tuple[tuple[Path, str], ...] = ()
    most: float | None = None
    variants: int = 1


def flat(row: dict[str, Any], prefix: str = "", depth: int = 3) -> Iterator[tuple[str, Any]]:
    """Yield every field that holds something, those of nested objects by their dotted names.

    A list of {"name": ..., "value": ...} gives a field a name, as many engines keep attributes; of other lists of
    objects each field has the values of all. A text that holds a list is one.
    """
    for name, value in row.items():
        field = f"{prefix}{name}"
        if isinstance(value, str) and value[:1] in ("[", "{") and value[-1:] in ("]", "}"):
            value = _literal(value)
        if value is None or value == "" or value == []:
            continue
        if isinstance(value, dict) and depth:
            yield from flat(value, f"{field}.", depth - 1)
        elif isinstance(value, list) and isinstance(value[0], dict) and depth:
            yield from _objects(field, [each for each in value[:_MOST_VALUES] if isinstance(each, dict)], depth)
        elif isinstance(value, list):
            value = [" > ".join(map(str, each)) if isinstance(each, list) else each for each in value]
            yield field, [plain(each) for each in value[:_MOST_VALUES] if each not in (None, "")]
        else:
            yield field, value


def _literal(text: str) -> Any:
    for read in (json.loads, ast.literal_eval):
        try:
            return read(text.replace('"=>', '":'))  # Ruby's
        except (ValueError, SyntaxError, RecursionError, MemoryError):
            continue
    return text


def _objects(field: str, found: list[dict[str, Any]], depth: int) -> Iterator[tuple[str, Any]]:
    gathered: dict[str, list[Any]] = {}
    for each in found:
        name = next((each[key] for key in _NAMES if each.get(key)), None)
        values = [each[key] for key in _VALUES if each.get(key) not in (None, "", [])]
        if isinstance(name, str) and values:
            key, inside = f"{field}[{name}]", values[0]
            gathered[key] = [*gathered.get(key, []), *(inside if isinstance(inside, list) else [inside])]
            continue
        for key, inside in flat(each, f"{field}.", depth - 1):
            gathered[key] = [*gathered.get(key, []), *(inside if isinstance(inside, list) else [inside])]
    for key, several in gathered.items():
        values = [plain(each) for each in several if each not in (None, "") and not isinstance(each, dict)]
        if unique := list(dict.fromkeys(values)):
            yield key, unique[0] if len(unique) == 1 and "[" in key else unique


def product(line: int, row: dict[str, Any], roles: Roles) -> Product | None:
    """Return a row's product; None where it has no title, which makes it none."""
    fields = dict(flat(row))
    title = plain(_one(fields.get(roles.title, "")))
    if not title:
        return None
    if roles.kinds:
        fields[KIND_FIELD] = kind_of(title, roles.kind_counts)
    (path, leaf), *others = _paths(fields, roles) or [((), "")]
    prices = prices_of(fields, roles)
    code = currency_of(plain(_one(fields.get(roles.currency, "")))) if roles.currency else None
    stock = fields.get(roles.stock) if roles.stock else None
    rating = _one(fields.get(roles.rating)) if roles.rating else None
    return Product(
        line,
        plain(_one(fields.get(roles.id, line))) if roles.id else str(line),
        title[:500],
        plain(_one(fields.get(roles.brand, "")))[:100] if roles.brand else "",
        path,
        leaf,
        prices[0].value if prices else None,
        code or next((price.currency for price in prices if price.currency), roles.currency_named if prices else None),
        number(rating, roles.of(roles.rating).level),
        "" if stock is None else plain(_stock(stock)),
        {field: _values(fields[field], field, roles) for field in roles.attributes if field in fields},
        plain(_one(fields.get(roles.description, "")))[:_MOST_TEXT] if roles.description else "",
        tuple(others),
        prices[-1].value if prices else None,
        row.variants if isinstance(row, Row) else 1,
    )


def prices_of(fields: dict[str, Any], roles: Roles) -> list[Amount]:
    """Return the amounts of a product's price from the lowest, as its column writes numbers."""
    if not roles.price or (held := fields.get(roles.price)) is None:
        return []
    found = amounts_of(held, roles.of(roles.price).level)
    if re.search(r"cents?$|minor", plain_name(roles.price)):
        found = [Amount(price.value / 100, price.currency) for price in found]
    priced = [price for price in found if price.value] or found  # a parent of variants often costs 0
    return sorted(priced, key=lambda price: price.value)


def _one(value: Any) -> Any:
    return value[0] if isinstance(value, list) and value else "" if isinstance(value, list) else value


def _stock(value: Any) -> Any:
    """Return whether any variant is there, where several say so."""
    if not isinstance(value, list):
        return value
    return max(
        value, key=lambda each: (is_in_stock(str(each)) or False, str(each).isalpha(), number(each) or 0), default=""
    )


def _values(value: Any, field: str, roles: Roles) -> list[str]:
    parts = roles.of(field).parts(value)
    return [part[:100] for part in dict.fromkeys(parts) if part][:_MOST_OF_ONE]


def _paths(fields: dict[str, Any], roles: Roles) -> list[tuple[Path, str]]:
    """Return the categories of a product, the most special first: levels from the top, and what their field holds."""
    if len(roles.categories) == 1:
        return paths_of(fields.get(roles.categories[0]), roles.of(roles.categories[0]))
    path: list[str] = []
    leaf = ""
    for field in roles.categories:
        if found := paths_of(fields.get(field), roles.of(field)):
            path += [level for level in found[0][0] if not path or level != path[-1]]
            leaf = found[0][1]
    return [(tuple(path), leaf)] if path else []


def paths_of(value: Any, notation: Notation) -> list[tuple[Path, str]]:
    """Return the paths in one cell, without levels that every product is below; each with its raw text."""
    if not value:
        return []
    found = []
    for part in notation.parts(value):
        levels = notation.levels(part)
        leaf = levels[-1] if notation.level == LISTED and levels else part
        while len(levels) > 1 and fold(levels[0]).replace("-", " ") in _ROOTS:
            levels = levels[1:]
        is_all = len(levels) == 1 and (fold(levels[0]) in _EVERYTHING or fold(levels[0]) in _ROOTS)
        found.append((is_all, -len(levels), tuple(levels), leaf))
    kept = [each for each in found if not each[0]] or found
    return [(path, leaf) for _, _, path, leaf in sorted(kept, key=lambda each: each[:2]) if path]


_ROOTS: Final = frozenset(
    ("default category", "root", "root catalog", "all", "all categories", "all products", "home page")
)
