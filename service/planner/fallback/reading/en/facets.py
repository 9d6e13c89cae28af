"""What facet a word names, by the closed lists and the list of product words."""

from typing import Final

from service.planner.fallback.reading.en import lists
from service.planner.fallback.reading.en.data import PHRASES
from service.planner.remembered import Remembered
from service.planner.shop import current
from service.planner.spelling import CORRECTED, correct_word, words

# Closed lists: a word of one is of its facet, whatever it is near to.
KINDS: Final = {
    "color": lists.COLORS,
    "material": lists.MATERIALS,
    "audience": lists.AUDIENCES,
    "size": lists.SIZES | PHRASES.words("word.turn.sizes"),
}
KIND_OF: Final = {word: facet for facet, texts in reversed(KINDS.items()) for word in texts}
_OTHERS: Final = {"condition": lists.CONDITIONS, "occasion": lists.OCCASIONS, "feature": lists.FEATURES}


def _facet(word: str) -> tuple[str, bool]:
    """Return the facet that a word mostly names, and whether its spelling could be looked up."""
    if kind := KIND_OF.get(word) or next((facet for facet, texts in _OTHERS.items() if word in texts), ""):
        return kind, True
    if in_shop := current.name_of([word]):
        return in_shop.facet, True
    facets = words().facets
    if not word.isalpha():
        return "", True
    if facet := facets.get(word):
        return facet, True
    return facets.get(correct_word(word), "") or facets.get(word.removesuffix("s"), ""), CORRECTED.knows(word)


FACETS: Final = Remembered(_facet)
facet_of = FACETS.__getitem__  # the facet that a word mostly names, its spelling corrected; empty where none is known
