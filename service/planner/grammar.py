"""The grammar of plan text for one question, in llguidance's Lark dialect.

Right-linear over the question's words, so it grows linearly with them and compiles in about a millisecond. After word
`i` three rules define what may follow: `s<i>` a new section, `p<i>` a span that starts at word `i` or later, `c<i>` the
same span going on with word `i`. A facet value can therefore only be a run of the question's own words, in order.
https://github.com/guidance-ai/llguidance/blob/main/docs/syntax.md
"""

import json
from collections.abc import Iterable
from functools import cache

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


def plan_grammar(question: Question) -> str:
    """Return the Lark grammar that admits exactly the valid plan texts of this question."""
    return "\n".join((_fixed_text(), *_span_rules(question)))


@cache
def _fixed_text() -> str:
    """Return the rules that are the same for every question."""
    return "\n".join(_fixed_rules())


def _fixed_rules() -> Iterable[str]:
    yield "start: FIXED | NAMED s0 | CHOSEN (catalog | reviews | qa) s0"
    yield f"FIXED: {_either(_modes(intent for intent in INTENT_WORDS if intent not in PRODUCT_INTENTS))}"
    yield f"NAMED: {_either(_modes(intent for intent in PRODUCT_INTENTS if intent in INTENT_SOURCES))}"
    yield f"CHOSEN: {_either(_modes(intent for intent in PRODUCT_INTENTS if intent not in INTENT_SOURCES))}"
    names = ("catalog", "reviews", "qa")
    for first, second, third in (names, names[1:] + names[:1], names[2:] + names[:2]):
        # Every order of one to three distinct sources.
        yield (
            f"{first}: {_source(first)} ({_source(second)} {_source(third)}? | {_source(third)} {_source(second)}?)?"
        )
    yield f"facet: ({_either((PART_WORD, SHARED_WORD))})? {_word(REFUSED_WORD)}? FACET"
    yield f"FACET: {_either(FACET_WORDS.values())}"
    yield f"VERTICAL: {_either((*VERTICAL_WORDS.values(), NO_VERTICAL_WORD, FOREIGN_WORD))}"


def _span_rules(question: Question) -> Iterable[str]:
    words = question.words
    for index, word in enumerate(words):
        is_final = index == len(words) - 1
        ends_utterance = is_final or words[index + 1].utterance != word.utterance
        then = f"s{index + 1}" if ends_utterance else f"c{index + 1}"
        yield f"s{index}: facet p{index} | VERTICAL"
        yield f"p{index}: {_word(word.text)} {then}" + ("" if is_final else f" | p{index + 1}")
        yield f"c{index}: {_word(word.text)} {then} | s{index}"
    yield f"s{len(words)}: VERTICAL"


def _modes(intents: Iterable[str]) -> Iterable[str]:
    """Yield each intent's word of both modes."""
    for intent in intents:
        yield from (INTENT_WORDS[intent], INTENT_WORDS[intent].capitalize())


def _source(source: str) -> str:
    return f"({_word(SOURCE_WORDS[source])})"


def _either(words: Iterable[str]) -> str:
    return " | ".join(map(_word, words))


def _word(word: str) -> str:
    """Return the literal of one word with the space before it."""
    return json.dumps(f" {word}", ensure_ascii=False)
