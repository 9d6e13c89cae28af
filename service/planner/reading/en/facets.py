"""What facet a word names, by the closed lists and the list of product words."""

from functools import lru_cache
from typing import Final

from service.planner.reading.en import lists
from service.planner.reading.en.data import PHRASES
from service.planner.reading.en.spelling import correct_word, words
from service.planner.shop import current

# Closed lists: a word of one is of its facet, whatever it is near to.
KINDS: Final = {
    "color": lists.COLORS,
    "material": lists.MATERIALS,
    "audience": lists.AUDIENCES,
    "size": lists.SIZES | PHRASES.words("word.turn.sizes"),
}
KIND_OF: Final = {word: facet for facet, texts in reversed(KINDS.items()) for word in texts}
_OTHERS: Final = {"condition": lists.CONDITIONS, "occasion": lists.OCCASIONS, "feature": lists.FEATURES}


@lru_cache(maxsize=4096)
def facet_of(word: str) -> str:
    """Return the facet that a word mostly names, its spelling corrected; empty where that is not known."""
    if kind := KIND_OF.get(word) or next((facet for facet, texts in _OTHERS.items() if word in texts), ""):
        return kind
    if in_shop := current.name_of([word]):
        return in_shop.facet
    facets = words().facets
    found = facets.get(word) or facets.get(correct_word(word), "")
    return found or facets.get(word.removesuffix("s"), "") if word.isalpha() else ""
