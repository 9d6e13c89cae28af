"""One learned reader of conversations: it writes a plan's text without the model, and says how sure it is of each word.

What it writes is used four times (docs/decisions/0035-one-reader.md). It is the draft that the model verifies while it
reads the prompt (`prediction` of a `GenerationRequest`). It is the plan of a shopper for whom no model is free. Its
probability says who gains least by a model, when there is too little of it. And it is a second opinion on what the
model doubts (`planner.settled_text`).
"""

import json
import math
from collections.abc import Container, Iterator, Sequence
from dataclasses import dataclass
from functools import lru_cache
from pathlib import Path
from typing import Final, Self

import numpy as np
from pydantic import BaseModel, ConfigDict, Field, ValidationError
from safetensors import SafetensorError
from safetensors.numpy import load_file

from service.planner.plan_text import (
    FILTERS,
    FacetSpan,
    PlanDraft,
    closing_words,
    intent_word,
    render,
    source_words,
    vertical_word,
)
from service.planner.question import Question
from service.planner.reader.network import BEGINS, GOES_ON, LEFT_OUT, Array, Network, Scores, log_softmax, numbers, seen
from service.planner.vocabulary import (
    DEFAULT_INTENT,
    MARK_WORDS,
    OFFER_WORDS,
    PART_WORDS,
    REFUSED_WORD,
    SHARED_WORD,
    SORT_WORDS,
    Vocabulary,
)
from service.settings.choices import SHIPPED_MODEL

CARD, WORDS, WEIGHTS = FILES = ("reader.json", "reader_words.txt", "reader.safetensors")
MOST_WORDS: Final = 40  # the newest: reading takes longer with each, on the processor of the event loop
SORTS: Final = ("relevance", *SORT_WORDS)
OFFERS: Final = tuple(OFFER_WORDS)
_MODES: Final = ("conversational", "keyword")
_NEVER: Final = -math.inf


class ReaderError(ValueError):
    """Raised for a reader that cannot be used; the message names the file and what to do."""


class Bound(BaseModel):
    """What the reader may plan by choice, and how that is known.

    Of questions like the `questions` asked, the share that is planned well falls by more than `lost` for what the
    reader plans with probability `risk` at most (Learn then Test: Angelopoulos et al., 2021, arXiv:2110.01052). It
    plans the share `by_reader` of them, and the share `work` of the model's time on them is left; fleets are sized by
    it.
    """

    model_config = ConfigDict(extra="forbid", frozen=True)

    worth: float = Field(ge=0, le=1)  # the reader plans what is worth less
    lost: float = Field(gt=0, lt=1)
    risk: float = Field(gt=0, lt=1)
    questions: int = Field(ge=0)
    by_reader: float = Field(ge=0, le=1)
    work: float = Field(default=1, gt=0, le=1)


class Choices(BaseModel):
    """The content of reader.json: what a reader chooses from, in the order of its scores, and what it may decide.

    `kinds` are (facet or mark, refused) of the values that it marks. `differs` are (worth at most, share of texts that
    are not the model's), the last for a worth of 1.
    """

    model_config = ConfigDict(extra="forbid", frozen=True)

    kinds: tuple[tuple[str, bool], ...] = Field(min_length=1)
    intents: tuple[str, ...] = Field(min_length=1)
    sources: tuple[tuple[str, ...], ...] = Field(min_length=1)
    verticals: tuple[str | None, ...] = Field(min_length=1)
    least_probability: float = Field(ge=0, lt=1, description="of a filter's words, or it is left out")
    bound: Bound | None = None
    differs: tuple[tuple[float, float], ...] = ()

    @property
    def ends(self) -> tuple[int, ...]:
        """How many scores a question has for intent, mode, sources, sort, offers and vertical."""
        return (len(self.intents), len(_MODES), len(self.sources), len(SORTS), len(OFFERS), len(self.verticals))


@dataclass(frozen=True, slots=True)
class Reading:
    """What the reader makes of a question.

    `words` are those of its plan text, each with its probability; `draft` lacks the filters that it doubts.
    """

    draft: PlanDraft
    words: tuple[tuple[str, float], ...]

    @property
    def probability(self) -> float:
        return math.prod(probability for _, probability in self.words)

    @property
    def worth(self) -> float:
        """How likely a model's plan is to be another, between 0 and 1."""
        return 1.0 - self.probability

    @property
    def text(self) -> str:
        """The plan text, every word preceded by a space."""
        return "".join(f" {word}" for word, _ in self.words)


@dataclass(frozen=True, slots=True)
class Reader:
    """A trained reader. Never changes."""

    network: Network
    choices: Choices
    listed: dict[str, int]

    @classmethod
    def load(cls, folder: Path) -> Self:
        """Read the reader of a model folder. Raises ReaderError."""
        try:
            choices = Choices.model_validate_json((folder / CARD).read_text(encoding="utf-8"))
            words = (folder / WORDS).read_text(encoding="utf-8").splitlines()
            network = Network(load_file(folder / WEIGHTS), choices.ends)
        except (OSError, ValidationError, SafetensorError, KeyError, ValueError) as error:
            raise ReaderError(
                f"{folder} holds no reader that this service can use ({type(error).__name__}): "
                "make it with `python -m training.reader`"
            ) from error
        if network.tags != BEGINS + len(choices.kinds):
            raise ReaderError(f"{folder / WEIGHTS} marks other kinds of values than {CARD} names")
        if network.listed != len(words):
            raise ReaderError(f"{folder / WEIGHTS} knows {network.listed} words, and {WORDS} lists {len(words)}")
        return cls(network, choices, {word: at for at, word in enumerate(words, 1)})

    @classmethod
    def of_model(cls, folder: Path) -> Self | None:
        """Read the reader of a model folder, or the shipped one where that has none; None where neither is there.

        Raises ReaderError.
        """
        found = next((each for each in (folder, SHIPPED_MODEL) if (each / CARD).is_file()), None)
        return None if found is None else cls.load(found)

    def read(self, question: Question, vocabulary: Vocabulary) -> Reading:
        """Read the newest words of a question. What the vocabulary has no word for is left out."""
        if not question.words:
            draft = PlanDraft("keyword", DEFAULT_INTENT, list(vocabulary.sources)[:1])
            return Reading(draft, tuple((word, 0.0) for word in render(draft, question, vocabulary).split()))
        before = max(0, len(question.words) - MOST_WORDS)
        found = seen(question).after(before)
        scores = self.network.scores(found, numbers(found.texts, self.listed)).behind(before)
        return _Decoding(question, vocabulary, self.choices, scores).reading()

    def takes(self, worth: float) -> bool:
        """Tell whether the bound lets the reader plan a question of this worth although a model could."""
        return self.choices.bound is not None and worth < self.choices.bound.worth

    def differs(self, worth: float) -> float:
        """Return the share of questions of this worth whose text is not the model's."""
        return next((share for most, share in self.choices.differs if worth <= most), 1.0)


@dataclass(frozen=True, slots=True)
class _Value:
    """A value that was marked, with the logarithms of the probabilities of its kind, its part and its words."""

    span: FacetSpan
    begins: float
    part: float
    goes_on: tuple[float, ...]

    @property
    def probability(self) -> float:
        return math.exp(self.begins + sum(self.goes_on))


@dataclass(frozen=True, slots=True)
class _Decoding:
    question: Question
    vocabulary: Vocabulary
    choices: Choices
    scores: Scores

    def reading(self) -> Reading:
        intents, modes, sources, sorts, offers, verticals = self.scores.ends
        intent, of_intent = _best(_known(intents, self.choices.intents, self.vocabulary.intents))
        mode, of_mode = _best(modes)
        draft = PlanDraft(_MODES[mode], self.choices.intents[intent])
        words = [(intent_word(draft, self.vocabulary), math.exp(of_intent + of_mode))]
        chosen = self.vocabulary.intents[draft.intent]
        if not chosen.products:
            return self._told(draft, words, [])
        if chosen.sources is None:
            draft.sources, of_sources = self._sources(sources)
            words += _shared(source_words(draft, self.vocabulary), of_sources)
        else:
            draft.sources = list(chosen.sources)
        values = list(self._values())
        words += self._value_words(values)
        sort, of_end = _best(sorts)
        draft.sort = SORTS[sort]
        draft.offers = [offer for offer, score in zip(OFFERS, offers, strict=True) if score > 0]
        of_end += float(-np.log1p(np.exp(-np.abs(offers))).sum())
        end = values[-1].span.last + 1 if values else 0
        of_end += float(self.scores.tags[end:, LEFT_OUT].sum())  # no value follows
        place, of_vertical = _best(verticals)
        vertical = self.choices.verticals[place]
        draft.vertical = vertical if vertical in self.vocabulary.verticals else None
        words += _shared([*closing_words(draft), vertical_word(draft, self.vocabulary)], of_end + of_vertical)
        return self._told(draft, words, values)

    def _sources(self, scores: Array) -> tuple[list[str], float]:
        """Return the best list of which the vocabulary has all, else its first source, with the logarithm."""
        able = list(self.vocabulary.source_of_word.values())
        lists = [names for names in self.choices.sources if set(names) <= set(able)]
        place, logarithm = _best(_known(scores, self.choices.sources, lists))
        return (list(self.choices.sources[place]) if lists else able[:1]), logarithm

    def _told(self, draft: PlanDraft, words: list[tuple[str, float]], values: Sequence[_Value]) -> Reading:
        for value in values:
            is_filter = value.span.refused or value.span.facet in FILTERS
            if not is_filter or value.probability >= self.choices.least_probability:
                (draft.marks if value.span.facet in MARK_WORDS else draft.spans).append(value.span)
        return Reading(draft, tuple(words))

    def _values(self) -> Iterator[_Value]:
        """Yield the values of the most likely tags, in the conversation's order."""
        tags, parts = self.scores.tags, self.scores.parts
        begins = tags[:, BEGINS:] + _unknown_kinds(self.choices.kinds, self.vocabulary)
        best = begins.argmax(1)
        path = self._path(begins.max(1))
        at = 0
        while at < len(path):
            first, at = at, at + 1
            if path[first] == LEFT_OUT:
                continue
            while at < len(path) and path[at] == GOES_ON:
                at += 1
            facet, refused = self.choices.kinds[best[first]]
            part = int(parts[first].argmax())
            yield _Value(
                FacetSpan(facet, first, at - 1, refused, part),
                float(begins[first, best[first]]),
                float(parts[first, part]),
                tuple(tags[first + 1 : at, GOES_ON].tolist()),
            )

    def _path(self, begins: Array) -> list[int]:
        """Return the most likely tags (LEFT_OUT, GOES_ON or BEGINS): no value runs from one message into the next."""
        out, inside = 0.0, _NEVER  # the best log-probability with the last word left out, or in a value
        steps: list[tuple[int, int, int]] = []  # what led to out, and to inside: (before, tag)
        words = self.question.words
        for at, (left_out, goes_on) in enumerate(self.scores.tags[:, :BEGINS].tolist()):
            best, before = (out, LEFT_OUT) if out >= inside else (inside, GOES_ON)
            is_same = at > 0 and words[at].utterance == words[at - 1].utterance
            new, longer = best + float(begins[at]), inside + goes_on if is_same else _NEVER
            steps.append((before, BEGINS, before) if new >= longer else (before, GOES_ON, GOES_ON))
            out, inside = best + left_out, max(new, longer)
        path: list[int] = []
        is_inside = inside > out
        for before_out, tag, before_inside in reversed(steps):
            path.append(tag if is_inside else LEFT_OUT)
            is_inside = (before_inside if is_inside else before_out) == GOES_ON
        return path[::-1]

    def _value_words(self, values: Sequence[_Value]) -> Iterator[tuple[str, float]]:
        """Yield the words of values as plan text has them, in the conversation's order."""
        part, end = 0, 0
        for value in values:
            span = value.span
            named = [MARK_WORDS.get(span.facet) or self.vocabulary.facets[span.facet].word]
            if span.refused:
                named.insert(0, REFUSED_WORD)
            if span.part != part:
                part = span.part
                named.insert(0, PART_WORDS[part - 1] if part else SHARED_WORD)
            left_out = float(self.scores.tags[end : span.first, LEFT_OUT].sum())
            yield from _shared(named, left_out + value.begins + value.part)
            yield self.question.words[span.first].text, 1.0
            for word, of_word in zip(self.question.words[span.first + 1 : span.last + 1], value.goes_on, strict=True):
                yield word.text, math.exp(of_word)
            end = span.last + 1


@lru_cache(maxsize=8)
def _unknown_kinds(kinds: tuple[tuple[str, bool], ...], vocabulary: Vocabulary) -> Array:
    """Return what keeps facets that the vocabulary has not from being chosen."""
    known = (*vocabulary.facets, *MARK_WORDS)
    return np.array([0.0 if facet in known else -1e9 for facet, _ in kinds], np.float32)


def _best(scores: Array) -> tuple[int, float]:
    """Return the place of the highest score, and the logarithm of its probability."""
    place = int(scores.argmax())
    return place, float(log_softmax(scores)[place])


def _known(scores: Array, names: Sequence[object], known: Container[object]) -> Array:
    """Return scores in which unknown names are never the highest."""
    return np.where([name in known for name in names], scores, np.float32(-1e9))


def _shared(words: Sequence[str], logarithm: float) -> list[tuple[str, float]]:
    """Return words that are chosen together: the first has the probability of all."""
    return [(word, math.exp(logarithm) if at == 0 else 1.0) for at, word in enumerate(words)]


def write_card(choices: Choices, folder: Path) -> None:
    (folder / CARD).write_text(json.dumps(choices.model_dump()) + "\n", encoding="utf-8")
