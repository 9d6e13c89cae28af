"""What tells of each category of a shop: the words of its products, and what its things are called."""

import random
import re
from collections import Counter, defaultdict
from collections.abc import Iterator, Mapping, Sequence
from math import log
from pathlib import Path as FilePath
from typing import Final

from peakplan.shop.counting import Counts, Path, heads
from peakplan.shop.lexicon import category_id
from peakplan.shop.mapping_file import synonyms
from peakplan.shop.meanings import KindVectors
from peakplan.shop.products import Product
from service.planner.shop.folder import read_files
from service.planner.shop.kinds import Certainty, Kinds, Thing, lift, plain_words, share, singular, write_kinds
from service.planner.text import UNSEARCHED

_MOST_PRODUCTS: Final = 60_000  # that are read for their words: more would cost memory and tell little
_MOST_OF_ONE: Final = 40  # of a category
_FEWEST_OF_ONE: Final = 3
_TITLE: Final = 1  # what a word counts for standing in the title, beside 1 for standing in the product at all
_PRIOR: Final = 10.0  # products that a category is thought to have, with words as everywhere
_OWN_NAME: Final = (2.0, 0.5)  # products, and share of a category's, that its name counts as having in their text
_HELD_OUT: Final = 5  # one in so many sampled products is none that is learnt from, but a question
_MOST_ASKED: Final = 1000
_ASKED_WORDS: Final = 5  # of a product's text that make a question which names nothing
_SHARPNESS: Final = (0.1, 0.15, 0.2, 0.3, 0.4, 0.5, 0.7, 1.0)
# Of the categories that are said those that must be right, where a thing is named and where none is: a product's own
# words tell more of it than a shopper's do, so that more is asked of them.
_RIGHT: Final = {True: 0.8, False: 0.97}
_DOUBT: Final = 1e-6
_NEVER: Final = 2.0
_AND: Final = re.compile(r"\s*(?:&|,|/|\band\b)\s*", re.I)


class Evidence:
    """Gathers the words of products, and writes what they tell of the products' categories."""

    def __init__(self, counts: Counts) -> None:
        self._counts = counts
        self._paths = sorted(path for path in counts.paths if path)
        self._most = max(_FEWEST_OF_ONE, min(_MOST_OF_ONE, _MOST_PRODUCTS // max(1, len(self._paths))))
        self._seen: Counter[Path] = Counter()
        self._taken: Counter[Path] = Counter()
        self._words: dict[Path, Counter[str]] = defaultdict(Counter)
        self._asked: list[tuple[Path, list[str], str]] = []
        self._chance = random.Random(0)
        self._vectors = KindVectors(self._paths)
        self._kinds: Kinds | None = None
        self._sharpness = 1.0

    def add(self, one: Product) -> None:
        """Read a product, where it is one of those that are read: as many of each category, far from each other."""
        path = one.path
        if not path:
            return
        apart = max(1, self._counts.paths[path] // self._most)
        self._seen[path] += 1
        if (self._seen[path] - 1) % apart or self._taken[path] >= self._most:
            return
        self._taken[path] += 1
        title, text = plain_words(one.title), plain_words(one.text)
        if self._taken[path] % _HELD_OUT == 0 and len(self._asked) < _MOST_ASKED:
            unnamed = sorted(set(text) - set(title) - {word for level in path for word in plain_words(level)})
            self._asked.append((path, unnamed, one.title))
            return
        self._vectors.add(path, title, text)
        words = self._words[path]
        words.update({*title, *text})
        for word in set(title):
            words[word] += _TITLE

    def write(self, folder: FilePath) -> None:
        """Write the files of `service.planner.shop.kinds`; nothing where products have less than two categories."""
        if len(self._paths) < 2:
            return
        categories = [(category_id(path), path[-1]) for path in self._paths]
        words, names = self._word_evidence(), self._name_evidence()
        write_kinds(folder, categories, words, names, Certainty(1.0, 0.0, 0.0))
        certainty = self._certainty(folder)
        write_kinds(folder, categories, words, names, certainty)
        self._vectors.write(folder)
        self._kinds, self._sharpness = Kinds(read_files(folder)), certainty.sharpness

    def guess(self, one: Product) -> tuple[Path, float] | None:
        """Return a product's likeliest category and its share of the evidence. Call `write` first."""
        named: tuple[list[str], ...] = (
            list(heads(one.title))[:1],
            [],
        )  # without a name that is known, every word tells
        told = (self._kinds.evidence(Thing(f"{one.title} {one.text}", each))[0] for each in named if self._kinds)
        found = next(filter(None, told), None)
        if not found:
            return None
        best = max(found, key=lambda number: (found[number], -number))
        return self._paths[best], round(share(found, best, self._sharpness, len(self._paths)), 3)

    def _word_evidence(self) -> dict[str, dict[int, float]]:
        """Return how much more often a word stands in a category's products than in those of all, by category."""
        having: list[dict[str, float]] = []
        sizes: list[float] = []
        for path in self._paths:
            size = float(self._taken[path])
            found: dict[str, float] = dict(self._words.get(path, {}))
            for word in {word for level in path for word in plain_words(level)}:
                found[word] = found.get(word, 0.0) + _OWN_NAME[0] + _OWN_NAME[1] * size
            having.append(found)
            sizes.append(size + _OWN_NAME[0])
        everywhere: dict[str, float] = defaultdict(float)
        for found, size in zip(having, sizes, strict=True):
            for word, count in found.items():
                everywhere[word] += count / size / len(sizes)
        told: dict[str, dict[int, float]] = defaultdict(dict)
        idle = {singular(word) for word in UNSEARCHED}  # tell of no category, however often they stand where
        for number, (found, size) in enumerate(zip(having, sizes, strict=True)):
            for word, count in found.items():
                if word in idle:
                    continue
                within = (count + _PRIOR * everywhere[word]) / (size + _PRIOR)
                if weight := lift(within, everywhere[word]):
                    told[word][number] = weight
        return told

    def _name_evidence(self) -> dict[str, dict[int, float]]:
        """Return how much a name tells of each category whose things are called so."""
        called: dict[str, Counter[int]] = defaultdict(Counter)
        numbers = {path: number for number, path in enumerate(self._paths)}
        for (head, path), count in self._counts.heads.items():
            if count >= 2 and path in numbers:
                called[" ".join(plain_words(head))][numbers[path]] += count
        for path, number in numbers.items():
            for name in _own_names(path):
                called[name][number] += self._counts.paths[path]
        for group in synonyms():
            known = [name for name in (" ".join(plain_words(one)) for one in group) if name in called]
            for other in (" ".join(plain_words(one)) for one in group):
                if other not in called:
                    called[other] = sum((called[name] for name in known), Counter())
        return {
            name: {number: log(1 + count / of.total() * len(self._paths)) for number, count in of.items()}
            for name, of in called.items()
            if name and of
        }

    def _certainty(self, folder: FilePath) -> Certainty:
        """Ask for products that were held out, by what they are called and by words of their texts, and fit to that."""
        kinds, numbers = Kinds(read_files(folder)), {path: number for number, path in enumerate(self._paths)}
        asked: dict[bool, list[tuple[int, Mapping[int, float]]]] = {True: [], False: []}
        for path, unnamed, title in self._asked:
            words = " ".join(self._chance.sample(unnamed, min(_ASKED_WORDS, len(unnamed))))
            for text, named in ((title, list(heads(title))[:1]), (words, [])):
                told, is_named = kinds.evidence(Thing(text, named))
                if told:
                    asked[is_named].append((numbers[path], told))
        count = len(self._paths)
        sharpness = max(_SHARPNESS, key=lambda one: _likelihood([*asked[True], *asked[False]], one, count))
        least, least_unnamed = (_least(asked[named], sharpness, count, _RIGHT[named]) for named in (True, False))
        return Certainty(sharpness, least, least_unnamed)


def _own_names(path: Path) -> Iterator[str]:
    """Yield what a category is called, also in parts ("Coats & Jackets"), and what those above it are called."""
    for level in path:
        whole = " ".join(plain_words(level))
        parts = [" ".join(plain_words(part)) for part in _AND.split(level)]
        yield from dict.fromkeys([whole, *parts])


def _likelihood(asked: Sequence[tuple[int, Mapping[int, float]]], sharpness: float, count: int) -> float:
    return sum(log(share(told, right, sharpness, count) + _DOUBT) for right, told in asked)


def _least(asked: Sequence[tuple[int, Mapping[int, float]]], sharpness: float, count: int, enough: float) -> float:
    """Return the least share from which on enough of the answers are right; more than 1 where none is."""
    answers = []
    for right, told in asked:
        first = max(told, key=lambda number: (told[number], -number))
        answers.append((share(told, first, sharpness, count), first == right))
    least, rights = _NEVER, 0
    for place, (sure, is_right) in enumerate(sorted(answers, reverse=True), 1):
        rights += is_right
        if rights >= enough * place:
            least = sure
    return round(least, 4)
