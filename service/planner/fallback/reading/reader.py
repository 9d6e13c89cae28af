"""What a language must answer: all that is said in words of one language is read through it."""

from typing import Protocol

from service.planner.fallback.reading.phrases import Phrases
from service.planner.fallback.reading.wishes import Said


class Reader(Protocol):
    """Reads what shoppers say in one language; every answer is total, whatever the text."""

    @property
    def language(self) -> str:
        """The language, ISO 639-1: "en"."""
        ...

    @property
    def function_words(self) -> frozenset[str]:
        """Words that carry no meaning of their own, folded."""
        ...

    @property
    def prepositions(self) -> frozenset[str]:
        """Words with which an utterance goes on about a thing: "con", "mit", "avec"."""
        ...

    @property
    def labels(self) -> frozenset[str]:
        """Words before a size."""
        ...

    def phrases(self, utterance: str, locale: str = "") -> Phrases:
        """Return its closed phrases: price and currency, rating, sort, offers, refusals, and what it takes back.

        The `locale`, a BCP 47 tag, decides how numbers are written and whose "$" is meant.
        """
        ...

    def read(self, utterance: str, locale: str = "") -> Said:
        """Return what it says and what it asks for."""
        ...

    def intent(self, utterance: str) -> str | None:
        """Return the intent where closed phrases tell it: of support, of an order; None where they do not."""
        ...

    def fold(self, text: str) -> str:
        """Return a word as the language compares it."""
        ...
