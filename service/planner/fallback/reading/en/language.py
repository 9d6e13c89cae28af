"""Is an utterance English?"""

from service.planner.fallback.reading.en.lists import FOREIGN
from service.planner.question import Question
from service.planner.spelling import is_known, words

_LONG = 6  # words that a search query of a few words has not


def is_foreign(question: Question) -> bool:
    """Tell whether the newest utterance is in another language: by its script, or by words that English lacks."""
    own = [word.text for word in question.own_words if any(character.isalpha() for character in word.text)]
    if not own:
        return False
    letters = "".join(own)
    if sum(character > "ʯ" and character.isalpha() for character in letters) * 2 > len(letters):
        return True
    foreign = sum(text in FOREIGN for text in own)
    if not foreign:
        return False
    strange = sum(not text.isascii() or not is_known(text) for text in own if text not in FOREIGN)
    accents = any(not text.isascii() and text not in words().counts for text in own)
    return (foreign + strange) * 2 > len(own) and (foreign > 1 or strange > 0 or accents)


def is_english(question: Question) -> bool:
    """Tell whether every word of the newest utterance is one that products or English texts have."""
    own = [word.text.strip("'") for word in question.own_words if word.text.isalpha()]
    return len(own) > _LONG and all(is_known(text) and text not in FOREIGN for text in own)
