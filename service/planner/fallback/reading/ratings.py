"""Minimum ratings from the phrases that name them: "4 stars and up", "rated 4.5+", "mindestens 4 Sterne"."""

from collections.abc import Iterator
from typing import Final, NamedTuple

from service.planner.fallback.reading.language_data import LanguageData
from service.planner.fallback.reading.tokens import Words

_MOST_STARS: Final = 5


class Rating(NamedTuple):
    """A minimum rating in stars, and its tokens [first, end)."""

    min: float
    first: int
    end: int


class Ratings:
    """Finds the ratings of utterances in one language."""

    def __init__(self, data: LanguageData) -> None:
        self._patterns = [pattern for _, pattern in data.patterns("rating")]
        self._numbers = data.table("numbers")
        self._gates = data.words("word.rating.gates") or {""}  # a text with none of these needs no search

    def find(self, words: Words) -> Iterator[Rating]:
        """Yield every rating in order; a number of stars beyond five is none."""
        for pattern in self._patterns if any(map(words.joined.__contains__, self._gates)) else ():
            for match in pattern.finditer(words.joined):
                told = next(group for group in match.groups() if group)
                stars = float(self._numbers.get(told, told))
                tokens = words.tokens_in(match.start(), match.end())
                if 0 < stars <= _MOST_STARS:
                    yield Rating(stars, tokens.start, tokens.stop)
