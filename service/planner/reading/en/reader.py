"""English behind the `Reader` protocol."""

from typing import Final

from service.planner.reading.en import lists, spelling, trimming
from service.planner.reading.en.utterance import read_phrases
from service.planner.reading.reader import Reader


class English:
    """Reads English."""

    language: Final = "en"

    phrases = staticmethod(read_phrases)
    without = staticmethod(trimming.without)
    correct = staticmethod(spelling.correct)

    def intent(self, utterance: str) -> str | None:
        return next((intent for intent, pattern in lists.SUPPORT_INTENTS if pattern.search(utterance)), None)


ENGLISH: Final[Reader] = English()
