"""The refusals in a question ("sin cables", "nicht von Nike", "pas en cuir"), in a language that is data."""

from dataclasses import dataclass
from typing import Final

from service.planner.reading.generic.data import LanguageData
from service.planner.reading.generic.facets import Facets
from service.planner.reading.generic.words import FoldedWords
from service.planner.reading.tokens import BREAKS

_MOST_WORDS: Final = 3  # of a refused value
_MOST_VALUES: Final = 6


@dataclass(frozen=True, slots=True)
class RefusedTokens:
    """A refusal, tokens [first, end); each of `values` is one refused thing as tokens [first, end)."""

    first: int
    end: int
    values: tuple[tuple[int, int], ...]


class Refusals:
    """Reads what is refused behind a cue."""

    def __init__(self, data: LanguageData, facets: Facets) -> None:
        self._facets = facets
        self._skip = data.words("word.refuse.skip")
        self._relative = data.words("word.relative")
        self._stop = data.words("word.refuse.stop") | data.words("word.function")
        self._joins = data.words("word.refuse.joins")
        self._weak_joins = data.words("word.joins")
        self._empty = data.words("word.refuse.empty")
        self._tail = data.words("word.refuse.tail")
        self._wishes = data.words("word.refuse.wishes")
        self._cues = data.trie("refuse", "refuse.known")
        self._closed = data.trie(*data.names("sort."), *data.names("offer."))

    def read(
        self, words: FoldedWords, first: int, length: int, taken: set[int], *, known: bool
    ) -> RefusedTokens | None:
        """Return the refusal of a cue of `length` tokens; None where nothing nameable follows.

        A cue that is also a plain "no" refuses only what is `known`: a brand, a color, a material.
        """
        values: list[tuple[int, int]] = []
        at = end = first + length
        while len(values) < _MOST_VALUES:
            value = self._value(words, at, taken, is_listed=bool(values))
            is_known = value is not None and self._facets.facet_at(words, value[0]) is not None
            is_last = known and not values and value is not None and self._is_last(words, first, value)
            if value is None or ((known or self._is_weak(words, at)) and not (is_known or is_last)):
                break
            values.append(value)
            end = value[1]
            while words.at(end) in self._tail:
                end += 1
            following = self._following(words, end)
            if following is None:
                break
            at = following
        return RefusedTokens(first, end, tuple(values)) if values else None

    def _is_last(self, words: FoldedWords, first: int, value: tuple[int, int]) -> bool:
        """Tell whether a single word ends the phrase: the "skinny" of "jeans nicht skinny", but not of "que no …"."""
        follows = words.at(value[1])
        is_end = not follows or follows in BREAKS
        return is_end and first > 0 and value == (first + 1, first + 2) and words.texts[first - 1] not in self._relative

    def _is_weak(self, words: FoldedWords, at: int) -> bool:
        """Tell whether a value follows a mere comma or "and", after which a wish may begin."""
        return words.at(at - 1) == ","

    def _value(self, words: FoldedWords, at: int, taken: set[int], *, is_listed: bool) -> tuple[int, int] | None:
        while words.at(at) in self._skip and at not in taken:
            at += 1
        if is_listed and words.at(at) in self._wishes:
            return None
        first = at
        if size := self._facets.length_at(words, at):
            return (first, first + size) if taken.isdisjoint(range(first, first + size)) else None
        while at - first < _MOST_WORDS and self._is_content(words, at, taken):
            at += 1
            if at - first == 1 and words.at(at) in self._joins | self._weak_joins:
                break
        while at > first and words.texts[at - 1] in ("-", "&", "'"):
            at -= 1
        if at == first or all(text in self._empty for text in words.texts[first:at]):
            return None
        return first, at

    def _is_content(self, words: FoldedWords, at: int, taken: set[int]) -> bool:
        text = words.at(at)
        if not text or at in taken or text in BREAKS or text in ("/", "–", "—"):
            return False
        if text == "-":
            return words.touches(at - 1) and words.touches(at)
        if text[:1].isdigit() and words.at(at - 1).isalpha() and not words.touches(at - 1):
            return False
        if text in self._stop or text in self._joins or text in self._weak_joins:
            return False
        return self._cues.match(words, at) is None and self._closed.match(words, at) is None

    def _following(self, words: FoldedWords, at: int) -> int | None:
        """Return where the next refused value starts: after "ni" or "oder"; after "y" or a comma what is known."""
        text = words.at(at)
        if text in self._joins or text == "/":
            return at + 1
        if text == "," and words.at(at + 1) in self._joins:
            return at + 2
        if text == "," or text in self._weak_joins:
            after = at + 1
            while words.at(after) in self._skip:
                after += 1
            is_known = self._facets.facet_at(words, after) is not None
            leads = words.at(after + 1) in self._joins and text == ","
            return at + 1 if is_known or leads else None
        return None
