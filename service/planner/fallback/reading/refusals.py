"""The refusals in a question: "not nike", "sin cables", "nicht von Nike", "anything but polyester".

Closed lists find where a refused value ends; they do not tell whether the question is about a product.
"""

from dataclasses import dataclass
from typing import Final

from service.planner.fallback.reading.language_data import LanguageData
from service.planner.fallback.reading.tokens import BREAKS, QUOTES, Words, is_number
from service.planner.fallback.reading.values import Values

CUES: Final = ("refuse", "refuse.known", "refuse.one", "refuse.exact")
AFTER: Final = "refuse.after"  # a cue that follows what is refused: "samsung will ich nicht"
_MOST_VALUES: Final = 6
_LONGEST_NOUN: Final = 5  # letters of a thing that ends like a deed: "ring", "icing"
_PLAIN: Final = frozenset(("color", "material"))


@dataclass(frozen=True, slots=True)
class RefusedTokens:
    """A refusal, tokens [first, end); each of `values` is one refused thing as tokens [first, end)."""

    first: int
    end: int
    values: tuple[tuple[int, int], ...]


class Refusals:
    """Reads what is refused behind a cue, in one language."""

    def __init__(self, data: LanguageData, values: Values) -> None:
        self.values = values
        self.cues = data.trie(*CUES)
        self.closed = data.trie(*data.names("sort."), *data.names("offer."))
        self.whole = data.trie("refuse.whole")  # names and kinds that hold words at which a value would end
        self.has_exact = bool(data.phrases("refuse.exact"))
        self.most_words = int(data.table("refuse.most").get("words", "3"))
        self.skip = data.words("word.refuse.skip")
        self.joins = data.words("word.refuse.joins")
        self.weak_joins = data.words("word.refuse.joins.weak")
        self.adds = data.words("word.refuse.adds")
        self.stop = (
            data.words("word.refuse.stop") | data.words("word.function") | self.joins | self.weak_joins | self.adds
        )
        self.tail = data.words("word.refuse.tail")
        self.wishes = data.words("word.refuse.wishes")
        self.deeds = tuple(data.words("word.refuse.deeds"))
        self.things = data.words("word.refuse.things.in.ing")

    def read(self, words: Words, first: int, length: int, taken: set[int], label: str) -> RefusedTokens | None:
        """Return the refusal of a cue of `length` tokens, a phrase of the section `label`.

        None where nothing nameable follows: "no, the other one".
        """
        return _Refusal(self, words, taken, label).read(first, first + length)


class _Refusal:
    """One refusal of one text.

    A cue of "refuse.known" is also a plain "no" and refuses only what is known: a brand, a color, a material. After one
    of "refuse.exact", a color or material is all that is refused: "not black shoes". "refuse.one" takes one word.
    """

    def __init__(self, language: Refusals, words: Words, taken: set[int], label: str) -> None:
        self._language = language
        self._words = words
        self._taken = taken
        self._known = label == "refuse.known"
        self._exact = label == "refuse.exact"
        self._one = label == "refuse.one"

    def read(self, first: int, at: int) -> RefusedTokens | None:
        words, language = self._words, self._language
        after = words.at(at)
        if language.deeds and after.endswith(language.deeds) and self._is_deed(first, after):
            return None
        if at - 1 > first and language.whole.match(words, at - 1):  # "not in ear"
            at -= 1
        values: list[tuple[int, int]] = []
        end = at
        while len(values) < _MOST_VALUES:
            value = self._value(at, is_listed=bool(values))
            if value is None or not self._is_meant(value, is_listed=bool(values)):
                break
            values.append(value)
            end = self._after_tail(value[1])
            following = self._following(end)
            if following is None:
                break
            at = following
        return RefusedTokens(first, end, tuple(values)) if values else None

    def _is_deed(self, first: int, after: str) -> bool:
        """Tell whether a refusal says how rather than what: "without drilling"."""
        is_thing = after in self._language.things or len(after) <= _LONGEST_NOUN
        return self._words.at(first) == "without" and not is_thing

    def _is_meant(self, value: tuple[int, int], *, is_listed: bool) -> bool:
        """Tell whether a value is refused, and no wish that only follows: "without laces and waterproof"."""
        words, language, (first, end) = self._words, self._language, value
        before = words.at(first - 1)
        if is_listed and before in language.adds:
            return not is_number(words.at(first)) and end - first <= 2
        is_weak = is_listed and before == "," and "," in language.weak_joins
        if not self._known and not is_weak:
            return True
        return language.values.facet_at(words, first) is not None

    def _value(self, at: int, *, is_listed: bool) -> tuple[int, int] | None:
        words, language = self._words, self._language
        while words.at(at) in language.skip and at not in self._taken and language.whole.match(words, at) is None:
            at += 1
        at += words.at(at) in QUOTES
        if is_listed and words.at(at) in language.wishes:
            return None
        first = at
        if whole := language.whole.match(words, first):
            return first, first + whole[0]
        if known := self._known_end(first):
            return (first, known) if self._taken.isdisjoint(range(first, known)) else None
        while at - first < language.most_words and self._is_content(at, first):
            at += 1
        while at > first and self._is_trailing(at - 1):
            at -= 1
        if at == first:
            return None
        return first, first + 1 if self._one else at

    def _known_end(self, first: int) -> int:
        """Return the end of a known value that is all that is refused; 0 where a value goes on."""
        values, words = self._language.values, self._words
        if not self._language.has_exact:
            length = values.length_at(words, first)
            return first + length if length else 0
        end = first
        while self._exact and values.facet_at(words, end) in _PLAIN and (length := values.length_at(words, end)):
            end += length
        return end if end > first and words.at(end) != "-" else 0

    def _is_trailing(self, at: int) -> bool:
        text, before = self._words.at(at), self._words.at(at - 1)
        return text in QUOTES or (text in self._language.tail and before != "-")

    def _is_content(self, at: int, first: int) -> bool:
        words, language, text = self._words, self._language, self._words.at(at)
        if not text or at in self._taken or text in BREAKS:
            return False
        if at > first and words.at(at - 1) == "-":
            return True  # "post-it"
        if text == "-":
            return at > first and words.touches(at - 1) and words.touches(at)
        if text[:1].isdigit() and words.at(at - 1).isalpha() and not words.touches(at - 1) and not language.has_exact:
            return False
        if text in language.stop or (at > first and language.cues.match(words, at)):
            return False
        if at > first and text in language.tail:
            return False
        return language.closed.match(words, at) is None

    def _after_tail(self, at: int) -> int:
        words, language = self._words, self._language
        at += words.at(at) in QUOTES
        while words.at(at) in language.tail and at not in self._taken and not language.closed.match(words, at):
            at += 1
        return at

    def _following(self, at: int) -> int | None:
        """Return where the next refused value starts: after "or", "ni", or a comma of a list that ends with "or"."""
        words, language, text = self._words, self._language, self._words.at(at)
        if at in self._taken:
            return None
        if text in language.joins:
            return at + 1
        if text in language.adds:
            return None if words.at(at + 1) in language.wishes else at + 1
        if text == "," and words.at(at + 1) in language.joins:
            return at + 2
        if text in language.weak_joins:
            after = at + 1
            while words.at(after) in language.skip:
                after += 1
            if language.values.facet_at(words, after) is not None:
                return at + 1
        return at + 1 if text == "," and self._leads_to_join(at) else None

    def _leads_to_join(self, at: int) -> bool:
        """Tell whether a comma begins a list that ends with "or": "without pockets, buttons or a collar"."""
        for _ in range(_MOST_VALUES):
            following = self._value(at + 1, is_listed=True) if self._words.at(at) == "," else None
            if following is None:
                return False
            at = following[1]
            after = self._words.at(at + 1) if self._words.at(at) == "," else self._words.at(at)
            if after in self._language.joins:
                return True
        return False
