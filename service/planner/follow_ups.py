"""What the newest utterance of a conversation turns around, where the model's spans alone do not tell.

"Actually make it a 9" wants another number and names nothing "make it a 9"; "without the light" takes a light back; and
"same but in walnut" replaces the oak of before, whatever else the model took oak for.
"""

import re
from collections.abc import Iterator
from dataclasses import replace

from service.planner import fallback_words as lists
from service.planner.phrases_words import word_set
from service.planner.plan_text import FacetSpan
from service.planner.queries import FUNCTION_WORDS
from service.planner.question import Question, Word
from service.planner.spelling import words as word_list

_TURNS = word_set("turns")  # words that turn a conversation; those before a wish are no part of it
_LEADS = _TURNS | word_set("turn.leads")  # words that lead on from there: "make it a"
_UNITS = lists.SIZE_UNITS | lists.COUNT_UNITS | word_set("price.unit")
_LABELS = frozenset(("size", "sizes", "sz", "age", "aged", "us", "uk"))
_NUMBER = re.compile(r"\d+(?:\.\d+)?")
_ENDS = frozenset(("old", "olds"))  # "a 5 year old"
_DECLINES = frozenset(("nah", "nope"))  # they decline what was, not what follows: "nah black instead"
# What takes a wish back without a refusal: "remove logitech", "it doesn't have to be waterproof".
_TAKES_BACK = re.compile(
    r"\b(?:(?:remove|drop|scrap|forget(?: about)?|lose|ditch|skip|never ?mind|leave out)(?: the)?"
    r"|(?:doesn'?t|does not|don'?t|do not|needn'?t|need not)(?: really| actually)?(?: (?:have|need|got) to)? be)"
    r" (?P<words>.+?)(?: (?:bit|part|thing|please|pls|anymore|any more|then|now|after all|though|tho))*[.!]*$"
)
_KINDS = {"color": lists.COLORS, "material": lists.MATERIALS}


def without_turns(spans: list[FacetSpan], question: Question, replaceable: frozenset[str]) -> list[FacetSpan]:
    """Return spans whose words turn nothing: those of the newest utterance begin with what is wanted.

    A single word that the word list knows as another of the `replaceable` facets, and that a span of before has, is
    of that facet: "what about lg" is no size.
    """
    newest = len(question.utterances) - 1
    if not newest:
        return spans
    before = {span.facet for span in spans if question.words[span.first].utterance < newest}
    found = []
    for span in spans:
        if question.words[span.first].utterance == newest:
            is_declined = span.refused and question.words[span.first].text in _DECLINES
            first = span.first if span.refused and not is_declined else _after_turns(span, question.words)
            if not span.refused and all(_is_beside(question.words[index].text) for index in span.indices):
                continue
            text = question.words[span.last].text
            kind = next((facet for facet, texts in _KINDS.items() if text in texts), "")
            facet = kind or word_list().facets.get(text, "")
            is_other = first == span.last and facet in replaceable and (kind != "" or facet in before)
            found.append(
                replace(
                    span, first=first, facet=facet if is_other else span.facet, refused=span.refused and not is_declined
                )
            )
        else:
            found.append(span)
    return found


def _after_turns(span: FacetSpan, words: tuple[Word, ...]) -> int:
    """Return where a span begins after words that turn the conversation, if one of them surely does."""
    end = span.first
    while end <= span.last and words[end].text in _LEADS:
        end += 1
    is_turn = any(words[index].text in _TURNS for index in range(span.first, end))
    return end if is_turn and end <= span.last else span.first


def wanted_no_more(spans: list[FacetSpan], question: Question) -> list[FacetSpan]:
    """Return the wanted spans of before that the newest utterance refuses in every word, or whose facet it lifts."""
    newest = len(question.utterances) - 1
    text = question.text.lower().replace("’", "'")
    lifted = {facet for facet, pattern in lists.LIFTS.items() if newest and pattern.search(text)}
    is_new = [question.words[span.first].utterance == newest for span in spans]
    refused = [_content(s, question) for s, new in zip(spans, is_new, strict=True) if new and s.refused]
    return [
        span
        for span, new in zip(spans, is_new, strict=True)
        if not new
        and not span.refused
        and (span.facet in lifted or any(_content(span, question) <= words for words in refused))
    ]


def taken_back(question: Question) -> frozenset[int]:
    """Return the words of before that the newest utterance takes back, and those of it that say so."""
    newest = len(question.utterances) - 1
    match = _TAKES_BACK.search(question.text.lower().replace("’", "'"))
    if not newest or match is None:
        return frozenset()
    own = [index for index, word in enumerate(question.words) if word.utterance == newest]
    saying = [index for index in own if question.words[index].end > match.start()]
    back = {question.words[index].text for index in own if question.words[index].start >= match.start("words")}
    before = {index: word.text for index, word in enumerate(question.words) if word.utterance < newest}
    is_all = back.issuperset(set(before.values()) - FUNCTION_WORDS)
    if not back <= set(before.values()) or is_all:
        return frozenset()
    return frozenset((*saying, *(index for index, text in before.items() if text in back)))


def _content(span: FacetSpan, question: Question) -> set[str]:
    texts = {question.words[index].text for index in span.indices}
    return texts - FUNCTION_WORDS - lists.GOVERNORS or texts


def replaced_words(question: Question, taken: frozenset[int]) -> frozenset[int]:
    """Return the words of before that the newest utterance replaces by another of their kind.

    A number with a unit replaces the only one of that unit. Where nothing else is said, a bare number replaces the only
    number, and a color or a material those of before.

    `taken` are words of prices and other closed phrases, which are no numbers of a thing.
    """
    newest = len(question.utterances) - 1
    words = question.words
    said = [index for index, word in enumerate(words) if word.utterance == newest and index not in taken]
    said = [index for index in said if not _is_beside(words[index].text)] if newest else []
    if not said:
        return frozenset()
    before = [index for index, word in enumerate(words) if word.utterance < newest and index not in taken]
    for kind in _KINDS.values():
        if all(words[index].text in kind for index in said):
            return frozenset(index for index in before if words[index].text in kind)
    numbers = [index for index in said if _NUMBER.match(words[index].text)]
    if len(numbers) != 1:
        return frozenset()
    unit = _unit(numbers[0], words)
    if not unit and not set(said) <= set(_measure(numbers[0], words)):
        return frozenset()
    others = [index for index in before if _NUMBER.match(words[index].text)]
    others = [index for index in others if not unit or _unit(index, words) == unit]
    is_clear = len(others) == 1 and (unit or not taken)  # beside a price, a bare number may be another price
    return frozenset(_measure(others[0], words)) if is_clear else frozenset()


def _is_beside(text: str) -> bool:
    """Tell whether a word is beside the point of an utterance that turns around what was said before."""
    return text in _LEADS or text in FUNCTION_WORDS or text in lists.FILLERS or text in lists.TALK


def _unit(index: int, words: tuple[Word, ...]) -> str:
    """Return the unit of a number, in the singular; empty for a bare number."""
    attached = words[index].text[_number_length(words[index].text) :].strip("-\"'”’")
    if attached:
        return attached.removesuffix("s")
    after = next(iter(_following(index, words)), None)
    return words[after].text.removesuffix("s") if after is not None and words[after].text in _UNITS else ""


def _number_length(text: str) -> int:
    match = _NUMBER.match(text)
    return match.end() if match else 0


def _measure(index: int, words: tuple[Word, ...]) -> Iterator[int]:
    """Yield a number with its label and unit: "size 8", "65 inch", "5 year old"."""
    if index and words[index - 1].utterance == words[index].utterance and words[index - 1].text in _LABELS:
        yield index - 1
    yield index
    for after in _following(index, words):
        if words[after].text not in (_UNITS if after == index + 1 else _ENDS):
            break
        yield after


def _following(index: int, words: tuple[Word, ...]) -> range:
    """Return the next two words of the utterance, fewer at its end."""
    end = index + 1
    while end < min(len(words), index + 3) and words[end].utterance == words[index].utterance:
        end += 1
    return range(index + 1, end)
