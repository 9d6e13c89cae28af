"""Readers that say what a test wants, and folders that a planner reads: a model's, and a shop's."""

from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Self

from service.planner.plan_text import FacetSpan, PlanDraft, render
from service.planner.question import Question
from service.planner.reader.reading import CARD, Bound, Choices, Reader, Reading, write_card
from service.planner.shop.folder import seal, write_lexicon
from service.planner.spelling import sounds
from service.planner.vocabulary import Vocabulary
from service.settings.choices import SHIPPED_MODEL
from service.weights.seal import SEAL


def bounded_model(folder: Path, worth: float) -> Path:
    """Make a folder of the shipped model; its reader plans what is worth less than this."""
    folder.mkdir()
    for file in SHIPPED_MODEL.iterdir():
        if file.name not in (CARD, SEAL):
            (folder / file.name).symlink_to(file)
    bound = Bound(worth=worth, lost=0.01, risk=0.1, questions=1000, by_reader=0.5, work=0.5)
    write_card(Reader.load(SHIPPED_MODEL).choices.model_copy(update={"bound": bound}), folder)
    return folder


NAMES = {
    "google": "brand", "vans": "brand", "thanks": "brand", "muga": "brand", "cune": "brand", "ninja": "brand",
    "quorlin": "brand",
    "old skool": "line", "rioja": "origin", "mug": "type", "cork boots": "material",
}  # fmt: skip


def write_folder(folder: Path, names: dict[str, str] = NAMES) -> Path:
    folder.mkdir()
    entries: list[dict[str, Any]] = [
        {"facet": facet, "sure": True, "count": 40, "spellings": [name]} for name, facet in names.items()
    ]
    entries.append({"facet": "brand", "sure": False, "count": 9, "spellings": ["orange"]})
    words = {word: 40 for name in names for word in name.split()}
    write_lexicon(folder, entries, words, sounds(words))
    seal(folder, {"products": 100})
    return folder


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
