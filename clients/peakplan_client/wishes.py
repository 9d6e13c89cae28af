"""Which wishes of a plan a product meets, which it does not, and which its catalogue leaves unknown.

A wish is met only where a field or the product's own words say so (`wording`): that a text does not name leather is no
sign that the thing has none. Where neither tells, the wish is unknown.
"""

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any, Literal

from peakplan_client import wording
from peakplan_client.mapping import CatalogueMapping, FacetMapping, normal, words
from peakplan_client.plan import Part, Plan, Price
from peakplan_client.search import AnyOf, Filter, NoneOf, NotInText, Range, Search
from peakplan_client.searching import KIND, searches

Sort = Literal["kind", "facet", "price", "rating", "offer", "exclusion"]
Product = Mapping[str, Any]
Told = bool | Literal["perhaps"] | None  # perhaps: words name it, of a part of the product or of what is beside it
Test = Callable[[Product], Told]  # None: nothing tells
_ANY = "x"  # a query, without which nothing is searched
_LONGEST = 16  # words of a kind's name: none has more, and a wish may have thousands
_BESIDE = frozenset("a an the that which is are made of in with for from".split())  # words that lead to what is wanted


@dataclass(frozen=True, slots=True)
class Wish:
    """One thing that a shopper asked for; `says` has it in their words."""

    kind: Sort
    says: str


@dataclass(frozen=True, slots=True)
class Judged:
    """The wishes of a plan, judged for one product; the catalogue does not tell about `unknown` ones."""

    met: tuple[Wish, ...] = ()
    unmet: tuple[Wish, ...] = ()
    unknown: tuple[Wish, ...] = ()
    perhaps: tuple[Wish, ...] = ()  # of `unknown`, what the product's words or field tell, and others against it

    @property
    def rank(self) -> tuple[int, int]:
        """The sort key of products: the kind first, then other wishes met minus those unmet."""
        kinds = [1 for wish in self.met if wish.kind == "kind"] or [0 for wish in self.unknown if wish.kind == "kind"]
        others = sum(wish.kind != "kind" for wish in self.met) - sum(wish.kind != "kind" for wish in self.unmet)
        return kinds[0] if kinds else -1, others

    @property
    def rank_of_sorted(self) -> tuple[int, int]:
        """The sort key within a sorted search: wishes that are perhaps met count as met."""
        unknown = tuple(wish for wish in self.unknown if wish not in self.perhaps)
        return replace(self, met=(*self.met, *self.perhaps), unknown=unknown).rank


class Wishes:
    """The wishes of one plan, in terms of a mapping. Of several things a product is judged as the one that it is."""

    def __init__(self, plan: Plan, mapping: CatalogueMapping) -> None:
        common = list(_of_plan(plan, mapping))
        parts = [list(_of_part(part, mapping)) for part in plan.parts] or [[]]
        self._lists = [dict([*common, *part]) for part in parts]

    @property
    def kinds(self) -> list[str]:
        """The kinds of things that are wanted, in the shopper's words."""
        return list(dict.fromkeys(wish.says for wishes in self._lists for wish in wishes if wish.kind == "kind"))

    def judge(self, product: Product) -> Judged:
        """Return what of the wishes a product meets, given its fields as an engine returned them."""
        return max((_judge(product, wishes) for wishes in self._lists), key=lambda each: each.rank)


def _judge(product: Product, wishes: Mapping[Wish, Test]) -> Judged:
    told: dict[Told, list[Wish]] = {True: [], False: [], None: [], "perhaps": []}
    for wish, test in wishes.items():
        told[test(product)].append(wish)
    perhaps = told["perhaps"]
    return Judged(tuple(told[True]), tuple(told[False]), (*perhaps, *told[None]), tuple(perhaps))


def _all(conditions: Sequence[Filter]) -> Test:
    """Return the test of a price, a rating or an offer: whether its filters let a product through."""

    def test(product: Product) -> bool | None:
        held = [_holds(product, each) for each in conditions]
        return False if False in held else True if held and None not in held else None

    return test


def _holds(product: Product, condition: Filter) -> bool | None:
    if isinstance(condition, NotInText):
        texts = [normal(str(product.get(field) or "")) for field in condition.fields]
        return False if any(_has(text, normal(condition.words)) for text in texts) else None
    if not (values := _values(product, condition.field)):
        return None
    if isinstance(condition, Range):
        return any(_within(value, condition) for value in values)
    named = bool({normal(str(value)) for value in values} & {normal(str(each)) for each in condition.values})
    return named if isinstance(condition, AnyOf) else not named


def _within(value: Any, bounds: Range) -> bool:
    return (bounds.min is None or value >= bounds.min) and (bounds.max is None or value <= bounds.max)


def _values(product: Product, field: str | None) -> list[Any]:
    """Return the values of a field, which may be a list or none."""
    value = product.get(field) if field else None
    return list(value) if isinstance(value, list | tuple) else [] if value is None else [value]


def _has(text: Sequence[str], phrase: Sequence[str]) -> bool:
    if phrase and phrase[0] not in text:  # most are not
        return False
    return any(tuple(text[at : at + len(phrase)]) == tuple(phrase) for at in range(len(text) - len(phrase) + 1))


class _Texts:
    """Which of a mapping's fields name a product, and which describe it; those of a facet do neither."""

    def __init__(self, mapping: CatalogueMapping) -> None:
        told = {facet.field for facet in mapping.facets.values()}
        heaviest = max(mapping.text.values())
        free = [field for field in mapping.text if field not in told] or list(mapping.text)
        self._named = [field for field in free if mapping.text[field] > heaviest / 2] or free[:1]
        self._described = [field for field in free if field not in self._named]

    def names(self, product: Product) -> list[str]:
        return [str(product.get(field) or "") for field in self._named]

    def descriptions(self, product: Product) -> list[str]:
        return [str(product.get(field) or "") for field in self._described]

    def all(self, product: Product) -> list[str]:
        return [*self.names(product), *self.descriptions(product)]


class _Kind:
    """The test of a kind of thing: the category's name, the end of the product's, what a description says it is."""

    def __init__(self, said: str, mapping: CatalogueMapping) -> None:
        self._facet = mapping.facets.get(KIND) or FacetMapping()
        self._texts = _Texts(mapping)
        thing, _, of = said.partition(" of ")
        self._wanted, self._of = normal(thing), normal(of)
        first = max(len(self._wanted) - _LONGEST, 0)
        self._heads = [self._wanted[at:] for at in range(first, len(self._wanted))]
        self._known = {normal(value) for value in self._facet.within(thing)} if self._facet.field else set()
        wanted = tuple("".join(each) for each in (self._wanted, *self._known))
        named = (each for each in map(normal, self._facet.values or ()) if each and each[-1] not in wording.SEVERAL)
        self._categories = {
            each for each in named if not any(name.endswith("".join(each)) for name in wanted)
        }  # a handbag is a bag

    def __call__(self, product: Product) -> Told:
        categories = {normal(str(value)) for value in _values(product, self._facet.field)}
        is_filed = bool(categories & wording.kinds_of(self._wanted))
        named = self._categories_of_names(product)
        if is_disputed := bool(named) and not categories & named:
            categories = named  # "Dining Chairs" are chairs, whatever they are filed under
        is_near = bool(categories & self._known)
        for head in self._heads:
            if wording.SEVERAL.issuperset(head):
                continue
            if self._is_called(product, head, categories, is_near=is_near):
                rest = (*self._wanted[: -len(head)], *self._of)
                if all(any(wording.says(text, word) for text in self._texts.all(product)) for word in rest):
                    return True
                return False if self._is_another(product) else None
        if is_filed and is_disputed:
            return "perhaps"
        # A category of which only a part is called so: what the name says decides.
        return None if is_near and not self._is_another(product) else False

    def _is_called(
        self, product: Product, kind: wording.Words, categories: set[wording.Words], *, is_near: bool
    ) -> bool:
        if categories & wording.kinds_of(kind) or any(
            wording.ends_a_name(name, kind) or (is_near and wording.begins_a_name(name, kind))
            for name in self._texts.names(product)
        ):
            return True
        descriptions = self._texts.descriptions(product) if is_near or not self._known else []
        return any(wording.calls_itself(text, kind) for text in descriptions)

    def _categories_of_names(self, product: Product) -> set[wording.Words]:
        """Return the categories whose own names end the product's; one that only counts ("set") is none."""
        return self._categories.intersection(
            end for name in self._texts.names(product) for end in wording.endings(name)
        )

    def _is_another(self, product: Product) -> bool:
        """Tell whether the name ends in one of the mapping's names for something else: skate shoe, not running shoe."""
        covered = {name for head in self._heads for name in wording.kinds_of(head)}
        for name in map(normal, self._texts.names(product)):
            ends = (name[at:] for at in range(len(name)))
            for end in ends if self._facet.values else ():
                if values := self._facet.exact(" ".join(end)):
                    return end not in covered and end not in map(normal, values)
        return False


class _Facet:
    """The test of another facet: its field where it has one, otherwise the product's words."""

    def __init__(self, facet: str, said: str, mapping: CatalogueMapping) -> None:
        self._facet, self._said, self._texts = facet, said, _Texts(mapping)
        found = mapping.facets.get(facet)
        self._field = found.field if found else None
        self._known = {normal(value) for value in found.within(said)} if found and found.field else set()

    def __call__(self, product: Product) -> Told:
        if self._known:
            held = {normal(str(value)) for value in _values(product, self._field)}
            if held:
                return bool(held & self._known)
        names, descriptions = self._texts.names(product), self._texts.descriptions(product)
        is_otherwise_named = wording.says_another(names, self._said, self._facet)
        if self._says(names) or (self._says(descriptions) and not is_otherwise_named):
            return True
        if self._says([*names, *descriptions], whole=False):
            return None if is_otherwise_named else "perhaps"
        is_another = self._facet == "color" and wording.says_another([*names, *descriptions], self._said, "color")
        return False if is_another else None

    def _says(self, texts: Sequence[str], *, whole: bool = True) -> bool:
        return any(wording.says(text, self._said, self._facet, whole=whole) for text in texts)


class _Exclusion:
    """The test of an exclusion: a field has another value, or the words name another material or colour."""

    def __init__(self, facet: str, said: str, mapping: CatalogueMapping) -> None:
        self._facet, self._said, self._texts = facet, said, _Texts(mapping)
        found = mapping.facets.get(facet)
        self._field = found.field if found else None
        self._refused = _search(Plan(exclude={facet: [said]}, queries=[_ANY]), mapping).filters
        self._kind = _Kind(said, mapping) if facet == KIND else None

    def __call__(self, product: Product) -> bool | None:
        held = [(each, _holds(product, each)) for each in self._refused]
        if any(told is False for _, told in held):
            return False
        if self._kind is not None:
            is_it = self._kind(product)
            return not is_it if isinstance(is_it, bool) else None
        # A field of another facet that has a value of this name tells nothing where the product has another one.
        if any(told and isinstance(each, NoneOf) and each.field == self._field for each, told in held):
            return True
        return True if wording.says_another(self._texts.all(product), self._said, self._facet) else None


def _of_plan(plan: Plan, mapping: CatalogueMapping) -> Iterator[tuple[Wish, Test]]:
    yield from _of_part(plan, mapping)
    if plan.rating.min is not None:
        found = _search(Plan(rating=plan.rating, queries=[_ANY]), mapping).filters
        yield Wish("rating", f"rated {plan.rating.min:g} of 5 or better"), _all(found)
    for offer in plan.offers:
        found = _search(Plan(offers=[offer], queries=[_ANY]), mapping).filters
        yield Wish("offer", offer.replace("_", " ")), _all(found)


def _of_part(part: Part, mapping: CatalogueMapping) -> Iterator[tuple[Wish, Test]]:
    for facet, values in part.facets.items():
        for said in filter(words, map(_bare, values)):
            if facet == KIND:
                yield Wish("kind", said), _Kind(said, mapping)
            else:
                yield Wish("facet", f"{facet.replace('_', ' ')}: {said}"), _Facet(facet, said, mapping)
    if part.price.min is not None or part.price.max is not None:
        found = _search(Plan(price=part.price, queries=[_ANY]), mapping).filters
        yield Wish("price", _amounts(part.price)), _all(found)
    for facet, values in part.exclude.items():
        for said in filter(words, map(_bare, values)):
            yield Wish("exclusion", f"not {said}"), _Exclusion(facet, said, mapping)


def _bare(said: str) -> str:
    """Return a wish without the words that lead to it: "waterproof" of "that is waterproof"."""
    parts = said.split()
    first = next((at for at, word in enumerate(parts) if word.casefold() not in _BESIDE), 0)
    return " ".join(parts[first:])


def _search(plan: Plan, mapping: CatalogueMapping) -> Search:
    return searches(plan, mapping).searches[0]


def _amounts(price: Price) -> str:
    """Return "20 to 40 USD", "up to 40 USD" or "from 20"; without a currency where the shopper named none."""
    currency = f" {price.currency}" if price.currency else ""
    if price.min is not None and price.max is not None:
        return f"{price.min:g} to {price.max:g}{currency}"
    return f"up to {price.max:g}{currency}" if price.max is not None else f"from {price.min:g}{currency}"
