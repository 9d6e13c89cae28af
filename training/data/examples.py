"""Training examples: a question, its plan as far as it is known, and the resulting token targets.

Targets mark what is supervised. Where a field is unknown its text is context only; where only "the facets end here" is
known, the target is a *set* of tokens and the loss is the negative log of their summed probability.
"""

from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from enum import IntEnum
from typing import Any

from tokenizers import Tokenizer

from service.planner.plan_text import FacetSpan, PlanDraft, intent_word, render, source_words, vertical_word
from service.planner.prompt import render_prompt
from service.planner.question import Question
from service.planner.vocabulary import NO_VERTICAL_WORD, PART_WORD, REFUSED_WORD, Vocabulary

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
    knows_intent: bool = True
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


def target_sets(tokenizer: Tokenizer, vocabulary: Vocabulary) -> dict[int, list[int]]:
    """Return the token ids of each TargetSet. Raises VocabularyError where a word is no single token."""
    vocabulary.check_tokens(tokenizer)
    verticals = [vertical.word for vertical in vocabulary.verticals.values()] + [NO_VERTICAL_WORD]
    sections = [*(facet.word for facet in vocabulary.facets.values()), PART_WORD, REFUSED_WORD]
    return {
        TargetSet.ENDS_FACETS: _ids(tokenizer, verticals),
        TargetSet.ENDS_SOURCES: _ids(tokenizer, [*verticals, *sections]),
    }


def within(example: Example, vocabulary: Vocabulary) -> Example | None:
    """Return what a vocabulary can say of an example; None where it has no such intent."""
    draft = example.draft
    if draft.intent not in vocabulary.intents:
        return None
    sources = [source for source in draft.sources if source in vocabulary.sources]
    spans = [span for span in draft.spans if span.facet in vocabulary.facets]
    vertical = draft.vertical if draft.vertical in vocabulary.verticals else None
    return replace(
        example,
        draft=replace(draft, sources=sources, spans=spans, vertical=vertical),
        knows_sources=example.knows_sources and sources == draft.sources,
        knows_facets=example.knows_facets and spans == draft.spans,
        knows_vertical=example.knows_vertical and vertical == draft.vertical,
    )


def encode(example: Example, tokenizer: Tokenizer, vocabulary: Vocabulary, bos: int, eos: int) -> EncodedExample:
    """Return the tokens and next-token targets of one example, all of which the vocabulary knows."""
    question = example.question()
    prompt = [bos, *tokenizer.encode(render_prompt(question), add_special_tokens=False).ids]
    builder = _Builder(tokenizer, list(prompt), [IGNORED] * (len(prompt) - 1))
    last = _write_plan(builder, example, question, vocabulary, eos)
    builder.targets.append(last)
    return EncodedExample(builder.tokens, builder.targets, len(prompt), example.origin)


def _write_plan(builder: _Builder, example: Example, question: Question, vocabulary: Vocabulary, eos: int) -> int:
    """Append the known plan text and return the target of the last position."""
    draft = example.draft
    builder.extend(f" {intent_word(draft, vocabulary)}", supervised=example.knows_intent)
    if not vocabulary.intents[draft.intent].products:
        return eos
    sources = "".join(f" {word}" for word in source_words(draft, vocabulary))
    builder.extend(sources, supervised=example.knows_sources)
    if not example.knows_facets and not draft.spans and not example.knows_vertical:
        return TargetSet.ENDS_SOURCES if example.knows_sources else IGNORED
    whole = render(draft, question, vocabulary)
    without = render(replace(draft, spans=[]), question, vocabulary)
    last = f" {vertical_word(draft, vocabulary)}"
    builder.extend(whole[len(without) - len(last) : -len(last)], supervised=example.knows_facets)
    if example.knows_vertical:
        builder.extend(last, supervised=True)
        return eos
    return TargetSet.ENDS_FACETS if example.knows_facets else IGNORED


def _ids(tokenizer: Tokenizer, words: Sequence[str]) -> list[int]:
    return [tokenizer.encode(f" {word}", add_special_tokens=False).ids[0] for word in words]
