"""What a shopper does not mind and so names nothing: "any colour", "not fussed about the brand", "size is fine"."""

from service.planner.reading.language_data import LanguageData
from service.planner.reading.tokens import Words


class Indifference:
    """Finds attributes that do not matter, in one language; none where its data has no section for them."""

    def __init__(self, data: LanguageData) -> None:
        self.attributes = data.words("word.indifferent.attributes")
        self._after = data.trie("indifferent.after")
        self._between = data.words("word.indifferent.between")
        self._joins = data.words("word.indifferent.joins")
        self._before = data.words("word.indifferent.before")
        self._denies = data.words("word.indifferent.denies")

    def after_cue(self, words: Words, first: int, end: int) -> tuple[int, int] | None:
        """Return the tokens of a phrase whose cue is [first, end); None where no attribute follows it."""
        while words.at(end) in self._between:
            end += 1
        reached = self._attributes(words, end)
        if reached is None:
            return None
        tail = self._after.match(words, reached)
        return self._lead_in(words, first), reached + (tail[0] if tail else 0)

    def before_cue(self, words: Words, at: int) -> tuple[int, int] | None:
        """Return the tokens of a phrase that begins with an attribute at `at`: "the colour isn't important"."""
        reached = self._attributes(words, at)
        tail = self._after.match(words, reached) if reached is not None else None
        if reached is None or tail is None:
            return None
        return self._lead_in(words, at - (words.at(at - 1) == "the")), reached + tail[0]

    def _attributes(self, words: Words, at: int) -> int | None:
        """Return the end of the attributes that begin at `at`: "brand", "colour or size"."""
        if words.at(at) not in self.attributes or words.at(at + 1) in self._denies:
            return None
        while words.at(at + 1) in self._joins and words.at(at + 2) in self.attributes:
            at += 2
        return at + 1

    def _lead_in(self, words: Words, first: int) -> int:
        while words.at(first - 1) in self._before:
            first -= 1
        return first
