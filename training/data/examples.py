"""Training examples: a question, its plan as far as it is known, and the resulting token targets.

Targets mark what is supervised. Where a field is unknown its text is context only; where only "the facets end here" is
known, the target is a *set* of tokens and the loss is the negative log of their summed probability.
"""

from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from enum import IntEnum
from typing import Any

from tokenizers import Tokenizer

from service.planner.plan_text import (
    FacetSpan,
    PlanDraft,
    closing_words,
    intent_word,
    source_words,
    span_words,
    vertical_word,
)
from service.planner.prompt import render_prompt
from service.planner.question import Question
from service.planner.vocabulary import (
    MARK_WORDS,
    NO_VERTICAL_WORD,
    OFFER_WORDS,
    PART_WORDS,
    REFUSED_WORD,
    SORT_WORDS,
    Vocabulary,
)

IGNORED = -100


class TargetSet(IntEnum):
    """Targets that stand for any token of a set (negative, so that no token id collides)."""

    ENDS_FACETS = -2  # a word of sort or offers, or a vertical
    ENDS_SOURCES = -3  # any token that may follow the sources
    EITHER_MODE = -1000  # minus the intent's number: its word in either mode


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
    locale: str = ""
    knows_intent: bool = True
    knows_mode: bool = True
    knows_sources: bool = True
    knows_facets: bool = True
    knows_closing: bool = False  # sort and offers
    knows_vertical: bool = False
    price: tuple[float | None, float | None] = (None, None)
    slip: tuple[str, str] | None = None
    expected: dict[str, Any] | None = None
    origin: str = ""

    def question(self) -> Question:
        return Question.parse(self.query, self.history, self.locale)


@dataclass(frozen=True, slots=True)
class EncodedExample:
    """Tokens of the turns of one conversation, each followed by its plan, in one sequence.

    A turn's plan stands after all turns so far, and no later turn sees it: `segments` are 0 for what shoppers say and
    the turn's number for its plan, `positions` those that a turn asked alone would have. `targets` hold what should
    come after each token; the last of a turn's words is followed by its plan.
    """

    tokens: list[int]
    targets: list[int]
    positions: list[int]
    segments: list[int]
    origin: str = ""


@dataclass(slots=True)
class _Builder:
    tokenizer: Tokenizer
    tokens: list[int] = field(default_factory=list)
    targets: list[int] = field(default_factory=list)
    positions: list[int] = field(default_factory=list)
    segments: list[int] = field(default_factory=list)
    segment: int = 0
    position: int = 0

    def extend(self, text: str, *, supervised: bool) -> None:
        """Append text of a plan; the target of the token before each is that token."""
        for token in self.tokenizer.encode(text, add_special_tokens=False).ids:
            self.targets[-1] = token if supervised else IGNORED
            self.append([token])

    def append(self, tokens: Sequence[int]) -> None:
        """Append tokens without targets."""
        for token in tokens:
            self.tokens.append(token)
            self.targets.append(IGNORED)
            self.positions.append(self.position)
            self.segments.append(self.segment)
            self.position += 1


def target_sets(tokenizer: Tokenizer, vocabulary: Vocabulary) -> dict[int, list[int]]:
    """Return the token ids of each set of targets. Raises VocabularyError where a word is no single token."""
    vocabulary.check_tokens(tokenizer)
    verticals = [vertical.word for vertical in vocabulary.verticals.values()] + [NO_VERTICAL_WORD]
    closings = [*SORT_WORDS.values(), *OFFER_WORDS.values(), *verticals]
    sections = [*(facet.word for facet in vocabulary.facets.values()), *MARK_WORDS.values(), PART_WORDS[0]]
    return {
        TargetSet.ENDS_FACETS: _ids(tokenizer, closings),
        TargetSet.ENDS_SOURCES: _ids(tokenizer, [*closings, *sections, REFUSED_WORD]),
        **{
            TargetSet.EITHER_MODE - number: _ids(tokenizer, [intent.word, intent.word.capitalize()])
            for number, intent in enumerate(vocabulary.intents.values())
        },
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
    """Return the tokens and targets of one question, all of which the vocabulary knows."""
    return encode_turns([example], tokenizer, vocabulary, bos, eos)


def encode_turns(
    turns: Sequence[Example], tokenizer: Tokenizer, vocabulary: Vocabulary, bos: int, eos: int
) -> EncodedExample:
    """Return one sequence of turns, the prompt of each of which goes on from the one before."""
    builder = _Builder(tokenizer)
    builder.append([bos])
    prompt = ""
    for number, turn in enumerate(turns, 1):
        question = turn.question()
        whole = render_prompt(question)
        if not whole.startswith(prompt):
            raise ValueError(f"the prompt of turn {number} does not go on from the one before: {whole!r}")
        builder.append(tokenizer.encode(whole[len(prompt) :], add_special_tokens=False).ids)
        prompt, here = whole, builder.position
        builder.segment = number
        last = _write_plan(builder, turn, question, vocabulary, eos)
        builder.targets[-1] = last
        builder.segment, builder.position = 0, here
    return EncodedExample(builder.tokens, builder.targets, builder.positions, builder.segments, turns[0].origin)


def _write_plan(builder: _Builder, example: Example, question: Question, vocabulary: Vocabulary, eos: int) -> int:
    """Append the known plan text and return the target of the last position."""
    draft = example.draft
    before = len(builder.targets) - 1
    builder.extend(f" {intent_word(draft, vocabulary)}", supervised=example.knows_intent)
    if example.knows_intent and not example.knows_mode:
        builder.targets[before] = TargetSet.EITHER_MODE - list(vocabulary.intents).index(draft.intent)
    if not vocabulary.intents[draft.intent].products:
        return eos
    sources = "".join(f" {word}" for word in source_words(draft, vocabulary))
    builder.extend(sources, supervised=example.knows_sources)
    if not example.knows_facets and not draft.spans and not example.knows_vertical:
        return TargetSet.ENDS_SOURCES if example.knows_sources else IGNORED
    words = "".join(f" {word}" for word in span_words(draft, question, vocabulary))
    builder.extend(words, supervised=example.knows_facets)
    if example.knows_closing:
        builder.extend("".join(f" {word}" for word in closing_words(draft)), supervised=True)
    if example.knows_vertical:
        builder.extend(f" {vertical_word(draft, vocabulary)}", supervised=True)
        return eos
    return TargetSet.ENDS_FACETS if example.knows_facets else IGNORED


def _ids(tokenizer: Tokenizer, words: Sequence[str]) -> list[int]:
    return [tokenizer.encode(f" {word}", add_special_tokens=False).ids[0] for word in words]
