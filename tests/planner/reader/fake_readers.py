"""Readers that say what a test wants: the last word of a question is what it looks for, and how sure they are."""

from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any, Self

from service.planner.plan_text import FacetSpan, PlanDraft, render
from service.planner.question import Question
from service.planner.reader.reading import Bound, Choices, Reader, Reading
from service.planner.vocabulary import Vocabulary

BOUND = 0.3
_BOUND = Bound(worth=BOUND, lost=0.01, risk=0.05, questions=100, by_reader=0.5)


@dataclass(frozen=True, slots=True)
class FakeReader(Reader):
    """A reader that marks the last word as a type, with the probability that `sure` gives."""

    sure: Callable[[Question], float]

    def read(self, question: Question, vocabulary: Vocabulary) -> Reading:
        last = len(question.words) - 1
        draft = PlanDraft("keyword", "find_product", ["catalog"], [FacetSpan("type", last, last)])
        first, *others = render(draft, question, vocabulary).split()
        return Reading(draft, ((first, self.sure(question)), *((word, 1.0) for word in others)))

    @classmethod
    def of(cls, sure: Callable[[Question], float], *, is_bounded: bool = True, **more: Any) -> Self:
        choices = Choices(
            kinds=(("type", False),), intents=("find_product",), sources=(("catalog",),), verticals=(None,),
            least_probability=0.0, bound=_BOUND if is_bounded else None, differs=((BOUND, 0.1), (1.0, 0.5)),
        )  # fmt: skip
        return cls(None, choices, {}, sure, **more)  # type: ignore[arg-type]

    @classmethod
    def by_length(cls, *, is_bounded: bool = True) -> Self:
        """Return a reader that is sure of questions of up to four words."""
        return cls.of(lambda question: 0.9 if len(question.words) <= 4 else 0.4, is_bounded=is_bounded)


@dataclass(frozen=True, slots=True)
class CountingReader(FakeReader):
    """A reader that notes what it reads."""

    read_texts: list[str] = field(default_factory=list)

    def read(self, question: Question, vocabulary: Vocabulary) -> Reading:
        self.read_texts.append(question.text)
        return FakeReader.read(self, question, vocabulary)


by_length = FakeReader.by_length
