"""Reads any language from the data of its folder: what an utterance says, and the intent that closed phrases tell."""

import re
from collections.abc import Callable, Sequence
from functools import cached_property

from service.planner.fallback.reading.language_data import LanguageData
from service.planner.fallback.reading.phrases import Phrases
from service.planner.fallback.reading.refusals import CUES
from service.planner.fallback.reading.tokens import words_of
from service.planner.fallback.reading.utterance import Reading
from service.planner.fallback.reading.wishes import Said, Wishes
from service.planner.money import region_of
from service.planner.text import fold

_SUPPORT = "support."
_LEAST_RESPELT = 6  # letters
Respell = Callable[[Sequence[str], frozenset[str]], dict[int, str]]


class PhraseReader:
    """Reads one language; `Reader` says what its methods answer."""

    def __init__(self, data: LanguageData, respell: Respell | None = None) -> None:
        """Take the language's data, and what finds those of a text's words that are misspelt ones of a set."""
        self.language = data.language
        self._data = data
        self._respell = respell

    @cached_property
    def _wishes(self) -> Wishes:
        return Wishes(self._data)

    @cached_property
    def function_words(self) -> frozenset[str]:
        """Words that carry no meaning of their own."""
        return self._data.words("word.function")

    @cached_property
    def prepositions(self) -> frozenset[str]:
        """Words with which an utterance goes on about a thing: "con", "mit", "avec"."""
        return self._data.words("word.prepositions")

    @cached_property
    def telling_words(self) -> frozenset[str]:
        """Words that tell the language of a short text."""
        sections = ("word.detect", "word.function", "word.units", "word.counted")
        named = (phrase for kind in ("color", "material", "audience") for phrase in self._data.phrases(f"facet.{kind}"))
        shared = self._data.shared_words
        listed = frozenset[str]().union(*map(self._data.words, sections))
        return (listed | {phrase for phrase in named if " " not in phrase}) - shared

    @cached_property
    def other_words(self) -> frozenset[str]:
        """Words of the closed phrases and patterns, which tell the language where English has none of them."""
        return self._data.words_of_phrases()

    @cached_property
    def labels(self) -> frozenset[str]:
        """Words before a size."""
        return self._data.words("word.size.labels")

    def prepare(self) -> None:
        """Read the files and compile them, which takes a while: before the first question, which would wait."""
        self.intent("")
        self.read("")

    def phrases(self, utterance: str, locale: str = "") -> Phrases:
        """Return the closed phrases of an utterance. Total."""
        region = region_of(locale)
        words = words_of(utterance, self._data.umlauts, region.decimal_mark)
        is_long = max(map(len, words.texts), default=0) >= _LEAST_RESPELT
        if is_long and self._respell is not None and (right := self._respell(words.texts, self._closed_words)):
            words = words.with_texts(right)
        return Reading(self._wishes.utterances, words, region.territory).phrases()

    @cached_property
    def _closed_words(self) -> frozenset[str]:
        """The words of closed phrases that are told although they are misspelt: short ones are near to others."""
        names = (*CUES, *(name for start in ("sort.", "offer.", "price.") for name in self._data.names(start)))
        found = (word for name in names for phrase in self._data.phrases(name) for word in phrase.split())
        return frozenset(word for word in found if len(word) >= _LEAST_RESPELT)

    def read(self, utterance: str, locale: str = "") -> Said:
        """Return what an utterance says and what it asks for. Total."""
        return self._wishes.read(utterance, region_of(locale))

    def fold(self, text: str) -> str:
        """Return a word as the language compares it."""
        return fold(text, self._data.umlauts)

    def intent(self, utterance: str) -> str | None:
        """Return the intent that closed phrases tell: of talk, scope, support or an order; None where they do not."""
        joined = words_of(utterance, self._data.umlauts, "").joined
        if self._is_talk(joined):
            return "small_talk"
        for name, pattern in self._support:
            if pattern.search(joined):
                return name
        return "out_of_scope" if any(pattern.search(joined) for _, pattern in self._scope) else None

    @cached_property
    def _support(self) -> list[tuple[str, re.Pattern[str]]]:
        return self._data.patterns(_SUPPORT)

    @cached_property
    def _scope(self) -> list[tuple[str, re.Pattern[str]]]:
        return self._data.patterns("scope")

    @cached_property
    def _talk(self) -> re.Pattern[str]:
        ((_, pattern),) = self._data.patterns("talk")
        return pattern

    def _is_talk(self, joined: str) -> bool:
        """Tell whether an utterance is made of talk alone."""
        rest = joined
        while rest:
            match = self._talk.match(rest)
            if match is None or not match.end():
                return False
            rest = rest[match.end() :].lstrip()
        return any(character.isalpha() for character in joined)
