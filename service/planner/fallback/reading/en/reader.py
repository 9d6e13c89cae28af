"""English, whose patterns of support look at marks, too, and whose closed phrases may be misspelt."""

from typing import Final

from service.planner.fallback.reading.en import lists
from service.planner.fallback.reading.en.data import PHRASES
from service.planner.fallback.reading.phrase_reader import PhraseReader
from service.planner.spelling import misspelt


class English(PhraseReader):
    """Reads English."""

    def intent(self, utterance: str) -> str | None:
        return next((intent for intent, pattern in lists.SUPPORT_INTENTS if pattern.search(utterance)), None)


ENGLISH: Final = English(PHRASES, misspelt)
