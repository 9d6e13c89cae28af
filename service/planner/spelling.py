"""Corrects words that are spelt wrong, with a list of the words of products (`words.txt`, made by `training.words`).

Candidates are words one edit away, and words that sound alike up to one edit: of equal or similar consonants. The
cheapest edit wins, the more frequent word among equals. Words on the list, short words and words with digits stay.
Where a shop's lexicon is in use, its words stay too, and a misspelt word becomes one of them before any other.
"""

import re
from collections import defaultdict
from collections.abc import Callable, Iterable, Iterator
from contextvars import ContextVar
from functools import cache, lru_cache
from math import inf, log
from pathlib import Path
from typing import Final, NamedTuple
from weakref import WeakKeyDictionary

from service.planner.shop import current
from service.planner.shop.folder import Lexicon

WORDS_PATH = Path(__file__).with_name("words.txt")
_LEAST_LETTERS = 4
_LEAST_ORDINARY = 7  # letters of a word that may become one that is no product's
_MOST_CORRECTED = 6  # words of a question: an upper bound on the time that a hostile one can take
_MOST_LETTERS = 24  # of a conversation's misspelt words in all: each letter has some 50 other spellings to look up
_LONGEST = 20
_ALPHABET = "abcdefghijklmnopqrstuvwxyz"
_ENDINGS = ("'s", "s", "es", "ly")
_VOWELS = frozenset("aeiouy")
_SOUNDS = {"ght": "t", "tch": "ch", "ph": "f", "kn": "n", "wr": "r", "gn": "n", "qu": "k", "ck": "k", "x": "ks",
           "sch": "sk", "dg": "j", "tion": "shn", "c": "k", "z": "s", "g": "j"}  # fmt: skip
_SOUND = re.compile("|".join(sorted(_SOUNDS, key=len, reverse=True)))
_DOUBLED = re.compile(r"(.)\1+")
_SILENT = str.maketrans("", "", "aeiouyh")
_NEIGHBOURS = {
    letter: set(row[max(0, at - 1) : at + 2]) - {letter}
    for row in ("qwertyuiop", "asdfghjkl", "zxcvbnm")
    for at, letter in enumerate(row)
}
_PAIRS = frozenset(("ck", "kc", "cs", "sc", "sz", "zs", "gj", "jg", "td", "dt", "nm", "mn", "fv", "vf", "bp", "pb"))
# What this conversation has had looked up. A request has a context of its own, so that no other one uses it up.
LOOKED_UP: ContextVar[dict[str, None] | None] = ContextVar("looked up", default=None)
_WEIGHT = 0.2  # of a word's logarithmic frequency, against edits


class Words(NamedTuple):
    """The list: words of products with their counts, other known words, frequent slips.

    `by_sound` are the words of products by `_sound`; `facets` the facet that a word mostly names ("type" for one that
    names a thing), and `verticals` the vertical of such things.
    """

    counts: dict[str, int]
    known: frozenset[str]
    slips: dict[str, str]
    by_sound: dict[str, list[str]]
    facets: dict[str, str]
    verticals: dict[str, str]


@cache
def words() -> Words:
    """Read the list, once. Raises OSError."""
    counts: dict[str, int] = {}
    slips: dict[str, str] = {}
    facets: dict[str, str] = {}
    verticals: dict[str, str] = {}
    others: dict[str, list[str]] = {"[known]": []}
    by_sound: dict[str, list[str]] = defaultdict(list)
    section = ""
    for line in WORDS_PATH.read_text(encoding="ascii").splitlines():
        if line.startswith(("#", "[")):
            section = line
        elif section == "[products]":
            word, count, facet, vertical = line.split(" ")
            counts[word] = int(count)
            by_sound[_sound(word)].append(word)
            if facet != "-":
                facets[word] = facet
            if vertical != "-":
                verticals[word] = vertical
        elif section == "[slips]":
            wrong, _, slips[wrong] = line.partition(" ")
        else:
            others[section] += line.split()
    return Words(counts, frozenset(others["[known]"]), slips, dict(by_sound), facets, verticals)


def correct(text: str) -> str:
    """Return the text with its misspelt words corrected, or the same text."""
    found = text.split()
    budget = _MOST_CORRECTED
    for at, word in enumerate(found):
        if budget and (right := correct_word(word)) != word:
            found[at] = right
        budget -= not is_known(word)
        if not budget:
            break
    return " ".join(found)


def is_known(word: str) -> bool:
    """Tell whether a word needs no correction."""
    if current.SHOPS and (shop := current.lexicon()) is not None and word in shop:
        return True
    if len(word) < _LEAST_LETTERS or not word.isascii() or not word.isalpha():
        return word not in words().slips
    counts, known, slips = words()[:3]
    if word in slips:
        return False
    if word in counts or word in known:
        return True
    if not word.endswith("s") and (word + "s" in counts or word + "s" in known):  # "litre": the list has "litres"
        return True
    stems = (word.removesuffix(ending) for ending in _ENDINGS if word.endswith(ending))
    return any(len(stem) >= _LEAST_LETTERS and (stem in counts or stem in known) for stem in stems)


def begin_conversation() -> None:
    """Look up misspelt words anew: of each conversation only so many letters, whatever was looked up before."""
    LOOKED_UP.set({})


def _corrected(word: str) -> tuple[str, bool]:
    """Return the likeliest spelling and True; the word itself and False once a conversation had its share looked up."""
    if is_known(word) or len(word) > _LONGEST:
        return word, True
    looked_up = LOOKED_UP.get()
    if looked_up is not None and word not in looked_up:
        if sum(map(len, looked_up)) + len(word) > _MOST_LETTERS:
            return word, False
        looked_up[word] = None
    return _nearest(word), True


def use_shop(lexicon: Lexicon | None, of_arms: Iterable[Lexicon | None] = ()) -> None:
    """Read words as those of a shop from now on, or without one; what was read of words before is forgotten.

    `of_arms` are the shops of an experiment's arms, which `current.reading` chooses for a request.
    """
    current.use(lexicon, of_arms)
    CORRECTED.forget()


_MOST = 4096


class _NoShop:
    """What is remembered of words in no shop belongs to this."""


_NO_SHOP: Final = _NoShop()


class Remembered(dict[str, str]):
    """What is known of words. All is forgotten when it is full; what `find` is not sure of is not kept.

    Where arms are read in shops of their own, nothing is in the dictionary itself, and each shop has one apart.
    """

    def __init__(self, find: Callable[[str], tuple[str, bool]]) -> None:
        super().__init__()
        self._find = find
        # A request that outlasts a reload must not keep the shop from before it.
        self._apart: WeakKeyDictionary[object, dict[str, str]] = WeakKeyDictionary()

    def __missing__(self, word: str) -> str:
        kept = self._of_shop()
        if kept is not self and (known := kept.get(word)) is not None:
            return known
        found, is_sure = self._find(word)
        if is_sure:
            if len(kept) >= _MOST:
                kept.clear()
            kept[word] = found
        return found

    def knows(self, word: str) -> bool:
        return word in self._of_shop()

    def forget(self) -> None:
        self.clear()
        self._apart.clear()

    def _of_shop(self) -> dict[str, str]:
        return self._apart.setdefault(current.lexicon() or _NO_SHOP, {}) if current.APART else self


CORRECTED: Final = Remembered(_corrected)
# The likeliest spelling of a lower-case word; the word itself where nothing is near, or too many were looked up.
correct_word = CORRECTED.__getitem__


def _nearest(word: str) -> str:
    """Return the likeliest spelling of a word that is not known."""
    if (shop := current.lexicon()) is not None and (found := _of_shop(word, shop)):
        return found
    counts, _, slips, by_sound = words()[:4]
    if word in slips:
        return slips[word]
    sound = _sound(word)
    near = [edit for edit in edits(word) if edit in counts] + by_sound.get(sound, []) + _plurals(word)
    return (
        _best(word, near)
        or _best(word, (same for edit in edits(sound) for same in by_sound.get(edit, ())))
        or _best(word, _ordinary(word))
        or word
    )


def _of_shop(word: str, shop: Lexicon) -> str | None:
    """Return the nearest word of the shop; None where none is near."""
    sound = _sound(word)
    near = [edit for edit in edits(word) if edit in shop] + shop.sounding(sound)
    return _best(word, near, shop.count) or _best(
        word, (same for edit in edits(sound) for same in shop.sounding(edit)), shop.count
    )


def _plurals(word: str) -> list[str]:
    """Return the plurals near a word of which the list has the singular: "joggers"."""
    if not word.endswith("s") or len(word) <= _LEAST_LETTERS:
        return []
    return [f"{edit}s" for edit in edits(word[:-1]) if len(edit) >= _LEAST_LETTERS and edit in words().counts]


def _ordinary(word: str) -> list[str]:
    """Return the words one edit inside a long one that name no product on the list; names and forms differ at ends."""
    if len(word) < _LEAST_ORDINARY:
        return []
    inner = (word[0] + edit + word[-1] for edit in edits(word[1:-1]))
    return [candidate for candidate in inner if candidate in words().known]


def _count(word: str) -> int:
    return words().counts.get(word, 0)


def _best(word: str, candidates: Iterable[str], count: Callable[[str], int] = _count) -> str | None:
    """Return the nearest candidate that is near enough; a frequent word may be a little farther."""
    letters, allowed = set(word), _allowed(len(word))
    near: list[tuple[float, str]] = []  # of equal cost, the first in the alphabet, whatever order a set has
    for candidate in set(candidates):
        if abs(len(candidate) - len(word)) > 2 or len(letters ^ set(candidate)) > 3:
            continue
        edits_apart = distance(word, candidate, allowed)
        if edits_apart <= allowed:
            near.append((edits_apart - _WEIGHT * log(count(candidate) or 1), candidate))
    return min(near)[1] if near else None


def _allowed(length: int) -> float:
    return 1.0 if length == _LEAST_LETTERS else 1.3 if length <= 6 else 2.0


def edits(word: str) -> Iterator[str]:
    """Yield every text one deletion, transposition, substitution or insertion away."""
    for at in range(len(word) + 1):
        left, right = word[:at], word[at:]
        if right:
            yield left + right[1:]
        if len(right) > 1:
            yield left + right[1] + right[0] + right[2:]
        for letter in _ALPHABET:
            if right:
                yield left + letter + right[1:]
            yield left + letter + right


def _sound(word: str) -> str:
    """Return the consonants of a word as they sound, without doubled ones; a first vowel stays."""
    first = "a" if word[:1] in _VOWELS else ""
    heard = _SOUND.sub(lambda match: _SOUNDS[match.group()], word)
    return first + _DOUBLED.sub(r"\1", heard).translate(_SILENT)


def sounds(found: Iterable[str]) -> dict[str, str]:
    """Return the sounds of those words that a misspelt one may be corrected to."""
    return {word: _sound(word) for word in found if word.isascii() and word.isalpha() and len(word) >= _LEAST_LETTERS}


def distance(wrong: str, right: str, most: float = inf) -> float:
    """Return the weighted Damerau-Levenshtein distance (optimal string alignment); frequent slips cost less.

    What is certainly farther than `most` is infinitely far.
    """
    missing = [_gap(right, at) for at in range(len(right))]
    before: list[float] = []
    row = [0.0]
    for gap in missing:
        row.append(row[-1] + gap)
    for i, letter in enumerate(wrong):
        surplus = _gap(wrong, i)
        older, before, row = before, row, [row[0] + surplus]
        for j, wanted in enumerate(right):
            cost = min(before[j] + _change(letter, wanted), before[j + 1] + surplus, row[j] + missing[j])
            if i and j and letter == right[j - 1] and wrong[i - 1] == wanted and letter != wanted:
                cost = min(cost, older[j - 1] + 0.6)
            row.append(cost)
        if min(row) > most and min(before) > most:  # of two rows, since a transposition passes one over
            return inf
    first = 0.0 if wrong[0] == right[0] or wrong[:2] == right[1::-1] else 0.4
    return row[-1] + first


def _gap(word: str, at: int) -> float:
    """Return the cost of a letter too many or too few: doubled letters and vowels slip in and out."""
    letter = word[at]
    if (at and word[at - 1] == letter) or word[at + 1 : at + 2] == letter:
        return 0.35
    return 0.75 if letter in _VOWELS or letter == "h" else 0.9


@lru_cache(maxsize=4096)
def _change(letter: str, wanted: str) -> float:
    if letter == wanted:
        return 0.0
    if letter in _VOWELS and wanted in _VOWELS:
        return 0.6
    if letter + wanted in _PAIRS:
        return 0.65
    return 0.8 if wanted in _NEIGHBOURS.get(letter, ()) else 1.1  # a capital has none
