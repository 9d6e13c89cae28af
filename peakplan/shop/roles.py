"""Which field of a catalogue is what: title, brand, categories, price, currency, rating, stock, attributes.

Names tell most (`fields.txt`), contents the rest. Where neither does, `find_roles` says what to ask.
"""

import re
from collections import Counter, defaultdict
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from typing import Any, Final

from peakplan.shop.fields import SECTIONS, facet_of_field, is_in_stock, plain_name
from peakplan.shop.inducing import KIND_FIELD, Kind, induced
from peakplan.shop.texts import (
    LISTED,
    Notation,
    amounts,
    cell,
    currency_of,
    decimal_mark,
    is_number,
    key,
    notation_of,
    tokens,
)
from service.planner.amounts import code_of

URL: Final = re.compile(r"^(?:https?:)?//|^/[\w/.-]+\.\w+$|^www\.")
MOST_DISTINCT: Final = 20_000
READ: Final = 200  # distinct values that tell whether a field holds money
SAME_ID: Final = 0.9  # distinct ids, of rows
_DETERMINED: Final = 0.95  # of a field's rows whose value tells the value of another
_FEW: Final = 0.2  # distinct values of an attribute or a category, of rows
_LONGEST: Final = 60  # characters of a price
_SIGNED: Final = re.compile(r"[^\w\s.,'’-]|(?<![^\W\d_])[^\W\d_]{2,4}(?![^\W\d_])")  # "R0" is a code


@dataclass
class FieldProfile:
    """The values of one field in a sample's rows."""

    most: int = MOST_DISTINCT
    filled: int = 0
    numbers: int = 0
    urls: int = 0
    words: int = 0
    values: Counter[str] = field(default_factory=Counter)

    def add(self, value: Any) -> None:
        self.filled += 1
        text = cell(value)
        self.numbers += isinstance(value, bool) or is_number(text)
        self.urls += bool(URL.match(text))
        self.words += len(text.split())
        if len(self.values) < self.most or text in self.values:
            self.values[text] += 1

    @property
    def is_text(self) -> bool:
        return self.numbers < 0.5 * self.filled and self.urls < 0.5 * self.filled

    def is_closed(self, notation: Notation) -> bool:
        """Tell whether its values repeat, as those of a category or an attribute do."""
        parts = {part for value in self.values for part in notation.parts(value)}
        is_each_own = self.filled >= 10 and len(self.values) > SAME_ID * self.filled and len(parts) > 0.5 * self.filled
        return len(parts) <= max(30, _FEW * self.filled) and self.words <= 12 * self.filled and not is_each_own

    @cached_property
    def money(self) -> tuple[float, float]:
        """The shares of values that say an amount, and a currency with it."""
        told = [amounts(text) for text in list(self.values)[:READ] if len(text) <= _LONGEST and not URL.match(text)]
        read = [each for each in told if each]
        seen = min(READ, len(self.values)) or 1
        signed = sum(bool(_SIGNED.search(text)) for text in list(self.values)[:READ])
        return len(read) / seen, min(signed, sum(each[0].currency is not None for each in read)) / seen


Profiles = Mapping[str, FieldProfile]


def tells(name: str, other: str, sample: Sequence[Mapping[str, Any]]) -> bool:
    together: dict[str, Counter[str]] = defaultdict(Counter)
    for row in sample:
        if name in row and other in row:
            together[str(row[name])][str(row[other])] += 1
    both = sum(sum(counts.values()) for counts in together.values())
    return sum(counts.most_common(1)[0][1] for counts in together.values()) >= _DETERMINED * both > 0


def is_said(name: str, title: str, sample: Sequence[Mapping[str, Any]]) -> bool:
    """Tell whether titles often say the field's values, as they do what a thing is."""
    told = [row for row in sample if name in row and title in row]
    said = sum(not set(tokens(str(row[name]))).isdisjoint(tokens(str(row[title]))) for row in told)
    return said > 0.15 * len(told)


ROLES: Final = (
    "id", "title", "description", "brand", "category", "price", "sale", "currency", "rating", "stock", "newest",
    "best_selling", "image", "attribute", "ignore",
)  # fmt: skip
_BY_NAME: Final = tuple(role for role in ROLES if role not in ("category", "attribute", "ignore"))
_CATEGORY: Final = re.compile(
    r"^(?:(?:main|sub|product|item|google|top|leaf)?[ _]?(?:product[ _])?"
    r"(?:categor\w*|department|section|taxonomy|breadcrumbs?)"
    r"(?:[ _]?(?:path|tree|name|list|hierarchy|\d|lvl\d|level\d))*|product[ _]?(?:type|group|class)"
    r"|lvl\d|hierarchical_?categories)$"
)  # fmt: skip
_LESS_SURE: Final = frozenset(("type", "style", "kind", "tag", "tags", "collection", "collections", "sortiment"))
_WRAPPERS: Final = frozenset(
    ("name", "value", "title", "label", "text", "amount", "id", "cents")
)  # "brand.name" is a brand
_SORTS: Final = re.compile(r"\d{4}-\d\d|\d{4}/\d\d|\d{8,}|\d{4}$")  # a text that sorts as its date does
_MONEY: Final = re.compile(
    r"price|preis|prix|precio|prezzo|preco|prijs|tarif|pvp|цена|cena|価格|\bcost\b|amount|betrag"
)
_IMPORTANT: Final = {"price": _MONEY, "stock": re.compile(r"stock|availab|lager|inventory"),
                     "currency": re.compile(r"currency|waehrung|wahrung|devise|moneda|valuta")}  # fmt: skip


class RolesError(ValueError):
    """Raised where contents and names do not tell; the message names the choices and `--map`."""


@dataclass(frozen=True, slots=True)
class Roles:
    """The fields by what they are; `categories` from the top, `attributes` the rest that describes products.

    `notation` says how the cells of a field are written, `kinds` what titles call things where there are no categories,
    `unused` which fields are left out although they matter,
    `notes` what else was seen.
    """

    title: str
    id: str | None = None
    description: str | None = None
    brand: str | None = None
    categories: tuple[str, ...] = ()
    price: str | None = None
    sale: str | None = None
    currency: str | None = None
    rating: str | None = None
    stock: str | None = None
    newest: str | None = None
    best_selling: str | None = None
    image: str | None = None
    attributes: tuple[str, ...] = ()
    notation: Mapping[str, Notation] = field(default_factory=dict)
    kinds: Mapping[str, Kind] = field(default_factory=dict)
    unused: tuple[str, ...] = ()
    notes: tuple[str, ...] = ()

    def told(self) -> dict[str, str]:
        """Return role by field, for people."""
        one = {getattr(self, role): role for role in ROLES if getattr(self, role, None)}
        levels = {name: f"category {at}" for at, name in enumerate(self.categories, 1)}
        return one | levels | dict.fromkeys(self.attributes, "attribute")

    @property
    def currency_named(self) -> str | None:
        """The currency that the name of the price's field says: "price_eur", "Preis (€)"."""
        for word in re.findall(r"[^\W\d_]{3}(?![^\W\d_])|[^\w\s.,()/:-]", self.price or ""):
            if word.lower() in SECTIONS["currencies in names"]:
                return str(word).upper()
            if not word.isalpha() and (code := currency_of(word)):
                return code
        return None

    @property
    def kind_counts(self) -> dict[str, float]:
        """How many titles say each kind, where these stand for categories."""
        return {name: kind.titles for name, kind in self.kinds.items()}

    def of(self, name: str | None) -> Notation:
        """Return how the cells of a field are written."""
        return self.notation.get(name or "", Notation())


def find_roles(sample: Sequence[Mapping[str, Any]], given: Mapping[str, str]) -> Roles:
    """Return the roles of the fields of a sample of flat rows; `given` are those that a person told.

    Raises RolesError where the title cannot be told.
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
    found: dict[str, str] = {role: name for name, role in given.items() if role in _BY_NAME}
    for role in _BY_NAME:
        if role not in found and (named := _named(role, free, found)):
            found[role] = named
    notes = list(_settle(found, free))
    if "title" not in found:
        found["title"] = _title(free, found)
    left = {name: profile for name, profile in free.items() if name not in found.values()}
    told = tuple(name for name, role in given.items() if role == "category")
    categories = told or _categories(left, sample, found["title"])
    notation = {name: notation_of(profiles[name].values, is_path=True) for name in categories}
    attributes = [name for name, role in given.items() if role == "attribute"]
    rest = [name for name in left if name not in categories and not _is_bookkeeping(name)]
    notation |= {name: notation_of(profiles[name].values, is_path=False, facet=facet_of_field(name))
                 for name in (*attributes, *rest)}  # fmt: skip
    attributes += [name for name in left if name in notation and name not in categories
                   and _describes(name, left[name], notation[name])]  # fmt: skip
    for role in ("price", "sale", "rating"):
        if role in found:
            notation[found[role]] = Notation(level=decimal_mark(profiles[found[role]].values))
    unused = _unused({name: one for name, one in left.items() if name not in categories}, found, sample)
    kinds: dict[str, Kind] = {}
    if not categories:
        told_by = [name for name in (*attributes, found.get("brand", "")) if facet_of_field(name) != "feature"
                   or name == found.get("brand")]  # fmt: skip
        parts = (notation.get(name, Notation()).parts(value) for name in told_by for value in profiles[name].values)
        kinds = induced(list(profiles[found["title"]].values), {key(part) for several in parts for part in several})
        categories = (KIND_FIELD,) if kinds else ()
        notes.append(f"no field is read as the category: titles tell {len(kinds)} kinds, in the field {KIND_FIELD} "
                     "that enriched.jsonl has; add it to the index")  # fmt: skip
        unused[0].extend(f"{name} holds ids of categories and no names: export the names, or --map FIELD=category"
                         for name in left if _CATEGORY.match(plain_name(name)) and not left[name].is_text)  # fmt: skip
    if "price" in found and profiles[found["price"]].money[1] > 0.5:
        example = next(iter(profiles[found["price"]].values)).split(LISTED)[0]
        notes.append(f"{found['price']} holds texts such as {example!r}: index them as numbers, which engines compare")
    kept = {name: each for name, each in notation.items() if name in (*found.values(), *categories, *attributes)}
    all_roles: dict[str, Any] = {**found, "categories": categories, "attributes": tuple(dict.fromkeys(attributes))}
    return Roles(**all_roles, notation=kept, kinds=kinds, unused=tuple(unused[0]), notes=(*notes, *unused[1]))


def _settle(found: dict[str, str], free: Profiles) -> Iterable[str]:
    """Correct roles by contents: an id that is none, a price that only products on sale have."""
    name = found.get("id", "")
    if name in free and free[name].filled >= 10 and len(free[name].values) < SAME_ID * free[name].filled:
        one = free[name]
        value, count = one.values.most_common(1)[0]
        yield (f"{name} is no id: {count} of {one.filled} products have {value} (a spreadsheet shortens long numbers); "
               f"products are named by their lines; --map {name}=id takes it all the same")  # fmt: skip
        del found["id"]
        if other := _named("id", {key: each for key, each in free.items() if key != name}, found):
            found["id"] = other
    if (name := found.get("newest", "")) in free and not all(
        _SORTS.match(value) for value in list(free[name].values)[:READ]
    ):
        yield f"{name} sorts no products: write dates as 2026-01-31, which engines sort"
        del found["newest"]
    if "stock" not in found:
        told = [key for key, one in free.items() if key not in found.values() and _says_stock(one)]
        found |= {"stock": told[0]} if told else {}
    if "sale" in found and "price" not in found:
        found["price"] = found.pop("sale")
    if "price" not in found:
        signed = [key for key, one in free.items() if key not in found.values() and one.money[1] > 0.8]
        if signed:
            found["price"] = min(signed, key=lambda key: (key.count("."), -free[key].filled))


def _says_stock(one: FieldProfile) -> bool:
    """Tell whether words of stock, in any language, are all that a field holds; flags and numbers may say else."""
    flags = ("false", "active", "inactive", "limited")
    told = (len(value) > 4 and value.lower() not in flags and is_in_stock(value) is not None for value in one.values)
    return not one.numbers and all(told)


def _unused(
    left: Profiles, found: Mapping[str, str], sample: Sequence[Mapping[str, Any]]
) -> tuple[list[str], list[str]]:
    """Return the unused fields whose role no other field has, and notes on the other unused fields."""
    lost, notes = [], []
    for name, one in left.items():
        for role, pattern in _IMPORTANT.items():
            is_named = bool(pattern.search(plain_name(name)))
            is_role = is_named or (role == "price" and role not in found and one.money[1] > 0.8)
            is_seldom = one.filled < 0.05 * len(sample) or (len(one.values) < 2 and role in found)
            if not is_role or one.urls > 0.5 * one.filled or is_seldom:
                continue
            flag = f"--map {_quoted(f'{name}={role}')}"
            example = next(iter(one.values))[:40]
            if role in found:
                notes.append(f"{name} is not used, {found[role]} is the {role}: {flag} takes it instead")
            else:
                lost.append(f"{name} looks like the {role} ({example!r}) and is not read as one: {flag}")
            break
    if "price" not in found and not lost:  # there may be none
        notes.append("no field is read as the price: name it with --map FIELD=price")
    return lost, notes


def _quoted(text: str) -> str:
    return text if re.fullmatch(r"[\w.=-]+", text) else "'" + text.replace("'", "'\\''") + "'"


def _names_of(name: str) -> Iterable[tuple[int, str]]:
    """Yield what a field may be called, the surest first: its name, without words that say nothing of it."""
    parent, dot, _ = name.rpartition(".")
    last = plain_name(name)
    if dot and last in _WRAPPERS:
        last = f"{plain_name(parent)}_{last}" if last in ("id", "cents") else plain_name(parent)
    yield 0, last
    words = last.split("_")
    rest = [word for word in words if word not in SECTIONS["qualifiers"] and not word.isdigit()]
    if rest and rest != words:
        yield 1, "_".join(rest)


def _named(role: str, free: Profiles, found: Mapping[str, str]) -> str | None:
    """Return the field that a role's names tell. Raises RolesError where two are as likely and say different things."""
    ranks = {word: at for at, word in enumerate(SECTIONS[role])}
    hits: list[tuple[int, int, int, float, str]] = []
    for name, profile in free.items():
        if name not in found.values() and _fits(role, profile):
            told = [(way, ranks[each]) for way, each in _names_of(name) if each in ranks]
            hits += [(*told[0], name.count("."), -profile.filled, name)] if told else []
    if not hits:
        return None
    first, *others = sorted(hits)
    if role == "price":  # one that every product has, before one of those on sale
        first = min(hits, key=lambda hit: (hit[3] > 0.8 * min(each[3] for each in hits), hit))
    elif role == "title" and others and others[0][:3] == first[:3]:
        raise RolesError(_question(role, [first[4], others[0][4]]))
    if role == "title" and (rival := _rival(first[4], free)):
        raise RolesError(_question(role, [first[4], rival]))
    return first[4]


def _rival(first: str, free: Profiles) -> str | None:
    """Return another field that is named like a title and holds other texts, as long and as different as titles are."""
    for name, one in free.items():
        if name != first and "." not in name and plain_name(name) in SECTIONS["title"][:5] and one.is_text:
            same = len(one.values.keys() & free[first].values.keys())
            many = len(one.values) > 0.8 * one.filled and one.words > 2 * one.filled
            if many and same < 0.5 * len(one.values):
                return name
    return None


def _fits(role: str, profile: FieldProfile) -> bool:
    if role in ("price", "sale"):
        return profile.numbers > 0.5 * profile.filled or profile.money[0] > 0.5
    if role == "rating":  # "4.5 out of 5 stars"
        return profile.numbers > 0.5 * profile.filled or profile.money[0] >= 0.5
    if role == "currency":
        return all(code_of(value.upper()) for value in list(profile.values)[:READ])
    if role in ("title", "brand"):
        return profile.is_text
    return role in ("image", "stock", "newest", "best_selling", "id") or profile.urls < 0.5 * profile.filled


def _title(free: Mapping[str, FieldProfile], found: Mapping[str, str]) -> str:
    """Return the one field of short texts that are nearly all different."""
    hits = [
        name
        for name, one in free.items()
        if name not in found.values() and one.is_text and len(one.values) > 0.8 * min(one.filled, MOST_DISTINCT)
        and 2 * one.filled <= one.words <= 25 * one.filled
    ]  # fmt: skip
    if len(hits) != 1:
        raise RolesError(_question("title", hits or list(free)))
    return hits[0]


def _question(role: str, names: Iterable[str]) -> str:
    choices = list(names)
    return f"which field is the {role}: {', '.join(choices)}? Say so with --map {_quoted(f'{choices[0]}={role}')}"


def _is_bookkeeping(name: str) -> bool:
    """Tell whether a name says that a field is the system's own, and no shopper asks for it."""
    if facet_of_field(name) != "feature":
        return False
    if plain_name(name) in SECTIONS["description"]:
        return True
    words = plain_name(name).split("_")
    return any(word in SECTIONS["bookkeeping"] for word in (words[0], words[-1], "_".join(words)))


def _describes(name: str, profile: FieldProfile, notation: Notation) -> bool:
    values = profile.values
    flags = sum(count for value, count in values.items() if value.lower() in ("yes", "no", "y", "n", "true", "false"))
    is_flag = profile.numbers + flags > 0.9 * profile.filled and facet_of_field(name) == "feature" and len(values) < 3
    is_money = bool(_MONEY.search(plain_name(name)))
    urls = profile.urls >= 0.5 * profile.filled
    parts = {part for value in values for part in notation.parts(value)}
    is_system = all(part.lower() in _SYSTEM for part in parts)
    is_category_id = not profile.is_text and any(_CATEGORY.match(each) for _, each in _names_of(name))
    left_out = is_flag or is_money or urls or is_system or is_category_id
    return profile.is_closed(notation) and len(parts) > 1 and not left_out


def _categories(left: Profiles, sample: Sequence[Mapping[str, Any]], title: str) -> tuple[str, ...]:
    """Return the fields of categories from the top: a value of a lower one tells that of the upper."""
    named = [name for name, one in left.items() if one.filled >= 0.5 * len(sample) and _is_category(name, one)]
    sure = [name for name in named if plain_name(name) not in _LESS_SURE] or named
    paths = [name for name in sure or _trees(left) if notation_of(left[name].values, is_path=True).level]
    if paths:
        best = max(paths, key=lambda name: len(left[name].values))
        if all(len(left[name].values) <= 2 * len(left[best].values) for name in sure):
            return (best,)
    if not sure:
        return ()
    chain = [min(sure, key=lambda name: len(left[name].values))]
    for name in sorted(named, key=lambda name: len(left[name].values)):
        finer = len(left[name].values) > len(left[chain[-1]].values)
        if finer and tells(name, chain[-1], sample) and (name in sure or is_said(name, title, sample)):
            chain.append(name)
    return tuple(chain)


def _trees(left: Profiles) -> list[str]:
    """Return the fields that hold paths ("Home > Lamps"), whatever they are called."""
    return [name for name, one in left.items() if one.is_text and sum(" > " in value for value in one.values)
            > 0.8 * len(one.values) and 1 < len(one.values) <= max(30, 0.5 * one.filled)]  # fmt: skip


def _is_category(name: str, one: FieldProfile) -> bool:
    """Tell whether a field is named as a category and holds names that repeat, none of a system's own words."""
    is_named = any(_CATEGORY.match(each) or each in SECTIONS["category"] for _, each in _names_of(name))
    if not is_named or "@" in name or not one.is_text or all(value.lower() in _SYSTEM for value in one.values):
        return False
    notation = notation_of(one.values, is_path=True)
    parts = {part for value in one.values for part in notation.parts(value)}
    return len(parts) <= max(30, 0.5 * one.filled)


_SYSTEM: Final = frozenset(SECTIONS["systems' own words that are no category"])
