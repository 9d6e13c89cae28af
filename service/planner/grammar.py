"""The grammar of plan text for one question, in llguidance's Lark dialect.

Right-linear over the question's words, so it grows linearly with them and compiles in about a millisecond. After word
`i` three rules define what may follow: `s<i>` a new section, `p<i>` a span that starts at word `i` or later, `c<i>` the
same span going on with word `i`. A facet value can therefore only be a run of the question's own words, in order.
https://github.com/guidance-ai/llguidance/blob/main/docs/syntax.md
"""

import json
from collections.abc import Iterable, Iterator
from functools import lru_cache

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

_MOST_SOURCES = 3  # that a model chooses


def plan_grammar(question: Question, vocabulary: Vocabulary) -> str:
    """Return the Lark grammar that admits exactly the valid plan texts of this question."""
    return "\n".join((_fixed_text(vocabulary), *_span_rules(question)))


@lru_cache(maxsize=8)
def _fixed_text(vocabulary: Vocabulary) -> str:
    return "\n".join(_fixed_rules(vocabulary))


def _fixed_rules(vocabulary: Vocabulary) -> Iterator[str]:
    intents, sources = vocabulary.intents.values(), list(vocabulary.source_of_word.values())
    fixed = [intent.word for intent in intents if not intent.products]
    named = [intent.word for intent in intents if intent.products and intent.sources is not None]
    chosen = [intent.word for intent in intents if intent.sources is None]
    start = [("FIXED", fixed), ("NAMED s0", named), (f"CHOSEN ({' | '.join(sources)}) s0", chosen)]
    yield f"start: {' | '.join(rule for rule, words in start if words)}"
    for rule, words in start:
        if words:
            yield f"{rule.split()[0]}: {_either(form for word in words for form in (word, word.capitalize()))}"
    for place, source in enumerate(sources if chosen else ()):
        others = [*sources[place + 1 :], *sources[:place]]
        yield f"{source}: {_source(source, vocabulary)} {_orders(others, _MOST_SOURCES - 1, vocabulary)}".rstrip()
    yield f"facet: ({_either((*PART_WORDS, SHARED_WORD))})? ({_word(REFUSED_WORD)}? FACET | MARK)"
    yield f"MARK: {_either(MARK_WORDS.values())}"
    offers = " ".join(f"{_word(word)}?" for word in OFFER_WORDS.values())
    yield f"end: ({_either(SORT_WORDS.values())})? {offers} VERTICAL"
    yield f"FACET: {_either(facet.word for facet in vocabulary.facets.values())}"
    verticals = (vertical.word for vertical in vocabulary.verticals.values())
    yield f"VERTICAL: {_either((*verticals, NO_VERTICAL_WORD, FOREIGN_WORD))}"


def _orders(sources: list[str], most: int, vocabulary: Vocabulary) -> str:
    """Return a rule for none to `most` of the sources, each once, in any order."""
    if not sources or not most:
        return ""
    ways = []
    for place, source in enumerate(sources):
        others = [*sources[place + 1 :], *sources[:place]]
        ways.append(f"{_source(source, vocabulary)} {_orders(others, most - 1, vocabulary)}".rstrip())
    return f"{ways[0]}?" if ways == [_source(sources[0], vocabulary)] else f"({' | '.join(ways)})?"


def _span_rules(question: Question) -> Iterable[str]:
    words = question.words
    for index, word in enumerate(words):
        is_final = index == len(words) - 1
        ends_utterance = is_final or words[index + 1].utterance != word.utterance
        then = f"s{index + 1}" if ends_utterance else f"c{index + 1}"
        yield f"s{index}: facet p{index} | end"
        yield f"p{index}: {_word(word.text)} {then}" + ("" if is_final else f" | p{index + 1}")
        yield f"c{index}: {_word(word.text)} {then} | s{index}"
    yield f"s{len(words)}: end"


def _source(source: str, vocabulary: Vocabulary) -> str:
    return f"({_word(vocabulary.sources[source].word or '')})"


def _either(words: Iterable[str]) -> str:
    return " | ".join(map(_word, words))


def _word(word: str) -> str:
    """Return the literal of one word with the space before it."""
    return json.dumps(f" {word}", ensure_ascii=False)
