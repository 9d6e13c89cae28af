"""How complete and how consistent a catalogue is, chunk by chunk: what the report shows."""

from collections import Counter, defaultdict
from dataclasses import dataclass, field
from math import log
from statistics import median
from typing import Any, Final

from peakplan.shop.counting import heads
from peakplan.shop.lexicon import Learnt
from peakplan.shop.products import Product
from peakplan.shop.roles import Roles
from peakplan.shop.texts import key
from service.planner.spelling import is_known

_FAR: Final = 6.0  # median deviations of a category's logarithmic prices
_LEAST_SPREAD: Final = 0.15
_ENOUGH: Final = 8  # prices of a category that say what is usual
_MOST: Final = 0.5  # of a category's products that have an attribute: the others lack it
_SHOWN: Final = 200  # examples of each kind
_MOST_PRICES: Final = 2000  # of a category that tell its median


@dataclass(slots=True)
class Findings:
    """What is wrong with which products, by kind: counts, and examples for people."""

    products: int = 0
    left_out: int = 0  # fields that matter
    missing: dict[str, Counter[str]] = field(default_factory=lambda: defaultdict(Counter))  # by field, by category
    in_category: Counter[str] = field(default_factory=Counter)
    other_way: Counter[str] = field(default_factory=Counter)  # by field
    counts: Counter[str] = field(default_factory=Counter)  # by kind
    examples: dict[str, list[str]] = field(default_factory=lambda: defaultdict(list))

    def note(self, kind: str, example: str) -> None:
        self.counts[kind] += 1
        if len(self.examples[kind]) < _SHOWN:
            self.examples[kind].append(example)


class Judge:
    """Judges products; `prices` are first gathered from all of them."""

    def __init__(self, learnt: Learnt, roles: Roles) -> None:
        self._learnt = learnt
        self._roles = roles
        self._fields = [name for name in (roles.brand, roles.price, roles.rating, *roles.attributes) if name]
        self._expected = _expected(learnt)
        self._prices: dict[str, list[float]] = defaultdict(list)
        self._usual: dict[str, tuple[float, float]] = {}
        self._titles: set[int] = set()
        self._ids: set[int] = set()
        self._kinds = {head for head, _ in learnt.counts.heads}
        self.findings = Findings(left_out=len(roles.unused))

    def gather(self, one: Product) -> None:
        """Take a price into what is usual in its category."""
        prices = self._prices[one.leaf]
        if one.price is not None and one.price > 0 and len(prices) < _MOST_PRICES:
            prices.append(log(one.price))

    def settle(self) -> None:
        """Say what is usual; after `gather`, before `judge`."""
        for leaf, prices in self._prices.items():
            if len(prices) >= _ENOUGH:
                middle = median(prices)
                spread = median(abs(price - middle) for price in prices)
                self._usual[leaf] = (middle, max(spread, _LEAST_SPREAD))
        self._prices.clear()

    def judge(self, one: Product, rows: list[dict[str, Any]]) -> None:
        """Judge a product; `rows` are what was found to enrich it."""
        found = self.findings
        found.products += 1
        top = one.path[0] if one.path else "(none)"
        found.in_category[top] += 1
        held = {self._roles.brand: one.brand, self._roles.price: one.price, self._roles.rating: one.rating}
        for name in self._fields:
            if not (held[name] if name in held else one.attributes.get(name)) and (
                name in held or (name, top) in self._expected
            ):
                found.missing[name][top] += 1
        if not one.path and self._roles.categories:
            found.note("no category", f"{one.id}: {one.title}")
        for row in rows:
            if "was" in row:
                found.other_way[row["field"]] += 1
                found.note("written otherwise", f"{one.id}: {row['field']} {row['was']!r} means {row['value']!r}")
        self._price(one)
        self._same(one)
        if not self._can_be_found(one):
            found.note("no plan can find", f"{one.id}: {one.title}")

    def _price(self, one: Product) -> None:
        if one.price is None:
            self.findings.note("no price that is read", f"{one.id}: {one.title}")
            return
        if one.price <= 0:
            self.findings.note("suspicious price", f"{one.id}: {one.price:g} for {one.title}")
        elif one.leaf in self._usual:
            middle, spread = self._usual[one.leaf]
            if abs(log(one.price) - middle) > _FAR * spread:
                usual = 2.718281828**middle
                self.findings.note(
                    "suspicious price", f"{one.id}: {one.price:g} for {one.title}; usual in {one.leaf}: {usual:.2f}"
                )

    def _same(self, one: Product) -> None:
        mark = hash((key(one.title), one.brand, one.price, str(sorted(one.attributes.items()))))
        if mark in self._titles:
            self.findings.note("duplicate", f"{one.id}: {one.title}")
        self._titles.add(mark)
        if (number := hash(one.id)) in self._ids:
            self.findings.note("repeated id", f"{one.id}: {one.title}, line {one.line}")
        self._ids.add(number)

    def _can_be_found(self, one: Product) -> bool:
        """Tell whether anything says what a product is: a category, or a title with a kind or a word that is known."""
        if one.path:
            return True
        if any(head in self._kinds for head in heads(one.title)):
            return True
        return any(len(word) > 2 and word.isalpha() and is_known(word) for word in one.title.lower().split())


def _expected(learnt: Learnt) -> set[tuple[str, str]]:
    """Return the attributes that most products of a top category have: screws have no voltage, and lack none."""
    counts = learnt.counts
    products: Counter[str] = Counter({"(none)": counts.products["all"] - counts.products["category"]})
    filled: Counter[tuple[str, str]] = Counter()
    for path, count in counts.paths.items():
        products[path[0]] += count
    for (name, path), count in counts.filled.items():
        filled[name, path[0] if path else "(none)"] += count
    return {key for key, count in filled.items() if count >= _MOST * products[key[1]]}
