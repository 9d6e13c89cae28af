"""Plan text: the compact line that the model writes, and its exact meaning.

    Find Type running shoes Brand nike Under 100 Sports
    ask reviews Type hiking boots Feature waterproof Fashion
    status

    text      = INTENT-WORD                                 for intents whose sources are fixed
              | INTENT-WORD SOURCE* (FACET-WORD span)* ["Over" n] ["Under" n] ["Try" wrong meant] VERTICAL-WORD

The intent word is lower-case for a keyword query and capitalised for a conversational one, so mode and intent cost one
token. Facets follow the question's own order and never overlap, so most words after a facet word are forced. What most
training rows label comes first and the vertical, which few label, last: nothing is conditioned on a guess.

This module knows only the text; `grammar.py` writes what is legal for one question, `queries.py` the search queries.
"""

from dataclasses import dataclass, field

from service.planner.numbers import format_number
from service.planner.question import Question
from service.planner.vocabulary import (
    CORRECTION_WORD,
    FACET_WORDS,
    INTENT_WORDS,
    MAX_PRICE_WORD,
    MIN_PRICE_WORD,
    NO_VERTICAL_WORD,
    PRODUCT_INTENTS,
    SOURCE_WORDS,
    VERTICAL_WORDS,
)

_INTENT_OF_WORD = {
    **{word: ("keyword", intent) for intent, word in INTENT_WORDS.items()},
    **{word.capitalize(): ("conversational", intent) for intent, word in INTENT_WORDS.items()},
}
_FACET_OF_WORD = {word: facet for facet, word in FACET_WORDS.items()}
_SOURCE_OF_WORD = {word: source for source, word in SOURCE_WORDS.items()}
_VERTICAL_OF_WORD: dict[str, str | None] = {
    **{word: vertical for vertical, word in VERTICAL_WORDS.items()},
    NO_VERTICAL_WORD: None,
}
_SECTION_WORDS = frozenset({*_FACET_OF_WORD, *_VERTICAL_OF_WORD, MIN_PRICE_WORD, MAX_PRICE_WORD, CORRECTION_WORD})


class PlanTextError(ValueError):
    """Raised for text that is no plan of this question. Text that `grammar.py` admits never raises it."""


@dataclass(frozen=True, slots=True)
class FacetSpan:
    """Words `first` to `last` (inclusive indices into `Question.words`) named as the value of `facet`."""

    facet: str
    first: int
    last: int


@dataclass(frozen=True, slots=True)
class Correction:
    """A correction: the question's word `wrong` was meant to be `meant` (both lower-case)."""

    wrong: str
    meant: str


@dataclass(slots=True)
class PlanDraft:
    """The meaning of plan text, before search queries are derived from it."""

    mode: str
    intent: str
    sources: list[str] = field(default_factory=list)
    spans: list[FacetSpan] = field(default_factory=list)
    price_min: float | None = None
    price_max: float | None = None
    correction: Correction | None = None
    vertical: str | None = None


def intent_word(mode: str, intent: str) -> str:
    """Return the first word of plan text: lower-case for keyword mode."""
    word = INTENT_WORDS[intent]
    return word if mode == "keyword" else word.capitalize()


def render(draft: PlanDraft, question: Question) -> str:
    """Return the plan text of a draft, every word preceded by a space (the inverse of `parse`)."""
    parts = [intent_word(draft.mode, draft.intent)]
    if draft.intent not in PRODUCT_INTENTS:
        return "".join(f" {part}" for part in parts)
    parts += [SOURCE_WORDS[source] for source in draft.sources if draft.intent != "find_product" or source != "catalog"]
    for span in draft.spans:
        parts += [FACET_WORDS[span.facet], *(word.text for word in question.words[span.first : span.last + 1])]
    if draft.price_min is not None:
        parts += [MIN_PRICE_WORD, format_number(draft.price_min)]
    if draft.price_max is not None:
        parts += [MAX_PRICE_WORD, format_number(draft.price_max)]
    if draft.correction is not None:
        parts += [CORRECTION_WORD, draft.correction.wrong, draft.correction.meant]
    parts.append(NO_VERTICAL_WORD if draft.vertical is None else VERTICAL_WORDS[draft.vertical])
    return "".join(f" {part}" for part in parts)


def parse(text: str, question: Question) -> PlanDraft:
    """Parse plan text. Raises PlanTextError where the grammar of this question would not have admitted it."""
    words = text.split()
    if not words or words[0] not in _INTENT_OF_WORD:
        raise PlanTextError(f"plan text starts with no intent: {text!r}")
    mode, intent = _INTENT_OF_WORD[words[0]]
    draft = PlanDraft(mode, intent)
    position = 1
    while position < len(words) and words[position] in _SOURCE_OF_WORD:
        draft.sources.append(_SOURCE_OF_WORD[words[position]])
        position += 1
    next_word = 0  # spans are matched leftmost, from the end of the previous one
    while position < len(words):
        section, value, position = _section(words, position, text)
        if section in _FACET_OF_WORD:
            first = _find_span(question, value, next_word, text)
            next_word = first + len(value)
            draft.spans.append(FacetSpan(_FACET_OF_WORD[section], first, next_word - 1))
        elif section in (MIN_PRICE_WORD, MAX_PRICE_WORD):
            _set_price(draft, section, value, text)
        elif section == CORRECTION_WORD:
            draft.correction = _correction(value, question, text)
        else:
            draft.vertical = _VERTICAL_OF_WORD[section]
    _order_price(draft)
    return draft


def _section(words: list[str], position: int, text: str) -> tuple[str, list[str], int]:
    """Return the section word at `position`, the words of its value, and where the next section starts."""
    section = words[position]
    if section not in _SECTION_WORDS:
        raise PlanTextError(f"{section!r} opens no section in {text!r}")
    end = position + 1
    while end < len(words) and words[end] not in _SECTION_WORDS:
        end += 1
    value = words[position + 1 : end]
    if bool(value) == (section in _VERTICAL_OF_WORD):
        raise PlanTextError(f"{section!r} has {'a' if value else 'no'} value in {text!r}")
    return section, value, end


def _find_span(question: Question, value: list[str], start: int, text: str) -> int:
    words = question.words
    for first in range(start, len(words) - len(value) + 1):
        window = words[first : first + len(value)]
        if [word.text for word in window] == value and window[0].utterance == window[-1].utterance:
            return first
    raise PlanTextError(f"{' '.join(value)!r} is no span of the question after word {start} in {text!r}")


def _correction(value: list[str], question: Question, text: str) -> Correction:
    if len(value) != 2 or value[0] not in {word.text for word in question.words}:
        raise PlanTextError(f"{' '.join(value)!r} corrects no word of the question in {text!r}")
    return Correction(*value)


def _set_price(draft: PlanDraft, section: str, value: list[str], text: str) -> None:
    try:
        number = float(value[0])
    except ValueError as error:
        raise PlanTextError(f"{value[0]!r} is no number in {text!r}") from error
    if section == MIN_PRICE_WORD:
        draft.price_min = number
    else:
        draft.price_max = number


def _order_price(draft: PlanDraft) -> None:
    """Swap a reversed range ("from 40 to 20"), which means the same range."""
    if draft.price_min is not None and draft.price_max is not None and draft.price_min > draft.price_max:
        draft.price_min, draft.price_max = draft.price_max, draft.price_min
