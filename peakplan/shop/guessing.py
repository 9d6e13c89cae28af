"""The category of a product that names none, by the words of those that do: a complement naive Bayes over tf-idf."""

import itertools
from collections import Counter, defaultdict
from collections.abc import Sequence
from math import log, sqrt
from typing import Final

from peakplan.shop.counting import Path
from peakplan.shop.products import Product
from peakplan.shop.texts import singular, tokens

MOST_LEARNT: Final = 20_000  # products; more would cost memory and tell little
_SMOOTHING: Final = 0.3
_TITLE: Final = 2.0  # what a word of the title counts, against one of the description
_PAIR: Final = 0.5
_SURE: Final = 0.08  # a lead over the next category, by share of the score, at which a guess is half sure


class CategoryGuess:
    """Learns from products with a category and guesses that of others."""

    def __init__(self, known: Sequence[Product]) -> None:
        self._products = len(known)
        self._having: Counter[str] = Counter()
        for one in known:
            self._having.update(_words(one).keys())
        self._by_word: dict[str, dict[Path, float]] = defaultdict(dict)
        self._of_word: dict[str, float] = defaultdict(float)
        size: dict[Path, float] = defaultdict(float)
        for one in known:
            for word, weight in self._vector(one).items():
                of_path = self._by_word[word]
                of_path[one.path] = of_path.get(one.path, 0.0) + weight
                self._of_word[word] += weight
                size[one.path] += weight
        everything = sum(size.values()) + _SMOOTHING * len(self._by_word)
        self._start = {path: log(everything - weight) for path, weight in size.items()}

    def __call__(self, one: Product) -> tuple[Path, float] | None:
        """Return the likeliest path and how sure it is, from 0 to 1; None where no word tells."""
        words = {word: weight for word, weight in self._vector(one).items() if word in self._by_word}
        if not words or len(self._start) < 2:
            return None
        total = sum(words.values())
        scores = {path: total * start for path, start in self._start.items()}
        for word, weight in words.items():
            everywhere = self._of_word[word] + _SMOOTHING
            for path, count in self._by_word[word].items():
                scores[path] -= weight * log((everywhere - count) / everywhere)
        (best, score), (_, second) = sorted(scores.items(), key=lambda each: (-each[1], each[0]))[:2]
        lead = (score - second) / total
        return best, round(lead / (lead + _SURE), 3)

    def _vector(self, one: Product) -> dict[str, float]:
        """Return what each word counts, of length one together."""
        weighed = {
            word: weight * log(1 + self._products / (self._having.get(word, 0) or 1))
            for word, weight in _words(one).items()
        }
        length = sqrt(sum(weight * weight for weight in weighed.values())) or 1.0
        return {word: weight / length for word, weight in weighed.items()}


def _words(one: Product) -> dict[str, float]:
    """Return the words and pairs of words of a product, with what each counts."""
    title = [singular(word) for word in tokens(one.title)]
    text = [singular(word) for word in tokens(one.text)]
    found = dict.fromkeys((f"{first} {second}." for first, second in itertools.pairwise(text)), _PAIR)
    found |= dict.fromkeys(text, 1.0)
    found |= {f"{first} {second}": _TITLE for first, second in itertools.pairwise(title)}
    return found | dict.fromkeys(title, _TITLE)
