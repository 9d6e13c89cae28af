"""Plan text, version 3: the compact line that the model writes, and its exact meaning.

    find Color red Type running shoes Max under $80 Not Material leather Low Fashion
    Find One Type tent Two Type sleeping bag Max at most 60 All Audience kids Sports
    Ask reviews answers Type hiking boots Fashion
    status

    text  = INTENT-WORD                                            for intents that are not about products
          | INTENT-WORD SOURCE* span* [SORT-WORD] OFFER-WORD* VERTICAL-WORD
    span  = [PART-WORD] (["Not"] FACET-WORD | MARK-WORD) words

After a follow-up the line says the whole wish as it now stands: its words are copied from any message of the
conversation. The intent word is lower-case for a keyword query and capitalised for a conversational one, so mode and
intent cost one token. Spans follow the conversation's own order and never overlap, so most words after a facet word are
forced. "One" to "Four" go on with one of several things, "All" with what holds for all of them, and "Not" refuses. A
mark says what its words are for: the bound of a price, the least rating, the need behind a wish that names no thing.
What fewest training rows label comes last: nothing is conditioned on a guess.

This module knows only the text; `grammar.py` writes what is legal for one conversation, `completion.py` makes the plan.
"""

import math
from collections import defaultdict
from collections.abc import Collection, Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from typing import Final

from service.planner.question import Question
from service.planner.vocabulary import (
    FOREIGN_WORD,
    MARK_WORDS,
    NO_VERTICAL_WORD,
    OFFER_WORDS,
    PART_WORDS,
    REFUSED_WORD,
    SHARED_WORD,
    SORT_WORDS,
    Vocabulary,
)

_MARK_OF_WORD: Final = {word: mark for mark, word in MARK_WORDS.items()}
_SORT_OF_WORD: Final = {word: sort for sort, word in SORT_WORDS.items()}
_OFFER_OF_WORD: Final = {word: offer for offer, word in OFFER_WORDS.items()}


class PlanTextError(ValueError):
    """Raised for text that is no plan of this question. Text that `grammar.py` admits never raises it."""


@dataclass(frozen=True, slots=True)
class FacetSpan:
    """Words `first` to `last` (inclusive indices into `Question.words`) named as a value of `facet`.

    `facet` may also be a mark (`vocabulary.MARK_WORDS`): the words then say a price, a rating or a need. `part` is
    1 to 4 for one of several things, and 0 for what holds for the whole question.
    """

    facet: str
    first: int
    last: int
    refused: bool = False
    part: int = 0
    indices: range = field(init=False, repr=False, compare=False)  # of its words

    def __post_init__(self) -> None:
        object.__setattr__(self, "indices", range(self.first, self.last + 1))


@dataclass(slots=True)
class PlanDraft:
    """The meaning of plan text, before numbers are parsed and search queries are written.

    `spans` name values of facets, `marks` prices, ratings and needs. `foreign` is true for a question in a language
    that the model does not read; it has no spans and no vertical.
    """

    mode: str
    intent: str
    sources: list[str] = field(default_factory=list)
    spans: list[FacetSpan] = field(default_factory=list)
    vertical: str | None = None
    foreign: bool = False
    marks: list[FacetSpan] = field(default_factory=list)
    sort: str = "relevance"
    offers: list[str] = field(default_factory=list)


def intent_word(draft: PlanDraft, vocabulary: Vocabulary) -> str:
    """Return the first word of plan text: lower-case for keyword mode."""
    word = vocabulary.intents[draft.intent].word
    return word if draft.mode == "keyword" else word.capitalize()


def source_words(draft: PlanDraft, vocabulary: Vocabulary) -> list[str]:
    """Return the words of the sources; none where the intent names them."""
    if vocabulary.intents[draft.intent].sources is not None:
        return []
    return [word for source in draft.sources if (word := vocabulary.sources[source].word)]


def span_words(draft: PlanDraft, question: Question, vocabulary: Vocabulary) -> Iterator[str]:
    part = 0
    for span in sorted((*draft.spans, *draft.marks), key=lambda span: span.first):
        if span.part != part:
            part = span.part
            yield PART_WORDS[part - 1] if part else SHARED_WORD
        if span.refused:
            yield REFUSED_WORD
        yield MARK_WORDS.get(span.facet) or vocabulary.facets[span.facet].word
        yield from (word.text for word in question.words[span.first : span.last + 1])


def closing_words(draft: PlanDraft) -> Iterator[str]:
    if draft.sort in SORT_WORDS:
        yield SORT_WORDS[draft.sort]
    yield from (word for offer, word in OFFER_WORDS.items() if offer in draft.offers)


def vertical_word(draft: PlanDraft, vocabulary: Vocabulary) -> str:
    if draft.foreign:
        return FOREIGN_WORD
    return NO_VERTICAL_WORD if draft.vertical is None else vocabulary.verticals[draft.vertical].word


def render(draft: PlanDraft, question: Question, vocabulary: Vocabulary) -> str:
    """Return the plan text of a draft, every word preceded by a space (the inverse of `parse`)."""
    words = [intent_word(draft, vocabulary)]
    if vocabulary.intents[draft.intent].products:
        words += source_words(draft, vocabulary)
        words += span_words(draft, question, vocabulary)
        words += closing_words(draft)
        words.append(vertical_word(draft, vocabulary))
    return "".join(f" {word}" for word in words)


def parse(text: str, question: Question, vocabulary: Vocabulary) -> PlanDraft:
    """Parse plan text. Raises PlanTextError where the grammar of this question would not have admitted it."""
    words = text.split()
    if not words or words[0] not in vocabulary.intent_of_word:
        raise PlanTextError(f"plan text starts with no intent: {text!r}")
    mode, intent = vocabulary.intent_of_word[words[0]]
    draft = PlanDraft(mode, intent, list(vocabulary.intents[intent].sources or ()))
    position = 1
    while position < len(words) and words[position] in vocabulary.source_of_word:
        draft.sources.append(vocabulary.source_of_word[words[position]])
        position += 1
    _parse_sections(draft, words[position:], question, vocabulary)
    return draft


def _parse_sections(draft: PlanDraft, words: list[str], question: Question, vocabulary: Vocabulary) -> None:
    named: list[tuple[str, list[str], bool, int]] = []
    position = part = 0
    refused = False
    while position < len(words):
        section, value, position = _section(words, position, vocabulary)
        if value:
            facet = _MARK_OF_WORD.get(section) or vocabulary.facet_of_word[section]
            named.append((facet, value, refused, part))
            refused = False
        elif section == REFUSED_WORD:
            refused = True
        elif section in PART_WORDS or section == SHARED_WORD:
            part = 0 if section == SHARED_WORD else PART_WORDS.index(section) + 1
        elif section in _SORT_OF_WORD:
            draft.sort = _SORT_OF_WORD[section]
        elif section in _OFFER_OF_WORD:
            draft.offers.append(_OFFER_OF_WORD[section])
        else:
            draft.vertical = vocabulary.vertical_of_word[section]
            draft.foreign = section == FOREIGN_WORD
    end = len(question.words)
    for facet, value, refused, part in reversed(named):  # where a value was said twice, the newest words count
        end = _find_span(question, value, end)
        span = FacetSpan(facet, end, end + len(value) - 1, refused, part)
        (draft.marks if facet in MARK_WORDS else draft.spans).insert(0, span)


def _section(words: list[str], position: int, vocabulary: Vocabulary) -> tuple[str, list[str], int]:
    """Return the section word at `position`, the words of its value, and where the next section starts."""
    section = words[position]
    if section not in vocabulary.section_words:
        raise PlanTextError(f"{section!r} opens no section in {' '.join(words)!r}")
    end = position + 1
    while end < len(words) and words[end] not in vocabulary.section_words:
        end += 1
    value = words[position + 1 : end]
    if bool(value) != (section in vocabulary.facet_of_word or section in _MARK_OF_WORD):
        raise PlanTextError(f"{section!r} has {'a' if value else 'no'} value in {' '.join(words)!r}")
    return section, value, end


def _find_span(question: Question, value: list[str], end: int) -> int:
    """Return where `value` stands last before word `end`."""
    words = question.words
    for first in range(end - len(value), -1, -1):
        window = words[first : first + len(value)]
        if [word.text for word in window] == value and window[0].utterance == window[-1].utterance:
            return first
    raise PlanTextError(f"{' '.join(value)!r} is no span of the question before its word {end}")


# The least probability of a filter's words together, chosen on conversations of writers on which nothing was trained:
# where the reader filters by one of its words in the same way, where it does not, and where there is no reader.
LEAST_SECONDED: Final = 0.3
LEAST_ALONE: Final = 0.85
LEAST_PROBABILITY: Final = 0.4
FILTERS: Final = frozenset(("max", "min", "range", "about", "rating"))  # marks that filter
_FILTER_WORDS: Final = frozenset((REFUSED_WORD, *(MARK_WORDS[mark] for mark in FILTERS)))
_RATING_WORD: Final = MARK_WORDS["rating"]  # the reader takes too many ratings for prices to second them
_PLACES: Final = frozenset((*PART_WORDS, SHARED_WORD))


def without_doubts(
    text: str,
    unsure_words: Iterable[tuple[int, float]],
    vocabulary: Vocabulary,
    seconded: Collection[tuple[str, str]] | None = None,
) -> str:
    """Return plan text without the refusals, bounds and ratings that are not probable enough.

    The grammar admits what is left. `unsure_words` are those of `GenerationResult`, `seconded` what `filters_of` says
    of the reader's text; None without a reader.
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
        least = LEAST_PROBABILITY
        if seconded is not None and words[named[0]] != _RATING_WORD:
            is_alone = all((words[named[0]], words[index]) not in seconded for index in named)
            least = LEAST_ALONE if is_alone else LEAST_SECONDED
        if words[named[0]] in _FILTER_WORDS and math.prod(probabilities[index] for index in named) < least:
            continue
        if place and len(named) > 1:
            kept.append(place)
        kept += [words[index] for index in named]
        place = ""
    return "".join(f" {word}" for word in kept)


def filters_of(text: str, vocabulary: Vocabulary) -> frozenset[tuple[str, str]]:
    """Return each word by which plan text filters, after how it does: the mark of a bound or rating, or a refusal."""
    words = text.split()
    found: set[tuple[str, str]] = set()
    for section in _sections(words, vocabulary):
        named = section[1:] if words[section[0]] in _PLACES else section
        if named and words[named[0]] in _FILTER_WORDS:
            said = (words[index] for index in named if words[index] not in vocabulary.section_words)
            found.update((words[named[0]], word) for word in said)
    return frozenset(found)


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
