"""A product as the learner knows it, whatever the catalogue calls its fields."""

import re
from collections.abc import Iterator
from typing import Any, NamedTuple

from shops.roles import Roles
from shops.sources import Row
from shops.texts import currency, number, plain

_LEVELS = re.compile(r"\s*(?:>|»|›|\||(?<=\S)/(?=\S)|\s/\s)\s*")
_MOST_TEXT = 400  # characters of a description
_MOST_VALUES = 20
Attributes = dict[str, list[str]]


class Product(NamedTuple):
    """One product; `path` are its categories from the top, `leaf` the raw value of the field that has the last."""

    line: int
    id: str
    title: str
    brand: str
    path: tuple[str, ...]
    leaf: str
    price: float | None
    currency: str | None
    rating: float | None
    stock: str
    attributes: Attributes
    text: str


def flat(row: Row, prefix: str = "", depth: int = 3) -> Iterator[tuple[str, Any]]:
    """Yield every field that holds something, those of nested objects by their dotted names.

    A list of {"name": ..., "value": ...} gives a field a name, as many engines keep attributes.
    """
    for name, value in row.items():
        field = f"{prefix}{name}"
        if value is None or value == "" or value == []:
            continue
        if isinstance(value, dict) and depth:
            yield from flat(value, f"{field}.", depth - 1)
        elif isinstance(value, list) and isinstance(value[0], dict) and depth:
            for each in value[:_MOST_VALUES]:
                if isinstance(each, dict) and {"name", "value"} <= each.keys() and each["value"] not in (None, ""):
                    yield f"{field}[{each['name']}]", each["value"]
        elif isinstance(value, list):
            yield field, [plain(each) for each in value[:_MOST_VALUES] if each not in (None, "")]
        else:
            yield field, value


def product(line: int, row: Row, roles: Roles) -> Product | None:
    """Return a row's product; None where it has no title, which makes it none."""
    fields = dict(flat(row))
    title = plain(fields.get(roles.title, ""))
    if not title:
        return None
    path, leaf = _path(fields, roles)
    price = fields.get(roles.price) if roles.price else None
    code = plain(fields.get(roles.currency, "")).upper() if roles.currency else currency(price) if price else None
    stock = fields.get(roles.stock) if roles.stock else None
    return Product(
        line,
        plain(fields.get(roles.id, line)) if roles.id else str(line),
        title[:500],
        _first(fields.get(roles.brand)) if roles.brand else "",
        path,
        leaf,
        number(price),
        code or None,
        number(fields.get(roles.rating)) if roles.rating else None,
        "" if stock is None else plain(stock),
        {field: _values(fields[field]) for field in roles.attributes if field in fields},
        plain(fields.get(roles.description, ""))[:_MOST_TEXT] if roles.description else "",
    )


def _first(value: Any) -> str:
    return plain(value[0] if isinstance(value, list) else value)[:100] if value else ""


def _values(value: Any) -> list[str]:
    values = value if isinstance(value, list) else [value]
    return [text for each in values if (text := plain(each)[:100])]


def _path(fields: dict[str, Any], roles: Roles) -> tuple[tuple[str, ...], str]:
    """Return the categories from the top, and what the field of the last one holds."""
    path: list[str] = []
    leaf = ""
    for field in roles.categories:
        value = fields.get(field)
        if not value:
            continue
        levels = value if isinstance(value, list) else levels_of(plain(value))
        leaf = plain(value[-1] if isinstance(value, list) else value)
        path += [level for level in levels if level and (not path or level != path[-1])]
    return tuple(path), leaf


def levels_of(text: str) -> list[str]:
    """Return the levels of a category path in one text: "Shoes > Boots" has two, "Health & Beauty" one."""
    return [level for level in _LEVELS.split(text) if level]
