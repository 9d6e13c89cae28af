"""The refusals in a question ("not nike", "without laces", "anything but polyester"), by word lists.

Closed word lists find where a refused value ends; they do not tell whether the question is about a product.
"""

from dataclasses import dataclass
from typing import Final

from service.planner.reading.en.data import PHRASES
from service.planner.reading.en.lists import COLOR_MODIFIERS, COLORS, MATERIAL_MODIFIERS, MATERIALS
from service.planner.reading.phrases import OFFERS, SORTS
from service.planner.reading.tokens import BREAKS, Words, is_number

MAX_VALUE_WORDS: Final = 4
_MAX_LISTED: Final = 6
CUES = PHRASES.trie("refuse")
_WISHES = PHRASES.trie(*(f"sort.{sort}" for sort in SORTS[1:]), *(f"offer.{offer}" for offer in OFFERS))
_WHOLE = PHRASES.trie("refuse.whole")  # names and kinds that hold words at which a refused value would end
_EXACT = frozenset(PHRASES.sections["refuse.exact"])
_SKIP, _TAIL, _STOP = PHRASES.words("refuse.skip"), PHRASES.words("refuse.tail"), PHRASES.words("refuse.stop")
_ADJECTIVES = tuple(PHRASES.words("refuse.adjectives"))
_TWO_WORD_PLACES: Final = frozenset("south north new hong united sri saudi costa el".split())
_COLOR_WORDS: Final = frozenset(("color", "colour", "colors", "colours"))
_LONGEST_NOUN: Final = 5  # "ring", "icing"
_THINGS_IN_ING = PHRASES.words("refuse.things.in.ing")
_OR: Final = ("or", "nor", "/")
# What after "and" speaks of something wanted: "no laces and a zipper", "no fragrance and good for dry skin".
_NEW_WISHES = PHRASES.words("refuse.new.wishes")
_AND: Final = ("and", "&", "plus")


@dataclass(frozen=True, slots=True)
class RefusedTokens:
    """A refusal, tokens [first, end); each of `values` is one refused thing as tokens [first, end)."""

    first: int
    end: int
    values: tuple[tuple[int, int], ...]


def read_refusal(words: Words, first: int, length: int, taken: set[int]) -> RefusedTokens | None:
    """Return the refusal of a cue of `length` tokens; None where nothing nameable follows ("no, the other one")."""
    cue, after = words.at(first), words.at(first + length)
    if cue == "without" and after.endswith("ing") and after not in _THINGS_IN_ING and len(after) > _LONGEST_NOUN:
        return None  # "without drilling" says how
    reader = _Refused(words, " ".join(words.texts[first : first + length]), taken)
    return reader.read(first, first + length)


class _Refused:
    def __init__(self, words: Words, cue: str, taken: set[int]) -> None:
        self._words = words
        self._cue = cue
        self._taken = taken

    def read(self, first: int, at: int) -> RefusedTokens | None:
        values: list[tuple[int, int]] = []
        if _WHOLE.match(self._words, at - 1) and at - 1 > first:  # "not in ear"
            at -= 1
        end = at
        while len(values) < _MAX_LISTED:
            value = self._value(at)
            if value is None or (values and self._is_new_wish(*value)):
                break
            values.append(value)
            end = self._after_tail(value[1])
            following = self._next_listed(end)
            if following is None:
                break
            at = following
        return RefusedTokens(first, end, tuple(values)) if values else None

    def _value(self, at: int) -> tuple[int, int] | None:
        words = self._words
        while words.at(at) in _SKIP and self._is_open(at) and _WHOLE.match(words, at) is None:
            at += 1
        first = at
        if whole := _WHOLE.match(words, first):
            return first, first + whole[0]
        while at - first < MAX_VALUE_WORDS + 2 and self._is_content(at, first):
            at += 1
        while at > first and self._is_trailing(at - 1):
            at -= 1
        if at == first or (at - first == 1 and is_number(words.at(first)) and self._cue.endswith("no")):
            return None
        if self._cue.endswith("made in") and self._words.at(first) not in _TWO_WORD_PLACES:
            at = first + 1
        return first, self._exact_end(first, at)

    def _is_trailing(self, at: int) -> bool:
        text = self._words.at(at)
        before = self._words.at(at - 1)
        if text in _COLOR_WORDS:
            return before in COLORS  # "no red color", but "no artificial colors"
        return text in ("-", "'", '"', "&", "+") or (text in _TAIL and before != "-")

    def _is_open(self, at: int) -> bool:
        return at < len(self._words.texts) and at not in self._taken

    def _is_content(self, at: int, first: int) -> bool:
        text = self._words.at(at)
        if not text or at in self._taken or text in BREAKS or text in ("/", "–", "—"):
            return False
        if at > first and self._words.at(at - 1) == "-":
            return True  # "post-it"
        if text == "-" or (text == "&" and self._words.touches(at - 1) and self._words.touches(at)):
            return at > first and self._words.touches(at - 1)
        if text in ("size", "sizes") or text == "of":
            return (at == first) == text.startswith("size")
        if text in _STOP or (at > first and (CUES.match(self._words, at) or _WISHES.match(self._words, at))):
            return False  # "blender not ninja cheapest" refuses no cheapest ninja
        return text not in _TAIL or text in _COLOR_WORDS or at == first

    def _exact_end(self, first: int, end: int) -> int:
        """Return the value's end after a bare "not", which refuses only a colour or material: "not black shoes"."""
        if self._cue not in _EXACT:
            return end
        at = first
        while at < end and self._words.at(at) in COLOR_MODIFIERS | MATERIAL_MODIFIERS:
            at += 1
        while at < end and self._words.at(at) in COLORS | MATERIALS:
            at += 1
        named = at > first and self._words.at(at - 1) in COLORS | MATERIALS
        return at if named and self._words.at(at) != "-" else end

    def _after_tail(self, at: int) -> int:
        while self._words.at(at) in _TAIL and self._is_open(at) and not _WISHES.match(self._words, at):
            at += 1
        return at

    def _next_listed(self, at: int) -> int | None:
        """Return where the next refused value starts: after "or", "and", or a comma of a list that ends with "or"."""
        text = self._words.at(at)
        if not self._is_open(at):
            return None
        if text in _OR:
            return at + 1
        if text in _AND:
            return None if self._words.at(at + 1) in _NEW_WISHES else at + 1
        if text == ",":
            if self._words.at(at + 1) in (*_OR, *_AND):
                return at + 2 if self._words.at(at + 1) in _OR else None
            following = self._value(at + 1)
            return at + 1 if following and self._leads_to_or(following[1]) else None
        return None

    def _leads_to_or(self, at: int) -> bool:
        for _ in range(_MAX_LISTED):
            if self._words.at(at) in _OR or (self._words.at(at) == "," and self._words.at(at + 1) in _OR):
                return True
            following = self._value(at + 1) if self._words.at(at) == "," else None
            if following is None:
                return False
            at = following[1]
        return False

    def _is_new_wish(self, first: int, end: int) -> bool:
        """Tell whether the word after "and" is wanted: "without laces and waterproof"."""
        joined = self._words.at(first - 1) in _AND
        last = self._words.at(end - 1)
        return joined and (last.endswith(_ADJECTIVES) or is_number(self._words.at(first)) or end - first > 2)
