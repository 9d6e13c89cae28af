"""English behind the `Reader` protocol."""

from collections.abc import Iterable
from typing import Final

from service.planner.reading.en import lists, spelling, trimming
from service.planner.reading.en.utterance import read_phrases
from service.planner.reading.phrases import Phrases, Span
from service.planner.reading.reader import Reader


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


ENGLISH: Final[Reader] = English()
