"""The grammar of plan text for one question, in llguidance's Lark dialect.

Right-linear over the question's words, so it grows linearly with them and compiles in about a millisecond. After word
`i` three rules define what may follow: `s<i>` a new section, `p<i>` a span that starts at word `i` or later, `c<i>` the
same span going on with word `i`. A facet value can therefore only be a run of the question's own words, in order, and a
bound only a number that the question names. https://github.com/guidance-ai/llguidance/blob/main/docs/syntax.md
"""

import json
from collections.abc import Iterable
from functools import cache

from service.planner.numbers import format_number
from service.planner.question import Question
from service.planner.vocabulary import (
    CORRECTION_WORD,
    FACET_WORDS,
    FIXED_SOURCES,
    INTENT_WORDS,
    MAX_PRICE_WORD,
    MIN_PRICE_WORD,
    NO_VERTICAL_WORD,
    SOURCE_WORDS,
    VERTICAL_WORDS,
)

# Shorter words are not corrected: few are misspelt, and fewer still are worth the tokens.
SHORTEST_CORRECTED_WORD = 4
MAX_CORRECTION_CHARACTERS = 20


def plan_grammar(question: Question) -> str:
    """Return the Lark grammar that admits exactly the valid plan texts of this question."""
    return "\n".join((_fixed_text(), *_price_rules(question), *_correction_rules(question), *_span_rules(question)))


@cache
def _fixed_text() -> str:
    """Return the rules that are the same for every question."""
    return "\n".join(_fixed_rules())


def _fixed_rules() -> Iterable[str]:
    fixed = [INTENT_WORDS[intent] for intent in FIXED_SOURCES]
    yield "start: FIXED | find s0 | ask s0"
    yield f"FIXED: {_either((*fixed, *(word.capitalize() for word in fixed)))}"
    yield f"find: {_word_rule('find_product')} {_source('reviews')}?"
    yield f"ask: {_word_rule('ask_product')} (catalog | reviews | qa)"
    names = ("catalog", "reviews", "qa")
    for first, second, third in (names, names[1:] + names[:1], names[2:] + names[:2]):
        # Every order of one to three distinct sources.
        yield (
            f"{first}: {_source(first)} ({_source(second)} {_source(third)}? | {_source(third)} {_source(second)}?)?"
        )
    yield f"FACET: {_either(FACET_WORDS.values())}"
    yield "tail: price correction VERTICAL"
    yield f"VERTICAL: {_either((*VERTICAL_WORDS.values(), NO_VERTICAL_WORD))}"


def _price_rules(question: Question) -> Iterable[str]:
    if not question.numbers:
        yield 'price: ""'
        return
    yield f"price: ({_word(MIN_PRICE_WORD)} NUMBER)? ({_word(MAX_PRICE_WORD)} NUMBER)?"
    yield f"NUMBER: {_either(map(format_number, question.numbers))}"


def _correction_rules(question: Question) -> Iterable[str]:
    words = sorted({word.text for word in question.words if is_correctable(word.text)})
    if not words:
        yield 'correction: ""'
        return
    yield f"correction: ({_word(CORRECTION_WORD)} WRONG MEANT)?"
    yield f"WRONG: {_either(words)}"
    yield rf"MEANT: / [a-z0-9][a-z0-9'&.\-]{{0,{MAX_CORRECTION_CHARACTERS - 1}}}/"


def is_correctable(word: str) -> bool:
    """Tell whether a plan may correct this word of the question."""
    return len(word) >= SHORTEST_CORRECTED_WORD and any(character.isalpha() for character in word)


def _span_rules(question: Question) -> Iterable[str]:
    words = question.words
    for index, word in enumerate(words):
        is_final = index == len(words) - 1
        ends_utterance = is_final or words[index + 1].utterance != word.utterance
        then = f"s{index + 1}" if ends_utterance else f"c{index + 1}"
        yield f"s{index}: FACET p{index} | tail"
        yield f"p{index}: {_word(word.text)} {then}" + ("" if is_final else f" | p{index + 1}")
        yield f"c{index}: {_word(word.text)} {then} | s{index}"
    yield f"s{len(words)}: tail"


def _word_rule(intent: str) -> str:
    word = INTENT_WORDS[intent]
    return f"({_word(word)} | {_word(word.capitalize())})"


def _source(source: str) -> str:
    return f"({_word(SOURCE_WORDS[source])})"


def _either(words: Iterable[str]) -> str:
    return " | ".join(map(_word, words))


def _word(word: str) -> str:
    """Return the literal of one word with the space before it."""
    return json.dumps(f" {word}", ensure_ascii=False)
