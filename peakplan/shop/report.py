"""How complete and how consistent a catalogue is, and report.html: shares, a score, what to mend first; no scripts."""

import html
from collections import Counter, defaultdict
from collections.abc import Sequence
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
        """Count a price toward the usual prices of its category."""
        prices = self._prices[one.leaf]
        if one.price is not None and one.price > 0 and len(prices) < _MOST_PRICES:
            prices.append(log(one.price))

    def settle(self) -> None:
        """Work out the usual prices. Call it after `gather` and before `judge`."""
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


# What each kind of finding costs of the score, for all products having it.
_COSTS: Final = {
    "no category": 30, "no plan can find": 25, "written otherwise": 15, "suspicious price": 15, "duplicate": 15,
    "no price that is read": 25, "repeated id": 15,
}  # fmt: skip
_MISSING: Final = 40  # for every field of every product missing
_LEFT_OUT: Final = 10  # for a field that matters and is not read
_MENDS: Final = {
    "no category": "name the categories; enriched.jsonl has a guess with its confidence for each",
    "no plan can find": "write titles that say what the thing is",
    "written otherwise": "write one value one way; enriched.jsonl has the usual one",
    "suspicious price": "check these prices: they are far from what is usual in their category, or not above 0",
    "no price that is read": "name the field of the price with --map FIELD=price, or write prices as numbers",
    "repeated id": "give every product an id of its own",
    "duplicate": "sell one product once: these have the title, brand, price and attributes of another",
}
_STYLE: Final = """body{font:16px/1.5 system-ui,sans-serif;max-width:60rem;margin:2rem auto;padding:0 1rem;color:#123}
table{border-collapse:collapse}td,th{padding:.2rem .8rem;border-bottom:1px solid #cbd2d9;text-align:left}
.score{font-size:3rem;font-weight:600}details li{overflow-wrap:anywhere}
@media (prefers-color-scheme:dark){body{background:#1f2933;color:#f5f7fa}}"""
_ROWS: Final = 25  # of a table


def score(found: Findings) -> float:
    """Return how good the data is, from 0 to 100."""
    lost: float = sum(cost * found.counts[kind] / found.products for kind, cost in _COSTS.items())
    lost += _LEFT_OUT * found.left_out
    if found.missing:
        absent = sum(sum(by.values()) for by in found.missing.values()) / (found.products * len(found.missing))
        lost += _MISSING * absent
    return round(max(0.0, 100 - lost), 1)


def mend_first(found: Findings) -> list[tuple[float, str]]:
    """Return the things to mend, ordered by how much each would add to the score."""
    gains = [(cost * found.counts[kind] / found.products, _MENDS[kind]) for kind, cost in _COSTS.items()]
    for name, by in found.missing.items():
        worst = max(by, key=lambda top: by[top])
        gain = _MISSING * sum(by.values()) / (found.products * len(found.missing))
        gains.append((gain, f"fill {name}: {sum(by.values()):,} products lack it, most of them in {worst}"))
    return sorted((gain, text) for gain, text in gains if gain >= 0.05)[::-1]


def render(found: Findings, same: Sequence[tuple[str, str, list[str]]], notes: Sequence[str], source: str) -> str:
    """Return the page; `same` are field, value, and the ways in which it is also written."""
    points = "".join(f"<li>+{gain:.1f}: {html.escape(text)}</li>" for gain, text in mend_first(found))
    values = "".join(
        f"<tr><td>{html.escape(name)}<td>{html.escape(value)}<td>{html.escape(', '.join(others))}"
        for name, value, others in same
    )
    kinds = "".join(
        f"<details><summary>{html.escape(kind)}: {found.counts[kind]:,}</summary><ul>"
        + "".join(f"<li>{html.escape(example)}</li>" for example in examples)
        + "</ul></details>"
        for kind, examples in found.examples.items()
    )
    told = "".join(f"<li>{html.escape(note)}</li>" for note in notes)
    return (
        f'<!doctype html><html lang="en"><meta charset="utf-8"><title>The data of {html.escape(source)}</title>'
        f"<style>{_STYLE}</style><h1>The data of {html.escape(source)}</h1>"
        f'<p><span class="score">{score(found):g}</span> of 100, {found.products:,} products</p>'
        f"<h2>What to mend first</h2><ol>{points or '<li>nothing stands out</li>'}</ol>"
        f"<h2>How complete</h2>{_completeness(found)}<h2>How consistent</h2>{_consistency(found)}"
        f"<h2>Values that mean the same</h2><table><tr><th>field<th>value<th>also written{values}</table>"
        f"<h2>Products to look at</h2>{kinds}<ul>{told}</ul></html>"
    )


def _completeness(found: Findings) -> str:
    """Return a table: the share of products that have a field, by category and field."""
    if not found.missing:
        return "<p>Every product has every field.</p>"
    rows = "".join(
        f"<tr><td>{html.escape(top)} ({count:,})"
        + "".join(f"<td>{_meter(1 - by[top] / count)}" for by in found.missing.values())
        for top, count in found.in_category.most_common(_ROWS)
    )
    return f"<table><tr><th>{''.join(f'<th>{html.escape(name)}' for name in found.missing)}{rows}</table>"


def _consistency(found: Findings) -> str:
    """Return a table: of each field, the share of products that write its value as most do."""
    if not found.other_way:
        return "<p>Every value is written one way.</p>"
    rows = (
        f"<tr><td>{html.escape(name)}<td>{_meter(1 - count / found.products)}"
        for name, count in found.other_way.most_common(_ROWS)
    )
    return f"<table><tr><th>field<th>written as usual{''.join(rows)}</table>"


def _meter(share: float) -> str:
    return f"<meter value={share:.4f} low=0.5 high=0.9 optimum=1></meter> {share:.0%}"
