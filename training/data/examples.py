"""Training examples: a question, its plan as far as it is known, and the resulting token targets.

Targets mark what is supervised. Where a field is unknown its text is context only; where only "the facets end here" is
known, the target is a *set* of tokens and the loss is the negative log of their summed probability.
"""

from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from enum import IntEnum
from typing import Any

from tokenizers import Tokenizer

from service.planner.plan_text import FacetSpan, PlanDraft, intent_word, render, vertical_word
from service.planner.prompt import render_prompt
from service.planner.question import Question
from service.planner.vocabulary import (
    FACET_WORDS,
    INTENT_SOURCES,
    NO_VERTICAL_WORD,
    PART_WORD,
    PRODUCT_INTENTS,
    REFUSED_WORD,
    SOURCE_WORDS,
    VERTICAL_WORDS,
)

IGNORED = -100


class TargetSet(IntEnum):
    """Targets that stand for any token of a set (negative, so that no token id collides)."""

    ENDS_FACETS = -2  # a vertical word
    ENDS_SOURCES = -3  # any token that may follow the sources


@dataclass(frozen=True, slots=True)
class MarkedText:
    """A text as words, with its facet spans (indices into `words`)."""

    words: tuple[str, ...]
    spans: tuple[FacetSpan, ...] = ()

    @classmethod
    def plain(cls, text: str) -> "MarkedText":
        return cls(tuple(text.split()))

    @classmethod
    def value(cls, facet: str, text: str) -> "MarkedText":
        """Mark a whole text as one facet's value."""
        words = tuple(text.split())
        return cls(words, (FacetSpan(facet, 0, len(words) - 1),))

    def __add__(self, other: "MarkedText") -> "MarkedText":
        return MarkedText(self.words + other.words, self.spans + shift(other.spans, len(self.words)))

    def __str__(self) -> str:
        return " ".join(self.words)


def shift(spans: Sequence[FacetSpan], by: int) -> tuple[FacetSpan, ...]:
    return tuple(replace(span, first=span.first + by, last=span.last + by) for span in spans)


@dataclass(frozen=True, slots=True)
class Example:
    """One question with the known part of its plan. `draft.spans` index the words of the whole `Question`.

    `price` (lowest, highest), `slip` (a misspelt word, the word that was meant) and `expected` (a whole plan) are what
    an evaluation expects besides plan text.
    """

    query: str
    draft: PlanDraft
    history: tuple[str, ...] = ()
    knows_sources: bool = True
    knows_facets: bool = True
    knows_vertical: bool = False
    price: tuple[float | None, float | None] = (None, None)
    slip: tuple[str, str] | None = None
    expected: dict[str, Any] | None = None
    origin: str = ""

    def question(self) -> Question:
        return Question.parse(self.query, self.history)


@dataclass(frozen=True, slots=True)
class EncodedExample:
    """Token ids of prompt and plan, and each position's target (the token that should come *next*), same length."""

    tokens: list[int]
    targets: list[int]
    prompt_length: int
    origin: str = ""


@dataclass(slots=True)
class _Builder:
    tokenizer: Tokenizer
    tokens: list[int]
    targets: list[int] = field(default_factory=list)

    def extend(self, text: str, *, supervised: bool) -> None:
        for token in self.tokenizer.encode(text, add_special_tokens=False).ids:
            self.targets.append(token if supervised else IGNORED)
            self.tokens.append(token)


def target_sets(tokenizer: Tokenizer) -> dict[int, list[int]]:
    """Return the token ids of each TargetSet."""
    verticals = _ids(tokenizer, [*VERTICAL_WORDS.values(), NO_VERTICAL_WORD])
    return {
        TargetSet.ENDS_FACETS: verticals,
        TargetSet.ENDS_SOURCES: [*verticals, *_ids(tokenizer, [*FACET_WORDS.values(), PART_WORD, REFUSED_WORD])],
    }


def encode(example: Example, tokenizer: Tokenizer, bos: int, eos: int) -> EncodedExample:
    """Return the tokens and next-token targets of one example."""
    question = example.question()
    prompt = [bos, *tokenizer.encode(render_prompt(question), add_special_tokens=False).ids]
    builder = _Builder(tokenizer, list(prompt), [IGNORED] * (len(prompt) - 1))
    last = _write_plan(builder, example, question, eos)
    builder.targets.append(last)
    return EncodedExample(builder.tokens, builder.targets, len(prompt), example.origin)


def _write_plan(builder: _Builder, example: Example, question: Question, eos: int) -> int:
    """Append the known plan text and return the target of the last position."""
    draft = example.draft
    builder.extend(f" {intent_word(draft.mode, draft.intent)}", supervised=True)
    if draft.intent not in PRODUCT_INTENTS:
        return eos
    if draft.intent not in INTENT_SOURCES:
        sources = "".join(f" {SOURCE_WORDS[source]}" for source in draft.sources)
        builder.extend(sources, supervised=example.knows_sources)
    if not example.knows_facets and not draft.spans and not example.knows_vertical:
        return TargetSet.ENDS_SOURCES if example.knows_sources else IGNORED
    whole, without = render(draft, question), render(replace(draft, spans=[]), question)
    last = f" {vertical_word(draft)}"
    builder.extend(whole[len(without) - len(last) : -len(last)], supervised=example.knows_facets)
    if example.knows_vertical:
        builder.extend(last, supervised=True)
        return eos
    return TargetSet.ENDS_FACETS if example.knows_facets else IGNORED


def _ids(tokenizer: Tokenizer, words: Sequence[str]) -> list[int]:
    ids = []
    for word in words:
        encoded = tokenizer.encode(f" {word}", add_special_tokens=False).ids
        if len(encoded) != 1:
            raise ValueError(f"plan word {word!r} is {len(encoded)} tokens for this tokenizer; choose another word")
        ids.append(encoded[0])
    return ids
