"""What a language must answer: a folder beside `en` keeps this protocol.

Everything that is said in words of one language is read through it. Positions are characters of the utterance.
"""

from collections.abc import Iterable
from typing import Protocol

from service.planner.reading.phrases import Phrases, Span


class Reader(Protocol):
    """Reads what shoppers say in one language; every answer is total, whatever the text."""

    @property
    def language(self) -> str:
        """The language, ISO 639-1: "en"."""
        ...

    def phrases(self, utterance: str) -> Phrases:
        """Return its closed phrases: price and currency, rating, sort, offers, refusals, and what it takes back."""
        ...

    def without(self, utterance: str, spans: Iterable[Span]) -> str:
        """Return it without the spans and the words that only led to them, as a person would type what remains."""
        ...

    def correct(self, text: str) -> str:
        """Return the text with its misspelt words corrected; the same text where the language has no word list."""
        ...

    def intent(self, utterance: str) -> str | None:
        """Return the intent where closed phrases tell it: of support, of an order; None where they do not."""
        ...
