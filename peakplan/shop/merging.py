"""Rows that are variants of one product become one product: Shopify's, Wix's, WooCommerce's, Magento's, Google's.

Columns that hold an attribute's name beside its value become the attribute.
"""

import re
from collections import OrderedDict
from collections.abc import Iterator
from dataclasses import dataclass
from functools import lru_cache
from typing import Any, Final

from peakplan.shop.fields import SECTIONS, plain_name
from service.planner.text import KIND_OF, fold

_MOST_OPEN: Final = 10_000  # products that may still get a variant
_OWN: Final = frozenset(("id", "sku", "handle", "gid"))
_ONE: Final = frozenset((*SECTIONS["title"], *SECTIONS["description"], *SECTIONS["id"]))
_PAIR: Final = re.compile(r"^(.*\D(\d+)?)[ _]names?$", re.I)
_BEHIND: Final = (" Value", " value(s)", " value", "_value", " VALUES", " Values", " Description")
_SWATCH: Final = re.compile(r"#[0-9a-f]{6}:", re.I)  # before the name of a colour
_EXPLODED: Final = ("additional_attributes",)
_VARIATIONS: Final = "configurable_variations"


class Row(dict[str, Any]):
    """The fields of a product; `variants` is how many rows it has."""

    variants = 1


@dataclass(frozen=True, slots=True)
class BadRow:
    """A row that cannot be read: the number of its line (of a table: of its row), from 1, and why."""

    line: int
    reason: str


Found = tuple[int, Row] | BadRow


def merged(found: Iterator[Found]) -> Iterator[Found]:
    """Yield each product once, where it stands first, with what all its rows say."""
    waiting: OrderedDict[int, tuple[int, Row]] = OrderedDict()
    keys: dict[Any, Any] = {}
    for each in found:
        if isinstance(each, BadRow):
            yield each
            continue
        line, row = each
        parent, own = _places(row)
        if parent is None and own is None:
            yield line, _joined(row)
            continue
        named = [parent] if parent else own or []
        places = [at for at in sorted({keys[key] for key in named if key in keys}) if at in waiting]
        place, base = (places[0], row) if places else (line, row)
        for at in places:
            _, other = waiting.pop(at) if at != place else waiting[at]
            base = _both(other, base) if parent else _both(base, other)
        waiting[place] = (place, base)
        keys |= dict.fromkeys(named, place)
        if len(waiting) > _MOST_OPEN:
            at, base = waiting.popitem(last=False)[1]
            yield at, _joined(base)
            keys = keys if len(keys) < 20 * _MOST_OPEN else {key: at for key, at in keys.items() if at in waiting}
    yield from ((at, _joined(base)) for at, base in waiting.values())


@lru_cache(maxsize=64)
def _roles(names: tuple[str, ...]) -> tuple[str | None, str | None, tuple[str, ...]]:
    """Return the fields that name a row's product: a group's, a parent's, and its own ids."""
    plain = {plain_name(name): name for name in reversed(names)}
    is_shopify = "handle" in plain and any(name.startswith(("variant", "option1")) for name in plain)
    group = (
        "handle"
        if is_shopify
        else next((name for name in ("handle_id", "handleid", "item_group_id") if name in plain), "")
    )
    parents = ("parent_id", "parentid", "parent_sku", "parent")
    parent = next((name for name in parents if name in plain), "")
    own = tuple(plain[name] for name in ("id", "sku", "gid") if name in plain)
    return plain[group] if group else None, plain.get(parent) or plain.get(_VARIATIONS), own


def _places(row: Row) -> tuple[Any, list[Any] | None]:
    """Return the key of the product that a row belongs to, or the keys by which others may name it; None for none."""
    group, parent, own = _roles(tuple(row))
    if group:
        same = [row[name] for name in row if plain_name(name) in ("brand", "product_type")]
        return ((group, row[group], *map(str, same)), None) if row[group] else (None, None)
    if parent is None and "priceRangeV2" not in row and "variants" not in row:
        return None, None
    named = str(row.get(parent) or "") if parent and plain_name(parent) != _VARIATIONS else ""
    if named and named != "0":
        return named.removeprefix("id:"), None
    inside = re.findall(r"sku=([^,|]+)", str(row.get(_VARIATIONS) or ""))
    return None, [*(str(row[name]) for name in own if row.get(name)), *inside]


def _both(base: Row, other: Row) -> Row:
    """Return a product with what another row of it says: other values beside its own, but one title."""
    row = Row(base)
    row.variants = base.variants + other.variants
    for name, value in _with_options(other).items():
        if value in (None, "", []) or value == row.get(name) or (row.get(name) and plain_name(name) in _ONE):
            continue
        if isinstance(value, dict) or isinstance(row.get(name), dict):
            row.setdefault(name, value)
            continue
        values = [one if isinstance(one, list) else [one] for one in (row.get(name), value) if one not in (None, "")]
        row[name] = list({str(one): one for several in values for one in several}.values())
    return row


def _with_options(row: Row) -> Row:
    """Return a variant with its options as fields, where its title alone says them: "Small / Blue"."""
    if "__parentId" not in row:
        return row
    options = row.get("selectedOptions") or [
        {"name": KIND_OF.get(fold(value), "option"), "value": value} for value in str(row.get("title", "")).split(" / ")
    ]
    pairs = {str(each["name"]): each["value"] for each in options if each["value"] != "Default Title"}
    dropped = ("selectedOptions", "title", "id", "__parentId")
    return Row({name: value for name, value in row.items() if name not in dropped} | pairs)


@lru_cache(maxsize=64)
def _pairs(names: tuple[str, ...]) -> tuple[tuple[str, str], ...]:
    """Return the columns of attributes' names with those of their values."""
    wix = ((name, name.replace("Name", "Description")) for name in names if name.startswith("productOptionName"))
    found = [(name, value) for name, value in wix if value in names]
    for name in names:
        if (match := _PAIR.match(name)) and (match[2] or "ption" in match[1] or "ttribute" in match[1]):
            value = next((match[1] + end for end in _BEHIND if match[1] + end in names), None)
            found += [(name, value)] if value else []
    return tuple(found)


def _joined(row: Row) -> Row:
    """Return a row whose name-value columns are fields with those names."""
    pairs = _pairs(tuple(row))
    exploded = [name for name in (*_EXPLODED, _VARIATIONS) if row.get(name)]
    if not pairs and not exploded:
        return row
    whole = Row({name: value for name, value in row.items() if name not in {one for two in pairs for one in two}})
    whole.variants = row.variants
    for name, value in pairs:
        called = row[name][0] if isinstance(row[name], list) and row[name] else row[name]
        if called and row[value] not in (None, "", []) and called not in ("Title", "Default Title"):
            held = row[value] if isinstance(row[value], list) else [row[value]]
            options = [_SWATCH.sub("", str(each)) for each in held]
            whole.setdefault(str(called), options if len(options) > 1 else options[0])
    for name in exploded:
        held = whole.pop(name)
        for each in re.split(r"[,|]", ",".join(held) if isinstance(held, list) else str(held)):
            called, is_pair, value = each.partition("=")
            before = whole.get(called) or []
            before = before if isinstance(before, list) else [before]
            if is_pair and called != "sku" and value not in before:
                whole[called] = [*before, value]
    return whole
