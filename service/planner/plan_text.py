"""Plan text: the compact line that the model writes, and its exact meaning.

    find Type running shoes Not Brand nike Sports
    Find And Type tent And Type sleeping bag All Audience kids Sports
    Ask reviews answers Type hiking boots Fashion
    status

    text = INTENT-WORD                                    for intents that are not about products
         | INTENT-WORD SOURCE* span* VERTICAL-WORD
    span = ["And" | "All"] ["Not"] FACET-WORD words

The intent word is lower-case for a keyword query and capitalised for a conversational one, so mode and intent cost one
token. Spans follow the question's own order and never overlap, so most words after a facet word are forced. "And"
begins one of several things, "All" goes back to what holds for all of them, "Not" refuses. What most training rows
label comes first and the vertical, which few label, last: nothing is conditioned on a guess. Prices, ratings, sorts and
offers are read by rule (`phrases.py`) and cost no tokens.

This module knows only the text; `grammar.py` writes what is legal for one question, `queries.py` the search queries.
"""

from collections.abc import Iterator
from dataclasses import dataclass, field

from service.planner.question import Question
from service.planner.vocabulary import (
    FACET_WORDS,
    FOREIGN_WORD,
    INTENT_SOURCES,
    INTENT_WORDS,
    NO_VERTICAL_WORD,
    PART_WORD,
    PRODUCT_INTENTS,
    REFUSED_WORD,
    SHARED_WORD,
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
    FOREIGN_WORD: None,
}
_MARKS = frozenset((PART_WORD, SHARED_WORD, REFUSED_WORD))
_SECTION_WORDS = frozenset({*_FACET_OF_WORD, *_VERTICAL_OF_WORD, *_MARKS})


class PlanTextError(ValueError):
    """Raised for text that is no plan of this question. Text that `grammar.py` admits never raises it."""


@dataclass(frozen=True, slots=True)
class FacetSpan:
    """Words `first` to `last` (inclusive indices into `Question.words`) named as a value of `facet`.

    `part` is 1, 2, … for one of several things, and 0 for what holds for the whole question.
    """

    facet: str
    first: int
    last: int
    refused: bool = False
    part: int = 0


@dataclass(slots=True)
class PlanDraft:
    """The meaning of plan text, before the closed phrases are read and search queries are derived.

    `foreign` is true for a question in a language that the model does not read; it has no spans and no vertical.
    """

    mode: str
    intent: str
    sources: list[str] = field(default_factory=list)
    spans: list[FacetSpan] = field(default_factory=list)
    vertical: str | None = None
    foreign: bool = False


def intent_word(mode: str, intent: str) -> str:
    """Return the first word of plan text: lower-case for keyword mode."""
    word = INTENT_WORDS[intent]
    return word if mode == "keyword" else word.capitalize()


def render(draft: PlanDraft, question: Question) -> str:
    """Return the plan text of a draft, every word preceded by a space (the inverse of `parse`)."""
    parts = [intent_word(draft.mode, draft.intent)]
    if draft.intent in PRODUCT_INTENTS:
        if draft.intent not in INTENT_SOURCES:
            parts += [SOURCE_WORDS[source] for source in draft.sources]
        parts += _span_words(draft.spans, question)
        parts.append(vertical_word(draft))
    return "".join(f" {part}" for part in parts)


def vertical_word(draft: PlanDraft) -> str:
    """Return the last word of plan text."""
    if draft.foreign:
        return FOREIGN_WORD
    return NO_VERTICAL_WORD if draft.vertical is None else VERTICAL_WORDS[draft.vertical]


def _span_words(spans: list[FacetSpan], question: Question) -> Iterator[str]:
    part = 0
    for span in spans:
        if span.part != part:
            part = span.part
            yield PART_WORD if part else SHARED_WORD
        if span.refused:
            yield REFUSED_WORD
        yield FACET_WORDS[span.facet]
        yield from (word.text for word in question.words[span.first : span.last + 1])


def parse(text: str, question: Question) -> PlanDraft:
    """Parse plan text. Raises PlanTextError where the grammar of this question would not have admitted it."""
    words = text.split()
    if not words or words[0] not in _INTENT_OF_WORD:
        raise PlanTextError(f"plan text starts with no intent: {text!r}")
    mode, intent = _INTENT_OF_WORD[words[0]]
    draft = PlanDraft(mode, intent, list(INTENT_SOURCES.get(intent, ())))
    position = 1
    while position < len(words) and words[position] in _SOURCE_OF_WORD:
        draft.sources.append(_SOURCE_OF_WORD[words[position]])
        position += 1
    _parse_spans(draft, words[position:], question, text)
    return draft


def _parse_spans(draft: PlanDraft, words: list[str], question: Question, text: str) -> None:
    """Read the spans and the vertical."""
    named: list[tuple[str, list[str], bool, int]] = []
    position = part = parts = 0
    refused = False
    while position < len(words):
        section, value, position = _section(words, position, text)
        if section == PART_WORD:
            part = parts = parts + 1
        elif section == SHARED_WORD:
            part = 0
        elif section == REFUSED_WORD:
            refused = True
        elif section in _FACET_OF_WORD:
            named.append((_FACET_OF_WORD[section], value, refused, part))
            refused = False
        else:
            draft.vertical = _VERTICAL_OF_WORD[section]
            draft.foreign = section == FOREIGN_WORD
    end = len(question.words)
    for facet, value, refused, part in reversed(named):  # where a value was said twice, the newest words count
        end = _find_span(question, value, end, text)
        draft.spans.insert(0, FacetSpan(facet, end, end + len(value) - 1, refused, part))


def _section(words: list[str], position: int, text: str) -> tuple[str, list[str], int]:
    """Return the section word at `position`, the words of its value, and where the next section starts."""
    section = words[position]
    if section not in _SECTION_WORDS:
        raise PlanTextError(f"{section!r} opens no section in {text!r}")
    end = position + 1
    while end < len(words) and words[end] not in _SECTION_WORDS:
        end += 1
    value = words[position + 1 : end]
    if bool(value) != (section in _FACET_OF_WORD):
        raise PlanTextError(f"{section!r} has {'a' if value else 'no'} value in {text!r}")
    return section, value, end


def _find_span(question: Question, value: list[str], end: int, text: str) -> int:
    """Return where `value` stands last before word `end`."""
    words = question.words
    for first in range(end - len(value), -1, -1):
        window = words[first : first + len(value)]
        if [word.text for word in window] == value and window[0].utterance == window[-1].utterance:
            return first
    raise PlanTextError(f"{' '.join(value)!r} is no span of the question before word {end} in {text!r}")
