"""Which language a question is read in: a folder beside this file each.

The locale decides where the words do not tell another language for sure; without a locale, the words alone.
"""

from collections.abc import Iterable
from pathlib import Path
from typing import Final

from service.planner.fallback.reading.detection import Detector
from service.planner.fallback.reading.en.facets import FACETS
from service.planner.fallback.reading.en.reader import ENGLISH
from service.planner.fallback.reading.language_data import LanguageData
from service.planner.fallback.reading.phrase_reader import PhraseReader
from service.planner.fallback.reading.reader import Reader
from service.planner.question import Question
from service.planner.shop import current
from service.planner.shop.lexicon import Lexicon
from service.planner.spelling import CORRECTED

_HERE = Path(__file__).parent
# The languages that are data alone. German writes "ae" where there is no key for "ä".
READERS: Final = {name: PhraseReader(LanguageData(_HERE / name, umlauts=name == "de")) for name in ("es", "de", "fr")}
_DETECTOR: Final = Detector(READERS)


def reader_of(question: Question) -> Reader:
    """Return the reader of a question's language; English of a language that has none.

    An utterance that tells no language, "42" or "adidas", is in that of the conversation before it.
    """
    if not question.locale and all(map(_DETECTOR.is_surely_english, question.utterances)):
        return ENGLISH
    for utterance in reversed(question.utterances):
        language = _DETECTOR.language(utterance, question.language)
        if language:
            return READERS.get(language, ENGLISH)
    return ENGLISH


def prepare() -> None:
    """Read the files of every language before the first question, which would wait for them."""
    for reader in (*READERS.values(), ENGLISH):
        reader.prepare()
    _DETECTOR.language("")


def use_shop(lexicon: Lexicon | None, of_arms: Iterable[Lexicon | None] = ()) -> None:
    """Read words as those of a shop from now on, or without one; what was read of words before is forgotten.

    `of_arms` are the shops of an experiment's arms, which `current.reading` chooses for a request.
    """
    current.use(lexicon, of_arms)
    CORRECTED.forget()
    FACETS.forget()
