"""The values in a question that are sure whatever it is about: brands, models, sizes, colors, materials, for whom."""

import re
from typing import Final, NamedTuple

from service.planner.fallback.reading.language_data import LanguageData
from service.planner.fallback.reading.phrase_file import Trie
from service.planner.fallback.reading.tokens import Words, is_number

_KINDS: Final = ("brand", "color", "material", "audience", "condition", "size", "feature")
_MODEL = re.compile(r"(?=.*\d)(?=.*[a-z])[a-z0-9]{2,12}")
_LETTER_SIZES: Final = frozenset("xxs xs s m l xl xxl xxxl 2xl 3xl 4xl".split())
_MOST_OF_MODEL: Final = 3


class Value(NamedTuple):
    """A facet's value, tokens [first, end)."""

    facet: str
    first: int
    end: int


class Values:
    """Finds the sure values of utterances in one language."""

    def __init__(self, data: LanguageData) -> None:
        phrases = {phrase: kind for kind in _KINDS for phrase in data.phrases(f"facet.{kind}")}
        self._trie = Trie(phrases)
        self._lines = data.trie("facet.line")
        self._more = data.words("word.model.more")
        self._units = data.words("word.units")
        self._counted = data.words("word.counted")
        self._labels = data.words("word.size.labels")
        self._leading = data.words("word.color.modifiers") | data.words("word.material.modifiers")

    def find(self, words: Words, taken: set[int]) -> list[Value]:
        """Return the values of tokens that are not `taken`, in order."""
        found: list[Value] = []
        at = 0
        while at < len(words.texts):
            value = None if at in taken else self._at(words, at)
            if value and taken.isdisjoint(range(value.first, value.end)):
                found.append(value)
                at = value.end
            else:
                at += 1
        return found

    def facet_at(self, words: Words, at: int) -> str | None:
        """Return the facet of the value that begins at a token."""
        value = self._at(words, at) if 0 <= at < len(words.texts) else None
        return value.facet if value else None

    def length_at(self, words: Words, at: int) -> int:
        """Return the number of tokens of a known value that begins at a token, 0 where none does."""
        value = self._at(words, at) if 0 <= at < len(words.texts) else None
        return value.end - at if value and value.facet != "size" else 0

    def _at(self, words: Words, at: int) -> Value | None:
        return self._size(words, at) or self._model(words, at) or self._listed(words, at)

    def _listed(self, words: Words, at: int) -> Value | None:
        first = at
        while words.at(first) in self._leading:
            first += 1
        match = self._trie.match(words, first)
        if match is None or (first > at and match[1] not in ("color", "material")):
            return None
        return Value(match[1], at, first + match[0])

    def _size(self, words: Words, at: int) -> Value | None:
        texts = words.texts
        if texts[at] in self._labels:
            after = at + 1
            while words.at(after) in (".", ":", "de", "la", "una", "die", "un"):
                after += 1
            text = words.at(after)
            if text in _LETTER_SIZES or text[:1].isdigit():
                return Value("size", after, self._number_end(words, after))
            return None
        if texts[at][:1].isdigit() and not (at and words.touches(at - 1) and texts[at - 1].isalpha()):
            end = self._number_end(words, at)
            glued = end + 1 if words.at(end) == "-" and words.touches(end) else end
            unit = words.at(glued)
            if unit in self._units or (unit in ('"', "″", "”", "''") and words.touches(end - 1)):
                return Value("size", at, glued + 1)
            return Value("count", at, glued + 1) if unit in self._counted else None
        is_letter = texts[at] in _LETTER_SIZES and len(texts[at]) > 1
        return Value("size", at, at + 1) if is_letter else None

    def _number_end(self, words: Words, at: int) -> int:
        """Return the end of "140x200" and "38/40"."""
        end = at + 1
        while words.at(end) in ("x", "×", "/") and words.at(end + 1)[:1].isdigit():
            end += 2
        return end

    def _model(self, words: Words, at: int) -> Value | None:
        line = self._lines.match(words, at)
        if line:
            end = at + line[0]
            while end < len(words.texts) and end - at - line[0] < _MOST_OF_MODEL and self._is_model(words, end):
                end += 1
            return Value("line", at, end) if end == at + line[0] else Value("model", at, end)
        text = words.texts[at]
        if not _MODEL.fullmatch(text) or words.source[words.starts[at]].isdigit():
            return None
        end = at + 1
        while words.at(end) == "-" and words.touches(end - 1) and words.touches(end) and words.at(end + 1).isalnum():
            end += 2
        return Value("model", at, end)

    def _is_model(self, words: Words, at: int) -> bool:
        text = words.texts[at]
        is_measure = is_number(text) and words.at(at + 1) in self._units
        return (
            (is_number(text) and len(text) < 5 and not is_measure) or text in self._more or bool(_MODEL.fullmatch(text))
        )
