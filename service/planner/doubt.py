"""Filters that the model itself doubts are left out: the plan says less rather than something wrong.

A refusal hides what a shopper may want, and a bound of a price hides what costs more. The probability of the words that
make such a filter says how often it is right (docs/decisions/0034-the-model-reads.md has the figures).
"""

import math
from collections import defaultdict
from collections.abc import Iterable, Iterator, Sequence
from typing import Final

from service.planner.vocabulary import MARK_WORDS, PART_WORDS, REFUSED_WORD, SHARED_WORD, Vocabulary

# The least probability of a filter's words together, chosen on conversations of writers on which nothing was trained.
LEAST_PROBABILITY: Final = 0.4
_FILTERS: Final = frozenset((REFUSED_WORD, *(MARK_WORDS[mark] for mark in ("max", "min", "range", "about", "rating"))))
_PLACES: Final = frozenset((*PART_WORDS, SHARED_WORD))


def without_doubts(
    text: str,
    unsure_words: Iterable[tuple[int, float]],
    vocabulary: Vocabulary,
    least: float = LEAST_PROBABILITY,
) -> str:
    """Return plan text without the refusals, bounds and ratings that are less probable than `least`.

    The grammar admits what is left. `unsure_words` are those of `GenerationResult`.
    """
    words = text.split()
    probabilities: dict[int, float] = defaultdict(lambda: 1.0)
    for index, probability in unsure_words:
        probabilities[index] *= probability
    kept: list[str] = []
    place = ""  # the part in which the next section stands, where what stood before it there is left out
    for section in _sections(words, vocabulary):
        first = words[section[0]]
        place, named = (first, section[1:]) if first in _PLACES else (place, section)
        is_doubtful = math.prod(probabilities[index] for index in named) < least
        if words[named[0]] in _FILTERS and is_doubtful:
            continue
        if place and len(named) > 1:
            kept.append(place)
        kept += [words[index] for index in named]
        place = ""
    return "".join(f" {word}" for word in kept)


def _sections(words: Sequence[str], vocabulary: Vocabulary) -> Iterator[Sequence[int]]:
    """Yield the indices of the words of each section, with those before its name that say part and refusal."""
    starts = [
        index
        for index, word in enumerate(words)
        if index == 0
        or (word in vocabulary.section_words and words[index - 1] not in _PLACES and words[index - 1] != REFUSED_WORD)
    ]
    for start, end in zip(starts, [*starts[1:], len(words)], strict=True):
        yield range(start, end)
