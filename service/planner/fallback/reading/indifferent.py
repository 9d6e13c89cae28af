"""What a shopper does not mind and so names nothing: "any colour", "not fussed about the brand", "me da igual"."""

from typing import Final, NamedTuple

from service.planner.fallback.reading.language_data import LanguageData
from service.planner.fallback.reading.tokens import BREAKS, Words

ANY: Final = "any"  # an attribute that is left out of the search text, and no more
_SECTION: Final = "attribute."
_LAST: Final = "indifferent.last"  # cues whose attribute ends a clause: "forget the colour"


class Indifferent(NamedTuple):
    """Tokens [first, end) of a phrase, and the attribute that does not matter: "color", "price"."""

    first: int
    end: int
    attribute: str


class Indifference:
    """Finds attributes that do not matter, in one language; none where its data has no section for them."""

    def __init__(self, data: LanguageData) -> None:
        self._cues = data.trie("indifferent", _LAST)
        self._alone = data.trie("indifferent.alone")  # cues that say so only where nothing else is said: "all colours"
        self._tail = data.words("word.indifferent.alone.tail")
        self._but = data.words("word.indifferent.alone.but")
        self._attributes = data.trie(*data.names(_SECTION))
        self._after = data.trie("indifferent.after")
        self._between = data.words("word.indifferent.between")
        self.begins = self._cues.starts | self._alone.starts | self._attributes.starts

    def find(self, words: Words, at: int) -> Indifferent | None:
        """Return the phrase that begins at a token: "any colour", "the colour does not matter"; None if none does."""
        cue = self._cues.match(words, at)
        found = self.after_cue(words, at, at + cue[0]) if cue else None
        if cue and found and cue[1] == _LAST and not self._ends(words, found.end):
            found = None  # "remove the make up"
        return found or self._before_cue(words, at) or (self._said_alone(words) if at == 0 else None)

    def after_cue(self, words: Words, first: int, end: int) -> Indifferent | None:
        """Return the phrase whose cue is [first, end); None where no attribute follows it."""
        while words.at(end) in self._between:
            end += 1
        if (found := self._attributes.match(words, end)) is None:
            return None
        end += found[0]
        tail = self._after.match(words, end)
        return Indifferent(first, end + (tail[0] if tail else 0), found[1].removeprefix(_SECTION))

    def _ends(self, words: Words, end: int) -> bool:
        text = words.at(end)
        return not text or text in BREAKS or text in self._tail

    def _said_alone(self, words: Words) -> Indifferent | None:
        cue = self._alone.match(words, 0)
        found = self.after_cue(words, 0, cue[0]) if cue else None
        if found is None or words.at(found.end) in self._but:
            return found
        return found._replace(end=len(words.texts)) if self._tail.issuperset(words.texts[found.end :]) else None

    def _before_cue(self, words: Words, at: int) -> Indifferent | None:
        """Return the phrase that begins with an attribute at `at`: "the colour isn't important"."""
        found = self._attributes.match(words, at)
        tail = self._after.match(words, at + found[0]) if found else None
        if found is None or tail is None:
            return None
        return Indifferent(at, at + found[0] + tail[0], found[1].removeprefix(_SECTION))
