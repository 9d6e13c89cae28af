"""What a shopper does not mind and so names nothing: "any colour", "not fussed about the brand", "size is fine"."""

from service.planner.reading.language_data import LanguageData
from service.planner.reading.tokens import Words


class Indifference:
    """Finds attributes that do not matter, in one language; none where its data has no section for them."""

    def __init__(self, data: LanguageData) -> None:
        self.attributes = data.words("word.indifferent.attributes")
        self._after = data.trie("indifferent.after")
        self._between = data.words("word.indifferent.between")

    def after_cue(self, words: Words, first: int, end: int) -> tuple[int, int] | None:
        """Return the tokens of a phrase whose cue is [first, end); None where no attribute follows it."""
        while words.at(end) in self._between:
            end += 1
        if words.at(end) not in self.attributes:
            return None
        tail = self._after.match(words, end + 1)
        return first, end + 1 + (tail[0] if tail else 0)

    def before_cue(self, words: Words, at: int) -> tuple[int, int] | None:
        """Return the tokens of a phrase that begins with an attribute at `at`: "the colour isn't important"."""
        tail = self._after.match(words, at + 1) if words.at(at) in self.attributes else None
        return (at - (words.at(at - 1) == "the"), at + 1 + tail[0]) if tail else None
