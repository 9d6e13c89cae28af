"""English behind the `Reader` protocol."""

from collections.abc import Iterable
from typing import Final

from service.planner.reading.en import lists, spelling, trimming
from service.planner.reading.en.amounts import find_amounts
from service.planner.reading.en.data import PHRASES
from service.planner.reading.en.utterance import read_phrases
from service.planner.reading.phrases import Phrases, Span, SpokenPrice
from service.planner.reading.reader import Reader
from service.planner.reading.tokens import Words

# An amount that stands alone with these replaces the price before it: "make that 500", "i can go up to 80".
_RESTATING = PHRASES.words("price.restating")


class English:
    """Reads English."""

    language: Final = "en"

    def phrases(self, utterance: str) -> Phrases:
        return read_phrases(utterance)

    def without(self, utterance: str, spans: Iterable[Span]) -> str:
        return trimming.without(utterance, spans)

    def correct(self, text: str) -> str:
        return spelling.correct(text)

    def intent(self, utterance: str) -> str | None:
        return next((intent for intent, pattern in lists.SUPPORT_INTENTS if pattern.search(utterance)), None)

    def amount_alone(self, utterance: str) -> SpokenPrice | None:
        words = Words(utterance)
        amounts = find_amounts(words, frozenset())
        if len(amounts) != 1:
            return None
        (amount,) = amounts
        rest = [*words.texts[: amount.first], *words.texts[amount.end :]]
        if any(text.isalnum() and text not in _RESTATING for text in rest):
            return None
        return SpokenPrice(amount.value, amount.value, amount.currency, words.span(amount.first, amount.end))


ENGLISH: Final[Reader] = English()
