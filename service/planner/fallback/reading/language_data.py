"""The closed phrases of a language as its folder has them: `phrases.txt` and `patterns.txt`.

A phrase may hold alternatives: "barat(o|a|os|as)" is four phrases, "(el|) envío gratis" two. Phrases and patterns are
folded as the text is, so that accents, case and umlauts are written as they are spelt.
"""

import re
from collections.abc import Iterator, Sequence
from functools import cached_property
from itertools import product
from pathlib import Path
from typing import Final

from service.planner import money
from service.planner.fallback.reading.phrase_file import Trie
from service.planner.fallback.reading.tokens import tokens_of
from service.planner.text import fold, lines_of_sections

_ALTERNATIVES = re.compile(r"\(([^()]*)\)")
_DIGIT = re.compile(r"[#\d]")
_CLASS = re.compile(r"(\\[A-Z])")
_WORD = re.compile(r"(?<![^\W_])[^\W\d_]{4,}(?![^\W_*?+{])")
_ELISION = re.compile(r"\b([cdjlmnst]|qu|jusqu)'(?=[\w(])")
SHARED: Final = Path(__file__).with_name("shared.txt")


def expanded(phrase: str) -> Iterator[str]:
    """Yield the phrases that one with alternatives stands for."""
    pieces = _ALTERNATIVES.split(phrase)  # every second one is alternatives
    if len(pieces) == 1:
        yield phrase
        return
    for chosen in product(*(piece.split("|") if at % 2 else (piece,) for at, piece in enumerate(pieces))):
        yield from expanded("".join(chosen))  # of alternatives inside of others, only the innermost are gone


class LanguageData:
    """What the files of one language say."""

    def __init__(self, folder: Path, *, umlauts: bool = False) -> None:
        self.language = folder.name
        self.umlauts = umlauts
        self._phrases: dict[str, list[str]] = {}
        self._sections = lines_of_sections(SHARED)
        self.shared_words = self.words("word.units")
        for name, lines in lines_of_sections(folder / "phrases.txt").items():
            self._sections[name] = [*self._sections.get(name, ()), *lines]
        self._patterns = lines_of_sections(folder / "patterns.txt")

    def phrases(self, name: str) -> list[str]:
        """Return the phrases of a section, folded, their tokens parted by spaces."""
        if name not in self._phrases:
            parts = (part for line in self._sections.get(name, ()) for part in line.split(",") if part.strip())
            forms = (form for part in parts for form in expanded(part))
            self._phrases[name] = [" ".join(tokens_of(form, umlauts=self.umlauts)) for form in forms]
        return self._phrases[name]

    def words(self, name: str) -> frozenset[str]:
        """Return the words of a section, folded."""
        words = (word for line in self._sections.get(name, ()) for word in line.split())
        return frozenset(fold(form, self.umlauts) for word in words for form in expanded(word))

    def spelt(self, name: str) -> frozenset[str]:
        """Return the words of a section with their accents."""
        return frozenset(word for line in self._sections.get(name, ()) for word in line.split())

    def names(self, prefix: str) -> list[str]:
        """Return the sections whose names begin so."""
        return [name for name in self._sections if name.startswith(prefix)]

    def trie(self, *names: str, backwards: bool = False, of_numbers: bool = False) -> Trie:
        """Build a trie of sections; a phrase's label is its section, the later one if it is in two.

        With `of_numbers`, of those phrases alone that have a number.
        """
        labels = {phrase: name for name in names for phrase in self.phrases(name)}
        if of_numbers:
            labels = {phrase: name for phrase, name in labels.items() if _DIGIT.search(phrase)}
        return Trie(labels, backwards=backwards)

    def table(self, name: str) -> dict[str, str]:
        """Return the lines `phrase, phrase = value` of a section as a value for each phrase."""
        found: dict[str, str] = {}
        for line in self._sections.get(name, ()):
            phrases, _, value = line.rpartition("=")
            for part in phrases.split(","):
                for form in expanded(part):
                    found[" ".join(tokens_of(form, umlauts=self.umlauts))] = value.strip()
        return found

    def patterns(self, prefix: str) -> list[tuple[str, re.Pattern[str]]]:
        """Return name and pattern of each section of `patterns.txt` that begins so, in order, without the prefix."""
        return [
            (name.removeprefix(prefix), self._pattern(lines))
            for name, lines in self._patterns.items()
            if name.startswith(prefix)
        ]

    def _pattern(self, lines: Sequence[str]) -> re.Pattern[str]:
        alternatives = "|".join(lines)
        for name, pattern in self._parts:
            alternatives = alternatives.replace(f"{{{name}}}", pattern)
        parts = _CLASS.split(alternatives)  # "\\S" keeps its case
        folded = "".join(part if part.startswith("\\") else fold(part, self.umlauts) for part in parts)
        folded = _ELISION.sub(r"\1' ", folded)
        return re.compile(rf"(?<![^\W_])(?:{folded})(?![^\W_])")

    def words_of_phrases(self) -> frozenset[str]:
        """Return the words of patterns, of numbers and of what does not matter, of four letters or more."""
        texts = " ".join(line for lines in self._patterns.values() for line in lines)
        tokens = set(_WORD.findall(fold(texts, self.umlauts)))
        names = (name for start in ("attribute.", "indifferent", "lift.") for name in self.names(start))
        tokens.update(token for name in names for phrase in self.phrases(name) for token in phrase.split())
        tokens.update(token for phrase in self.table("numbers") for token in phrase.split())
        return frozenset(token for token in tokens if len(token) > 3 and token.isalpha())

    @cached_property
    def _parts(self) -> list[tuple[str, str]]:
        pairs = (line.partition(" = ") for line in self._patterns.get("parts", ()))
        return [(name, pattern) for name, _, pattern in pairs]

    @cached_property
    def currencies(self) -> dict[str, tuple[str, ...]]:
        """The currencies that each name, sign or word may stand for, as tokens parted by spaces."""
        found: dict[str, tuple[str, ...]] = {}
        others = self.words("word.money.not")
        for name, codes in {**money.names(self.language), **money.signs()}.items():
            if not name.isalpha() or name not in money.signs():  # signs of letters, "KM" and "zł", keep their case
                key = " ".join(tokens_of(name, umlauts=self.umlauts))
                if key not in others:
                    found[key] = tuple(dict.fromkeys((*found.get(key, ()), *codes)))
        return found | {name: tuple(codes.split(",")) for name, codes in self.table("money").items()}
