"""Which language a short text is in: by words that tell it, by its letters, and by the word list of English."""

from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from functools import cached_property, lru_cache
from itertools import repeat
from math import log
from typing import Final

from service.planner.fallback.reading.language_data import SHARED
from service.planner.fallback.reading.phrase_reader import PhraseReader
from service.planner.fallback.reading.tokens import words_of
from service.planner.spelling import words as english_words
from service.planner.text import lines_of_sections

_LETTERS: Final = {
    letter: name for name, letters in (("es", "ñ¿¡áíóú"), ("de", "ßäöü"), ("fr", "èêçùœàâûî")) for letter in letters
}
_ACCENTED: Final = {"es": frozenset("áéíóúüñ"), "de": frozenset("äöüß"), "fr": frozenset("àâçèéêëîïôùûœ")}
_LETTER_WEIGHT: Final = 1.0
_SHARED: Final = 0.5  # of a word's weight, where English has the word, too
_SMOOTHING: Final = 0.5
_MARGIN: Final = 2.5  # of logarithms
_GUESSED: Final = 0.6
_KNOWN: Final = 0.4  # for English, of a word on its list
_LEAST: Final = 0.85  # less tells nothing by itself
_ENGLISH: Final = "en"
_OTHER: Final = "other"
Count = tuple[str, float]  # a language and what counts for it


class Detector:
    """Tells languages apart by words that one of them alone has; a word of several counts for each a little."""

    def __init__(self, readers: Mapping[str, PhraseReader]) -> None:
        self._readers = readers
        self._told_by = lru_cache(maxsize=8192)(self._tells)
        self._is_of_no_other = lru_cache(maxsize=8192)(self._tells_no_other)

    @cached_property
    def _words(self) -> dict[str, dict[str, float]]:
        """The weight of each telling word for each language: 1, shared among the languages that have it."""
        sets = {name: set(reader.telling_words) for name, reader in self._readers.items()}
        sections = lines_of_sections(SHARED)
        for name in (_ENGLISH, _OTHER):
            sets[name] = {word for line in sections[f"word.detect.{name}"] for word in line.split()}
        for name, reader in self._readers.items():
            sets[name] |= {word for word in reader.other_words if not self._is_english(word)}
        found: dict[str, dict[str, float]] = {}
        for word in set().union(*sets.values()):
            having = [name for name, words in sets.items() if word in words]
            for name in having:
                found.setdefault(word, {})[name] = 1.0 if len(having) == 1 else 0.6 / len(having)
        return found

    @cached_property
    def _small(self) -> frozenset[str]:
        """Function words of the languages, which no English text has, though its word list may."""
        return frozenset().union(*(reader.function_words for reader in self._readers.values())) - _ENGLISH_TOO

    @cached_property
    def _plain(self) -> frozenset[str]:
        """Words of English that tell no other language: a text of these alone needs no closer look."""
        english = english_words()
        others = {word for word, weights in self._words.items() if _ENGLISH not in weights} - _ENGLISH_TOO
        return frozenset(word for word in (*english.counts, *english.known, *_ENGLISH_TOO) if word not in others)

    def is_surely_english(self, text: str) -> bool:
        """Tell cheaply whether no word of a text counts more for another language than for English, as in most."""
        return text.isascii() and all(map(self._is_of_no_other, words_of(text, False, "").texts))

    def _tells_no_other(self, token: str) -> bool:
        told, guessed = self._told_by(token, True)
        return not guessed and dict(told).get(_ENGLISH, 0.0) >= max((weight for _, weight in told), default=0.0)

    def language(self, text: str, preferred: str | None = None) -> str | None:
        """Return the language of a text, "en" and "other" included; None where nothing tells one.

        `preferred`, the locale's, wins over words that do not surely tell another.
        """
        words = (word for word in text.lower().split() if word.isalpha())
        if not preferred and text.isascii() and self._plain.issuperset(words):
            return None
        return self._language(text, preferred)

    def _language(self, text: str, preferred: str | None) -> str | None:
        scores, guesses = self._scores(text)
        for name, guessed in guesses.items():
            # a word that no list has is a slip as often as another language, where the rest is English
            scores[name] += guessed if scores[name] or not scores[_ENGLISH] else 0.0
        best = max(scores, key=lambda name: scores[name])
        second = max(score for name, score in scores.items() if name != best)
        if preferred in (*self._readers, _ENGLISH):
            is_sure = scores[best] >= 2 and scores[best] >= 2 * scores.get(preferred, 0) + 1
            return best if is_sure else preferred
        if preferred:
            return _OTHER if scores[best] < 2 or scores[best] < 2 * second else best
        if scores[best] <= second or scores[best] < _LEAST:
            return None
        return best

    def _scores(self, text: str) -> tuple[dict[str, float], dict[str, float]]:
        guesses = dict.fromkeys(self._readers, 0.0)
        scores = dict.fromkeys((*self._readers, _ENGLISH, _OTHER), 0.0)
        lowered = text.lower()
        for letter in () if text.isascii() else set(lowered) - _ASCII:
            if letter in _LETTERS:
                scores[_LETTERS[letter]] += _LETTER_WEIGHT
            elif letter.isalpha() and not any(letter in letters for letters in _ACCENTED.values()):
                scores[_OTHER] += _LETTER_WEIGHT
        for told, guessed in self._told(text):
            for name, weight in told:
                scores[name] += weight
            for name, weight in guessed:
                guesses[name] += weight
        return scores, guesses

    def _told(self, text: str) -> Iterator[tuple[Sequence[Count], Sequence[Count]]]:
        """Return what each token tells, once."""
        words = words_of(text, False, "")
        if text.isascii():
            return map(self._told_by, dict.fromkeys(words.texts), repeat(True))
        starts = dict(zip(words.texts, words.starts, strict=True)).items()
        return (self._told_by(token, text[at : at + len(token)].lower() == token) for token, at in starts)

    def _tells(self, token: str, is_spelt_so: bool) -> tuple[Sequence[Count], Sequence[Count]]:
        """Return what a token tells of languages, and what is guessed of one that no list has."""
        if len(token) < 2:
            return (), ()
        is_english = len(token) > 2 and token not in self._small and is_spelt_so and self._is_english(token)
        weights = self._words.get(token)
        told = [
            # "table" and "robe" are French in a French text, and tell little of an English one
            (name, weight if name in (_ENGLISH, _OTHER) or not is_english else weight * _SHARED)
            for name, weight in (weights or {}).items()
        ]
        if is_english and (weights is None or _ENGLISH not in weights):
            told.append((_ENGLISH, _KNOWN))
        elif weights is None and token.isalpha() and len(token) > 4:
            return told, self._guessed(token)
        return told, ()

    def _is_english(self, token: str) -> bool:
        english = english_words()
        return token in english.counts or token in english.known

    @cached_property
    def _trigrams(self) -> dict[str, dict[str, float]]:
        """Return the logarithm of each trigram's share of a language's words, by trigram."""
        english = english_words()
        lists = {name: reader.telling_words | reader.other_words for name, reader in self._readers.items()}
        lists[_ENGLISH] = frozenset((*english.counts, *english.known))
        counts = {name: Counter(part for word in words for part in _parts(word)) for name, words in lists.items()}
        totals = {name: found.total() + _SMOOTHING * len(found) for name, found in counts.items()}
        parts = {part for name in self._readers for part in counts[name]}
        return {
            part: {name: log((counts[name][part] + _SMOOTHING) / totals[name]) for name in counts} for part in parts
        }

    def _guessed(self, token: str) -> list[Count]:
        """Count a word that no list has for the language whose words have its trigrams far more often than others'."""
        sums = dict.fromkeys((*self._readers, _ENGLISH), 0.0)
        for part in _parts(token):
            for name, share in self._trigrams.get(part, {}).items():
                sums[name] += share
        (least, best), (second, _) = [(sums[name], name) for name in sorted(sums, key=lambda name: -sums[name])[:2]]
        return [(best, _GUESSED)] if least - second > _MARGIN and best != _ENGLISH else []


def _parts(word: str) -> list[str]:
    padded = f" {word} "
    return [padded[at : at + 3] for at in range(len(padded) - 2)]


# Small words of the languages that English texts have, too.
_ENGLISH_TOO: Final = frozenset(
    "die der den man war was so an am in on or me he has son pour sale se plus as est dans tan no ni entre ten car si "
    "mit bin her chez van sur bis ist".split()
)
_ASCII = frozenset(map(chr, range(128)))
