"""What of a plan a product meets, what it does not, and what its catalogue does not tell.

A wish is judged by what the translation makes of it (`searching`), so that what is said of a product is what it was
searched by. Where the catalogue has no such field, or the product no value in it, nobody knows.
"""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Literal

from peakplan_client.kinds import KIND
from peakplan_client.mapping import CatalogueMapping, normal
from peakplan_client.plan import Part, Plan, Price
from peakplan_client.search import AnyOf, Filter, NoneOf, NotInText, Range, Search, Wanted
from peakplan_client.searching import searches

Sort = Literal["kind", "facet", "price", "rating", "offer", "exclusion"]
_ANY = "x"  # a query, without which nothing is searched


@dataclass(frozen=True, slots=True)
class Wish:
    """One thing that a shopper asked for; `says` has it in their words."""

    kind: Sort
    says: str


@dataclass(frozen=True, slots=True)
class Judged:
    """The wishes of a plan, as one product has them: `unknown` are those that its catalogue does not tell."""

    met: tuple[Wish, ...] = ()
    unmet: tuple[Wish, ...] = ()
    unknown: tuple[Wish, ...] = ()


_Conditions = tuple[Filter | Wanted, ...]
_Wishes = list[tuple[Wish, _Conditions]]


class Wishes:
    """The wishes of one plan, in terms of a mapping. Of several things a product is judged as the one that it is."""

    def __init__(self, plan: Plan, mapping: CatalogueMapping) -> None:
        common = list(_of_plan(plan, mapping))
        parts = [list(_of_part(part, mapping)) for part in plan.parts] or [[]]
        self._lists: list[_Wishes] = [list(dict.fromkeys([*common, *part])) for part in parts]

    def judge(self, product: Mapping[str, Any]) -> Judged:
        """Return what of the wishes a product meets, given its fields as an engine returned them."""
        judged = [_judge(product, each) for each in self._lists]
        return max(judged, key=lambda each: (_is_of_kind(each), len(each.met) - len(each.unmet)))


def _is_of_kind(judged: Judged) -> bool:
    return any(wish.kind == "kind" for wish in judged.met)


def _judge(product: Mapping[str, Any], wishes: _Wishes) -> Judged:
    told: dict[bool | None, list[Wish]] = {True: [], False: [], None: []}
    for wish, conditions in wishes:
        told[_meets(product, wish, conditions)].append(wish)
    return Judged(tuple(told[True]), tuple(told[False]), tuple(told[None]))


def _meets(product: Mapping[str, Any], wish: Wish, conditions: _Conditions) -> bool | None:
    """Tell whether a product meets a wish; None where its catalogue does not tell."""
    if wish.kind == "kind":
        kinds = [each for each in conditions if isinstance(each, Wanted) and each.is_kind]
        if not any(_holds(product, each) for each in kinds):
            return False
        # A handbag is a bag, and nobody knows whether it is a sleeping bag, unless its text says so.
        return all(_holds(product, each) for each in conditions if each not in kinds) or None
    held = [_holds(product, each) for each in conditions]
    if wish.kind == "facet":  # each condition is another place that may tell
        if True in held:
            return True
        return False if False in held else None
    if False in held:
        return False
    return True if held and None not in held else None


def _holds(product: Mapping[str, Any], condition: Filter | Wanted) -> bool | None:
    if isinstance(condition, Wanted):
        if condition.holds(product):
            return True
        # That a text does not say "red" is no sign that the thing is not; what it is stands in its name.
        return False if condition.is_kind or (condition.field and _values(product, condition.field)) else None
    if isinstance(condition, NotInText):
        texts = [normal(str(product.get(field) or "")) for field in condition.fields]
        return not any(_has(text, normal(condition.words)) for text in texts)
    values = _values(product, condition.field)
    if isinstance(condition, NoneOf):
        return not {normal(str(value)) for value in values} & {normal(each) for each in condition.values}
    if not values:
        return None
    if isinstance(condition, AnyOf):
        return bool({normal(str(value)) for value in values} & {normal(str(each)) for each in condition.values})
    return any(_within(value, condition) for value in values)


def _within(value: Any, bounds: Range) -> bool:
    return (bounds.min is None or value >= bounds.min) and (bounds.max is None or value <= bounds.max)


def _values(product: Mapping[str, Any], field: str) -> list[Any]:
    """Return the values of a field, which may be a list or none."""
    value = product.get(field)
    return list(value) if isinstance(value, list | tuple) else [] if value is None else [value]


def _has(text: Sequence[str], phrase: Sequence[str]) -> bool:
    return any(tuple(text[at : at + len(phrase)]) == tuple(phrase) for at in range(len(text) - len(phrase) + 1))


def _of_plan(plan: Plan, mapping: CatalogueMapping) -> Iterator[tuple[Wish, _Conditions]]:
    yield from _of_part(plan, mapping)
    if plan.rating.min is not None:
        found = _search(Plan(rating=plan.rating, queries=[_ANY]), mapping).filters
        yield Wish("rating", f"rated {plan.rating.min:g} of 5 or better"), found
    for offer in plan.offers:
        found = _search(Plan(offers=[offer], queries=[_ANY]), mapping).filters
        yield Wish("offer", offer.replace("_", " ")), found


def _of_part(part: Part, mapping: CatalogueMapping) -> Iterator[tuple[Wish, _Conditions]]:
    for facet, values in part.facets.items():
        for said in values:
            wanted = _search(Plan(facets={facet: [said]}, queries=[_ANY]), mapping).wanted
            if facet == KIND:
                yield Wish("kind", said), (*wanted, *_besides(said, mapping))
            else:
                yield Wish("facet", f"{facet.replace('_', ' ')}: {said}"), wanted
    if part.price.min is not None or part.price.max is not None:
        yield Wish("price", _amounts(part.price)), _search(Plan(price=part.price, queries=[_ANY]), mapping).filters
    for facet, values in part.exclude.items():
        for said in values:
            refused = _search(Plan(exclude={facet: [said]}, queries=[_ANY]), mapping).filters
            yield Wish("exclusion", f"not {said}"), refused


def _besides(said: str, mapping: CatalogueMapping) -> Iterator[Wanted]:
    """Yield what a text must say of a kind whose name the mapping has only in part: "sleeping" of "sleeping bag"."""
    kind = mapping.facets.get(KIND)
    if kind is None or not kind.exact(said):
        for word in normal(said)[:-1]:
            yield Wanted(None, (word,), tuple(mapping.text), False)


def _search(plan: Plan, mapping: CatalogueMapping) -> Search:
    return searches(plan, mapping).searches[0]


def _amounts(price: Price) -> str:
    """Return "20 to 40 USD", "up to 40 USD" or "from 20"; without a currency where the shopper named none."""
    currency = f" {price.currency}" if price.currency else ""
    if price.min is not None and price.max is not None:
        return f"{price.min:g} to {price.max:g}{currency}"
    return f"up to {price.max:g}{currency}" if price.max is not None else f"from {price.min:g}{currency}"
