"""Which field of a catalogue is what: title, brand, categories, price, currency, rating, stock, attributes.

Names tell most, contents the rest. Where neither does, `find_roles` says what to ask.
"""

import re
from collections import Counter, defaultdict
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Final

from shops.texts import is_number, tokens

ROLES: Final = (
    "id", "title", "description", "brand", "category", "price", "currency", "rating", "stock", "newest",
    "best_selling", "attribute", "ignore",
)  # fmt: skip
# Names of a role's fields, the surest first; each is the whole name or the last part of a dotted one.
_NAMES: Final[dict[str, tuple[str, ...]]] = {
    "id": ("id", "product_id", "sku", "item_id", "asin", "uniq_id", "objectid", "uid", "code", "handle", "gtin", "ean"),
    "title": ("title", "product_title", "product_name", "name", "item_name", "title_en", "name_en", "label"),
    "description": (
        "description", "product_description", "desc", "body_html", "body", "long_description", "text", "about",
        "short_description", "details",
    ),
    "brand": ("brand", "brand_name", "product_brand", "manufacturer", "vendor", "maker", "make"),
    "price": ("price", "selling_price", "sale_price", "current_price", "final_price", "price_amount", "amount",
              "discounted_price", "unit_price", "retail_price", "list_price"),
    "currency": ("currency", "currency_code", "price_currency"),
    "rating": ("rating", "average_rating", "product_rating", "stars", "review_score", "overall_rating"),
    "stock": ("stock", "in_stock", "availability", "quantity", "current_stock", "inventory", "available"),
    "newest": ("created_at", "added_at", "published_at", "release_date", "date_added"),
    "best_selling": ("sales_rank", "sales", "sold", "units_sold", "popularity", "best_selling_rank"),
}  # fmt: skip
_CATEGORY: Final = re.compile(
    r"^(?:(?:main|sub|product|item|google|top|leaf)?[ _]?(?:categor\w*|department|section|taxonomy|breadcrumbs?)"
    r"(?:[ _]?(?:path|tree|name|list|hierarchy|\d|lvl\d|level\d))*|product[ _]?(?:type|group|class)"
    r"|lvl\d|hierarchical_?categories|type|style|kind)$"
)  # fmt: skip
_URL: Final = re.compile(r"^(?:https?:)?//|^/[\w/.-]+\.\w+$|^www\.")
_MOST_DISTINCT = 20_000
_DETERMINED = 0.95  # of a field's rows whose value tells the value of another
_FEW = 0.2  # distinct values of an attribute or a category, of rows


class RolesError(ValueError):
    """Raised where contents and names do not tell; the message names the choices and `--map`."""


@dataclass(frozen=True, slots=True)
class Roles:
    """The fields by what they are; `categories` from the top, `attributes` the rest that describes products."""

    title: str
    id: str | None = None
    description: str | None = None
    brand: str | None = None
    categories: tuple[str, ...] = ()
    price: str | None = None
    currency: str | None = None
    rating: str | None = None
    stock: str | None = None
    newest: str | None = None
    best_selling: str | None = None
    attributes: tuple[str, ...] = ()

    def told(self) -> dict[str, str]:
        """Return role by field, for people."""
        one = {getattr(self, role): role for role in ROLES if getattr(self, role, None)}
        levels = {name: f"category {at}" for at, name in enumerate(self.categories, 1)}
        return one | levels | dict.fromkeys(self.attributes, "attribute")


@dataclass(slots=True)
class FieldProfile:
    """What a sample's rows hold in one field."""

    filled: int = 0
    numbers: int = 0
    urls: int = 0
    lists: int = 0
    words: int = 0
    values: Counter[str] = field(default_factory=Counter)

    def add(self, value: Any) -> None:
        self.filled += 1
        self.lists += isinstance(value, list)
        text = " > ".join(map(str, value)) if isinstance(value, list) else str(value)
        self.numbers += isinstance(value, bool) or is_number(text)
        self.urls += bool(_URL.match(text))
        self.words += len(text.split())
        if len(self.values) < _MOST_DISTINCT or text in self.values:
            self.values[text] += 1

    @property
    def is_text(self) -> bool:
        return self.numbers < 0.5 * self.filled and self.urls < 0.5 * self.filled

    @property
    def is_closed(self) -> bool:
        """Tell whether its values repeat, as those of a category or an attribute do."""
        return len(self.values) <= max(30, _FEW * self.filled) and self.words <= 12 * self.filled


def find_roles(sample: Sequence[Mapping[str, Any]], given: Mapping[str, str]) -> Roles:
    """Return the roles of the fields of a sample of flat rows; `given` are those that a person told.

    Raises RolesError where the title or the price cannot be told.
    """
    profiles: dict[str, FieldProfile] = defaultdict(FieldProfile)
    for row in sample:
        for name, value in row.items():
            profiles[name].add(value)
    if not profiles:
        raise RolesError("no row holds a field: is this the catalogue's file?")
    if unknown := [name for name in given if name not in profiles]:
        raise RolesError(f"--map names {', '.join(unknown)}, and the catalogue has {', '.join(sorted(profiles))}")
    free = {name: profile for name, profile in profiles.items() if name not in given}
    found: dict[str, str] = {role: name for name, role in given.items() if role in _NAMES}
    for role in _NAMES:
        if role not in found and (named := _named(role, free, found)):
            found[role] = named
    if "title" not in found:
        found["title"] = _title(free, found)
    left = {name: profile for name, profile in free.items() if name not in found.values()}
    told = tuple(name for name, role in given.items() if role == "category")
    categories = told or _categories(left, sample, found["title"])
    attributes = [name for name, role in given.items() if role == "attribute"]
    attributes += [name for name, one in left.items() if name not in categories and _describes(one)]
    all_roles: dict[str, Any] = {**found, "categories": categories, "attributes": tuple(dict.fromkeys(attributes))}
    return Roles(**all_roles)


def _named(role: str, free: Mapping[str, FieldProfile], found: Mapping[str, str]) -> str | None:
    """Return the field that a role's names tell. Raises RolesError where two are as likely and say different things."""
    for wanted in _NAMES[role]:
        hits = [
            name
            for name, profile in free.items()
            if name not in found.values() and _plain_name(name) == wanted and _fits(role, profile)
        ]
        if hits:
            hits.sort(key=lambda name: (name.count("."), -free[name].filled))
            first, *others = hits
            if others and others[0].count(".") == first.count(".") and role in ("title", "price"):
                raise RolesError(_question(role, hits[:2]))
            if role == "title" and (rival := _rival(first, free)):
                raise RolesError(_question(role, [first, rival]))
            return first
    return None


def _rival(first: str, free: Mapping[str, FieldProfile]) -> str | None:
    """Return another field that is named like a title and holds other texts, as long and as different as titles are."""
    for name, one in free.items():
        if name != first and "." not in name and _plain_name(name) in _NAMES["title"][:5] and one.is_text:
            same = len(one.values.keys() & free[first].values.keys())
            many = len(one.values) > 0.8 * one.filled and one.words > 2 * one.filled
            if many and same < 0.5 * len(one.values):
                return name
    return None


def _plain_name(name: str) -> str:
    last = name.rpartition(".")[2]
    return re.sub(r"\W+", "_", re.sub(r"(?<=[a-z])(?=[A-Z])", "_", last)).strip("_").lower()


def _fits(role: str, profile: FieldProfile) -> bool:
    if role in ("price", "rating"):
        return profile.numbers > 0.5 * profile.filled
    if role in ("title", "brand"):
        return profile.is_text
    return True


def _title(free: Mapping[str, FieldProfile], found: Mapping[str, str]) -> str:
    """Return the one field of short texts that are nearly all different."""
    hits = [
        name
        for name, one in free.items()
        if name not in found.values() and one.is_text and len(one.values) > 0.8 * min(one.filled, _MOST_DISTINCT)
        and 2 * one.filled <= one.words <= 25 * one.filled
    ]  # fmt: skip
    if len(hits) != 1:
        raise RolesError(_question("title", hits or list(free)))
    return hits[0]


def _question(role: str, names: Iterable[str]) -> str:
    choices = list(names)
    return f"which field is the {role}: {', '.join(choices)}? Say so with --map {choices[0]}={role}"


def _describes(profile: FieldProfile) -> bool:
    return profile.is_closed and profile.urls < 0.5 * profile.filled and len(profile.values) > 1


def _categories(left: Mapping[str, FieldProfile], sample: Sequence[Mapping[str, Any]], title: str) -> tuple[str, ...]:
    """Return the fields of categories from the top: a value of a lower one tells that of the upper."""
    named = [
        name
        for name, one in left.items()
        if _CATEGORY.match(_plain_name(name)) and one.is_text and one.filled >= 0.5 * len(sample)
        and len(one.values) <= max(30, 0.5 * one.filled)
    ]  # fmt: skip
    sure = [name for name in named if _plain_name(name) not in ("type", "style", "kind")] or named
    paths = [name for name in sure if left[name].lists > 0.5 * left[name].filled or _is_path(left[name])]
    if paths:
        return (max(paths, key=lambda name: len(left[name].values)),)
    if not sure:
        return ()
    chain = [min(sure, key=lambda name: len(left[name].values))]
    for name in sorted(named, key=lambda name: len(left[name].values)):
        finer = len(left[name].values) > len(left[chain[-1]].values)
        if finer and _tells(name, chain[-1], sample) and (name in sure or _is_said(name, title, sample)):
            chain.append(name)
    return tuple(chain)


def _is_path(profile: FieldProfile) -> bool:
    return sum(count for value, count in profile.values.items() if " > " in value) > 0.3 * profile.filled


def _tells(name: str, other: str, sample: Sequence[Mapping[str, Any]]) -> bool:
    together: dict[str, Counter[str]] = defaultdict(Counter)
    for row in sample:
        if name in row and other in row:
            together[str(row[name])][str(row[other])] += 1
    both = sum(sum(counts.values()) for counts in together.values())
    return sum(counts.most_common(1)[0][1] for counts in together.values()) >= _DETERMINED * both > 0


def _is_said(name: str, title: str, sample: Sequence[Mapping[str, Any]]) -> bool:
    """Tell whether titles often say the field's values, as they do what a thing is."""
    told = [row for row in sample if name in row and title in row]
    said = sum(not set(tokens(str(row[name]))).isdisjoint(tokens(str(row[title]))) for row in told)
    return said > 0.15 * len(told)
