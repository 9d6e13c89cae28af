"""A language that is data behind one reader: what an utterance says, and the intent that closed phrases tell."""

import re
from functools import cached_property
from pathlib import Path

from service.planner.reading.generic.data import LanguageData
from service.planner.reading.generic.utterance import Said, Utterances
from service.planner.reading.generic.words import FoldedWords, fold

_SUPPORT = "support."


class PhraseReader:
    """Reads one language from the data of its folder."""

    def __init__(self, folder: Path, *, umlauts: bool = False) -> None:
        """Take the folder, named by its language, ISO 639-1; `umlauts`: "ae" may stand for "ä"."""
        self.language = folder.name
        self._folder = folder
        self._umlauts = umlauts

    @cached_property
    def _data(self) -> LanguageData:
        return LanguageData(self._folder, umlauts=self._umlauts)

    @cached_property
    def _utterances(self) -> Utterances:
        return Utterances(self._data)

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

    def read(self, utterance: str, territory: str | None = None) -> Said:
        """Return what one utterance says. Total."""
        return self._utterances.read(utterance, territory)

    def fold(self, text: str) -> str:
        """Return a word as the language compares it."""
        return fold(text, self._umlauts)

    def intent(self, utterance: str) -> str | None:
        """Return the intent that closed phrases tell: of talk, scope, support or an order; None where they do not."""
        joined = FoldedWords(utterance, umlauts=self._umlauts).joined
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
