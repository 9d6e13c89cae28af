"""What a catalogue says, counted chunk by chunk: brands, categories, values, the words of titles."""

from collections import Counter, defaultdict
from collections.abc import Iterable
from dataclasses import dataclass, field
from math import ceil
from typing import Any, Final

from peakplan.shop.products import Product
from peakplan.shop.texts import ENDS, is_aside, key, singular, tokens

Path = tuple[str, ...]
_MOST_PHRASES: Final = 1_500_000  # pairs of words in memory; past that those seen once are forgotten
_SETS: Final = frozenset("set pack kit collection assortment bundle duo trio pair combo".split())
_LINE_WORDS: Final = 3  # of a title after the brand: a product line stands there


@dataclass(slots=True)
class Counts:
    """All counts. Paths are categories from the top; keys of values are as `texts.key` writes them."""

    products: Counter[str] = field(default_factory=Counter)  # "all", and those with a brand, a price, ...
    paths: Counter[Any] = field(default_factory=Counter)
    leaves: Counter[Any] = field(default_factory=Counter)  # (path, what its field holds)
    brands: Counter[Any] = field(default_factory=Counter)  # as written
    brand_paths: Counter[Any] = field(default_factory=Counter)  # (brand, path)
    values: Counter[Any] = field(default_factory=Counter)  # (field, value as written)
    value_paths: Counter[Any] = field(default_factory=Counter)  # (field, value, path)
    filled: Counter[Any] = field(default_factory=Counter)  # (field, path)
    currencies: Counter[Any] = field(default_factory=Counter)
    ratings: Counter[Any] = field(default_factory=Counter)  # rounded up
    stocks: Counter[Any] = field(default_factory=Counter)
    words: Counter[Any] = field(default_factory=Counter)  # of titles, each once a title
    phrases: Counter[Any] = field(default_factory=Counter)  # of one to three words of titles, by key
    unbranded: Counter[Any] = field(default_factory=Counter)  # phrases of titles of products without a brand
    named: Counter[Any] = field(default_factory=Counter)  # (field, key): titles that say the product's own value
    lines: Counter[Any] = field(default_factory=Counter)  # (brand's key, words after it)
    heads: Counter[Any] = field(default_factory=Counter)  # (what the title says the thing is, path)

    def add(self, one: Product) -> None:
        """Count a product."""
        self.products["all"] += 1
        for name, value in (("brand", one.brand), ("category", one.path), ("price", one.price), ("rating", one.rating)):
            self.products[name] += value not in (None, "", ())
        words = tokens(one.title)
        keys = [singular(word) for word in words]
        said = {" ".join(keys[at : at + length]) for length in (1, 2, 3) for at in range(len(keys) - length + 1)}
        self.words.update(set(words))
        self.phrases.update(said)
        for path, leaf in ((one.path, one.leaf), *one.others) if one.path else ():
            self.paths[path] += 1
            self.leaves[path, leaf] += 1
        for head in heads(one.title) if one.path else ():
            self.heads[head, one.path] += 1
        if one.currency:
            self.currencies[one.currency] += 1
        if one.rating is not None:
            self.ratings[ceil(one.rating)] += 1
        self.products["several rows"] += one.variants > 1
        self.products["ranges"] += one.price != one.most
        if one.stock:
            self.stocks[one.stock] += 1
        if one.brand:
            self._brand(one, keys, said)
        else:
            self.unbranded.update(said)
        for name, values in one.attributes.items():
            self.filled[name, one.path] += 1
            for value in values:
                self.values[name, value] += 1
                self.value_paths[name, value, one.path] += 1
                if (short := key(value)) in said:
                    self.named[name, short] += 1

    def _brand(self, one: Product, keys: list[str], said: set[str]) -> None:
        self.brands[one.brand] += 1
        self.brand_paths[one.brand, one.path] += 1
        short = key(one.brand)
        if short in said:
            self.named["brand", short] += 1
        length = len(short.split())
        first = length if keys[:length] == short.split() else 0
        for size in (1, 2):
            for at in range(first, min(first + _LINE_WORDS, len(keys)) - size + 1):
                self.lines[short, " ".join(keys[at : at + size])] += 1

    def trim(self) -> None:
        """Forget what was seen once where memory would grow without bound."""
        for name in ("phrases", "unbranded", "lines", "heads", "words", "value_paths", "brand_paths"):
            counter = getattr(self, name)
            least = 1
            while len(counter) > _MOST_PHRASES:
                setattr(self, name, Counter({what: count for what, count in counter.items() if count > least}))
                counter, least = getattr(self, name), least * 2


def heads(title: str) -> Iterable[str]:
    """Return what a title says a thing is: its last word before what is added, and the last two."""
    words: list[str] = []
    for token in title.replace(",", " , ").replace("(", " ( ").casefold().split():
        if token in ENDS:
            if words:
                break
            continue
        words += [singular(part) for part in tokens(token)]
    names = [word for word in words if not any(letter.isdigit() for letter in word)]
    while len(names) > 1 and (names[-1] in _SETS or is_aside(names[-1])):
        names.pop()  # a "teapot set" is found as a teapot
    if not names:
        return ()
    return (names[-1], " ".join(names[-2:])) if len(names) > 1 else (names[-1],)


def by_first(counter: Counter[Any]) -> dict[Any, Counter[Any]]:
    """Return the counts of (first, rest) by first."""
    found: dict[Any, Counter[Any]] = defaultdict(Counter)
    for (first, *rest), count in counter.items():
        found[first][rest[0] if len(rest) == 1 else tuple(rest)] += count
    return found
