"""How likely the model's plan is to be better than the rules': boosted trees, kept as numbers in the model folder.

`training/worth.py` makes the file. A score only ever chooses who plans; it changes no plan.
"""

import math
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import Annotated, Self

from pydantic import BaseModel, ConfigDict, Field, ValidationError, model_validator

from service.planner.reading.conversation import Conversation
from service.planner.vocabulary import Vocabulary
from service.planner.worth.features import NAMES, Reading, numbers

FILE_NAME = "worth.json"
DEPTH = 3
_HISTORY = NAMES.index("history")
_SPLITS, _LEAVES = 2**DEPTH - 1, 2**DEPTH


class WorthError(ValueError):
    """Raised for a file of worth that this service cannot use; the message says which and why."""


class Tree(BaseModel):
    """A complete tree: at split i a number above `over` goes on at split 2i + 2, any other at 2i + 1."""

    model_config = ConfigDict(extra="forbid", frozen=True)

    number: Annotated[tuple[int, ...], Field(min_length=_SPLITS, max_length=_SPLITS)]
    over: Annotated[tuple[int, ...], Field(min_length=_SPLITS, max_length=_SPLITS)]
    leaf: Annotated[tuple[float, ...], Field(min_length=_LEAVES, max_length=_LEAVES)]


class Bound(BaseModel):
    """What rules may plan by choice, and how that is known.

    Of questions like the `questions` asked, a share above `lost` has a better plan by the model and gets one by rule
    with probability `risk` at most (Learn then Test: Angelopoulos et al., 2021, arXiv:2110.01052). Rules plan the share
    `by_rule` of them, and the share `work` of the model's time on them is left; fleets are sized by it.
    """

    model_config = ConfigDict(extra="forbid", frozen=True)

    worth: float = Field(ge=0, le=1)  # rules plan what is worth less
    lost: float = Field(gt=0, lt=1)
    risk: float = Field(gt=0, lt=1)
    questions: int = Field(ge=0)
    by_rule: float = Field(ge=0, le=1)
    work: float = Field(default=1, gt=0, le=1)


class Worth(BaseModel):
    """The content of worth.json."""

    model_config = ConfigDict(extra="forbid", frozen=True)

    numbers: tuple[str, ...]
    start: float
    shift: tuple[float, float] = (0.0, 0.0)  # more of it for a question alone, and for one after others: calibrated
    trees: tuple[Tree, ...]
    bound: Bound
    differs: tuple[tuple[float, float], ...]  # (worth at most, share of plans that differ), the last at 1

    @model_validator(mode="after")
    def _numbers_exist(self) -> Self:
        if unknown := set(self.numbers) - set(NAMES):
            raise ValueError(f"this service does not compute {', '.join(sorted(unknown))}")
        if any(not 0 <= number < len(self.numbers) for tree in self.trees for number in tree.number):
            raise ValueError("a tree asks for a number that the file does not name")
        return self


@dataclass(frozen=True)
class Scorer:
    """Scores questions for one model."""

    worth: Worth

    @classmethod
    def load(cls, folder: Path) -> "Scorer | None":
        """Read the scorer of a model folder; None where it has none. Raises WorthError."""
        path = folder / FILE_NAME
        if not path.is_file():
            return None
        try:
            return cls(Worth.model_validate_json(path.read_text(encoding="utf-8")))
        except (ValidationError, UnicodeDecodeError) as error:
            raise WorthError(f"{path} says nothing of worth: make it anew with `python -m training.worth`") from error

    @cached_property
    def _trees(self) -> list[tuple[tuple[int, ...], tuple[int, ...], tuple[float, ...]]]:
        places = [NAMES.index(name) for name in self.worth.numbers]
        return [(tuple(places[n] for n in tree.number), tree.over, tree.leaf) for tree in self.worth.trees]

    def score(self, reading: Reading) -> float:
        """Return how likely the model's plan is to be better, between 0 and 1 (some 0.1 ms)."""
        return self.of_numbers(numbers(reading))

    def of_numbers(self, found: tuple[int, ...]) -> float:
        """Return the same for the numbers of a question."""
        total = self.worth.start + self.worth.shift[found[_HISTORY] > 0]
        for number, over, leaf in self._trees:
            at = 0
            while at < _SPLITS:
                at = 2 * at + 1 + (found[number[at]] > over[at])
            total += leaf[at - _SPLITS]
        return 1 / (1 + math.exp(-total))

    def of(self, conversation: Conversation, vocabulary: Vocabulary) -> float:
        """Read a conversation's newest question, and score it."""
        return self.score(Reading(conversation, vocabulary))

    def is_for_rules(self, worth: float) -> bool:
        """Tell whether the bound lets rules plan a question of this worth although the model could."""
        return worth < self.worth.bound.worth

    def differs(self, worth: float) -> float:
        """Return the share of questions of this worth whose plans by rule are not the model's."""
        return next((share for most, share in self.worth.differs if worth <= most), 1.0)
