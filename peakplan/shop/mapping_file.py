"""The mapping of docs/search.md, learnt: which field holds what, its values, and what shoppers call them."""

from collections import Counter, defaultdict
from collections.abc import Iterator
from functools import cache
from typing import Any, Final

import yaml
from peakplan_client.mapping import CatalogueMapping, normal
from peakplan_client.wording import kind_groups

from peakplan.shop.counting import Path, by_first
from peakplan.shop.fields import facet_of_field, is_in_stock, plain_name, words_of_code
from peakplan.shop.lexicon import Learnt, category_id
from peakplan.shop.roles import Roles
from peakplan.shop.texts import key
from service.planner.spelling import words as word_list

_OWN: Final = 0.6  # of the titles that call a thing so those of a category: it is one of its names
_OF_CATEGORY: Final = 0.01  # of a category's titles
_FEWEST: Final = 2
_MOST_VALUES: Final = 20_000  # of a field: past that it is taken to hold what shoppers say
_MOST_NAMES: Final = 40
_TELLING: Final = 6  # names of a category that tell which group of synonyms is meant
_OF_VERTICAL: Final = 0.12  # of a category's things those of a vertical
# As tuned for the first mapping of the sample shop (docs/search.md).
_BOOSTS: Final = {"type": 0.6, "brand": 0.5, "audience": 0.5, "color": 0.4, "material": 0.4}
_OF_TITLES: Final = 5.0  # boost of kinds that titles tell: their words are in the text as often as not
_IN_TEXT: Final = ("color", "material", "feature", "occasion", "theme", "shape")
_SCALES: Final = (5, 10, 100)  # of ratings
_ONE_CURRENCY: Final = 0.98  # of the prices that say theirs


def learnt_mapping(learnt: Learnt, roles: Roles, index: str, currency: str | None) -> tuple[dict[str, Any], list[str]]:
    """Return the mapping, which is valid, and what the catalogue has and the mapping cannot say."""
    notes: list[str] = []
    levels = list(roles.categories)
    text: dict[str, float] = {roles.title: 4}
    text |= {field: 3 if field == levels[-1] else 1 for field in reversed(levels)}
    text |= {field: weight for field, weight in ((roles.brand, 2), (roles.description, 1)) if field}
    mapping: dict[str, Any] = {"index": index, "text": text}
    mapping["exclude_text"] = [field for field in text if field not in levels[:-1]]
    mapping["facets"] = _facets(learnt, roles, levels)
    is_field = levels and (len(levels) == 1 or not roles.of(levels[0]).level)  # else no value of it is a top alone
    if is_field and (verticals := _verticals(learnt, roles)):
        mapping["vertical"] = {"field": levels[0], "boost": 0.2, "values": verticals}
    if field := roles.price:
        mapping["price"] = {"field": field, **({"currency": currency} if currency else {})}
        notes += _currencies(learnt, roles, mapping["price"])
        mapping["sort"] = {f"price_{order}": {"field": field, "order": order} for order in ("asc", "desc")}
    if field := roles.rating:
        most = max(learnt.counts.ratings, default=5)
        mapping["rating"] = {"field": field, "best": next((best for best in _SCALES if best >= most), most)}
        mapping.setdefault("sort", {})["rating"] = {"field": field, "order": "desc"}
    for sort in ("newest", "best_selling"):
        if field := getattr(roles, sort):
            order = "asc" if "rank" in plain_name(field) or "rang" in plain_name(field) else "desc"
            mapping.setdefault("sort", {})[sort] = {"field": field, "order": order}
    offers: dict[str, Any] = {}
    if (field := roles.stock) and (offer := _in_stock(learnt)):
        offers["in_stock"] = {"field": field, **offer}
    if roles.stock and (unknown := [value for value in learnt.counts.stocks if is_in_stock(value) is None][:5]):
        notes.append(f"{roles.stock} holds {', '.join(unknown)}: these count as not in stock")
    if roles.sale:
        offers["on_sale"] = {"field": roles.sale, "min": 0.01}
    if offers:
        mapping["offers"] = offers
    CatalogueMapping.model_validate(mapping)
    return mapping, list(dict.fromkeys(notes))


def _currencies(learnt: Learnt, roles: Roles, price: dict[str, Any]) -> Iterator[str]:
    """Yield a note if prices have several currencies; put the field that names them into the mapping."""
    found = learnt.counts.currencies
    if len(found) < 2 or found.most_common(1)[0][1] >= _ONE_CURRENCY * found.total():
        return
    counts = ", ".join(f"{code} ({count:,})" for code, count in found.most_common())
    if roles.currency:
        price["currency_field"] = roles.currency
        yield f"{roles.price} is in {counts}: a bound compares products in {price.get('currency')} only"
    else:
        yield (f"{roles.price} is in {counts} and no field says which: write the currency into one, as enriched.jsonl "
               "has it, and name it as price.currency_field, or a bound compares pounds with dollars")  # fmt: skip


def _facets(learnt: Learnt, roles: Roles, levels: list[str]) -> dict[str, Any]:
    facets: dict[str, Any] = {}
    if levels:
        boost = _OF_TITLES if roles.kinds else _BOOSTS["type"]
        facets["type"] = {"field": levels[-1], "boost": boost, "values": _kinds(learnt, roles)}
        if ids := _ids(learnt):
            facets["type"]["ids"] = ids
    if field := roles.brand:
        facets["brand"] = _facet("brand", field, learnt.brand_of)
    filled = {name: values.total() for name, values in by_first(learnt.counts.values).items()}
    for field in sorted(roles.attributes, key=lambda name: -filled.get(name, 0)):
        facet = facet_of_field(field)
        if facet not in facets and facet != "feature" and field in learnt.value_of:
            facets[facet] = _facet(facet, field, learnt.value_of[field])
    for facet in _IN_TEXT:
        facets.setdefault(facet, {"boost": _BOOSTS.get(facet, 0.3)})
    return facets


def _facet(facet: str, field: str, value_of: dict[str, str]) -> dict[str, Any]:
    """Return a facet: its field's values as written, each with the other spellings and names of the value."""
    found: dict[str, Any] = {"field": field, "boost": _BOOSTS.get(facet, 0.3)}
    if len(value_of) > _MOST_VALUES:
        return found
    names: dict[str, list[str]] = defaultdict(list)
    for written, right in value_of.items():
        names[right].append(written)
    found["values"] = {}
    for written, right in sorted(value_of.items()):
        known = {key(written).replace(" ", "")}
        others = [*names[right], *words_of_code(facet, right)]
        found["values"][written] = [
            other for other in dict.fromkeys(others) if key(other).replace(" ", "") not in known
        ]
    return found


def _kinds(learnt: Learnt, roles: Roles) -> dict[str, list[str]]:
    """Return the values of the field of the last category with the names of what is in each."""
    counts, value_of = learnt.counts, _values(learnt)
    totals: Counter[str] = Counter()
    size: Counter[str] = Counter()
    by_value: dict[str, Counter[str]] = defaultdict(Counter)
    for (head, path), count in counts.heads.items():
        totals[head] += count
        by_value[value_of[path]][head] += count
    for path, count in counts.paths.items():
        size[value_of[path]] += count
    found: dict[str, dict[str, None]] = {}
    last: dict[str, str] = {}
    for path, leaf in counts.leaves:
        last[leaf] = path[-1]
    for value in sorted(last):
        named = {last[value]: None} if key(last[value]) != key(value) else {}
        mine = by_value.get(value, Counter())
        for head, count in mine.most_common(_MOST_NAMES):
            own = count >= _OWN * totals[head] and count >= max(_FEWEST, _OF_CATEGORY * size[value])
            if own and head != key(value) and not _says_nothing(head, mine, totals):
                named[head] = None
        named |= dict.fromkeys(roles.kinds[value].names if value in roles.kinds else ())
        found[value] = named
    _add_synonyms(found)
    return {value: list(named) for value, named in found.items()}


def _values(learnt: Learnt) -> dict[Path, str]:
    """Return what the field of the last category most often holds, by category."""
    of_path: dict[Path, Counter[str]] = defaultdict(Counter)
    for (path, leaf), count in learnt.counts.leaves.items():
        of_path[path][leaf] += count
    return {path: leaves.most_common(1)[0][0] for path, leaves in of_path.items()}


def _ids(learnt: Learnt) -> dict[str, str]:
    """Return the values of categories by id, where others of another value have the same name.

    Where the value is the same, too ("boots", below fields that say whose), no value of this field tells them apart.
    """
    called: dict[tuple[str, ...], dict[Path, str]] = defaultdict(dict)
    for path, value in _values(learnt).items():
        if path:
            called[normal(path[-1])][path] = value
    shared = (paths for paths in called.values() if len(set(paths.values())) > 1)
    return {category_id(path): value for paths in shared for path, value in sorted(paths.items())}


def _says_nothing(head: str, mine: Counter[str], totals: Counter[str]) -> bool:
    """Tell whether a pair of words says no more than its last one does: "leather backpack"."""
    last = head.split()[-1]
    return " " in head and last in mine and mine[last] >= _OWN * totals[last]


def _add_synonyms(found: dict[str, dict[str, None]]) -> None:
    """Add a kind's other English names, unless the shop uses them for something else."""
    taken = {key(name) for value, named in found.items() for name in (value, *named)}
    for group in synonyms():
        keys = {key(name): name for name in group}
        for value, named in found.items():
            own = [key(value), *map(key, named)]
            if not keys.keys().isdisjoint(own[:_TELLING]):
                named |= {name: None for short, name in keys.items() if short not in taken}


@cache
def synonyms() -> list[list[str]]:
    """Return the groups of names for a kind of thing, narrower ones last."""
    return [[*same, *narrower] for same, narrower in kind_groups()]


def _verticals(learnt: Learnt, roles: Roles) -> dict[str, list[str]]:
    """Return the values of the upper category's field by the vertical that the things in them are of.

    A field that holds whole paths ("Kitchen > Kettles") has a value for each of them.
    """
    votes: dict[str, Counter[str]] = defaultdict(Counter)
    known = word_list().verticals
    for (head, path), count in learnt.counts.heads.items():
        if " " not in head and (vertical := known.get(head) or known.get(f"{head}s")):
            votes[path[0]][vertical] += count
    held: dict[str, set[str]] = defaultdict(set)
    for path, leaf in learnt.counts.leaves:
        held[path[0]].add(leaf if len(roles.categories) == 1 else path[0])
    found: dict[str, list[str]] = defaultdict(list)
    for top, counter in sorted(votes.items()):
        for vertical, count in counter.items():
            if count >= _OF_VERTICAL * counter.total():
                found[vertical] += sorted(held[top])
    return dict(sorted(found.items()))


def _in_stock(learnt: Learnt) -> dict[str, Any] | None:
    values = [value for value in learnt.counts.stocks if is_in_stock(value)]
    numbers = sum(count for value, count in learnt.counts.stocks.items() if value.replace(".", "").isdigit())
    if numbers > 0.9 * learnt.counts.stocks.total() and not learnt.counts.stocks.keys() <= {"0", "1"}:
        return {"min": 1}
    if not values:
        return None
    return {"values": [value.lower() == "true" if value.lower() in ("true", "false") else value for value in values]}


def as_yaml(mapping: dict[str, Any], command: str) -> str:
    """Return the file's text."""
    head = f"# Learnt by `{command}`. docs/search.md explains each key.\n"
    return head + yaml.safe_dump(mapping, sort_keys=False, allow_unicode=True, width=120, default_flow_style=None)
