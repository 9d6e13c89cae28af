"""How likely the model's plan is to be better than the rules': a small network, kept as numbers in the model folder.

`training/worth.py` makes the file. A score only ever chooses who plans; it changes no plan. Scoring needs no numpy: the
gateway of a Neuron host has none.
"""

import math
from collections.abc import Callable
from dataclasses import dataclass
from functools import cached_property, lru_cache, partial
from itertools import repeat
from operator import mul
from pathlib import Path
from typing import Annotated, Self

from pydantic import BaseModel, ConfigDict, Field, ValidationError, model_validator

from service.planner.fallback.reading.conversation import Conversation
from service.planner.vocabulary import Vocabulary
from service.planner.worth.features import NAMES, Reading, numbers

FILE_NAME = "worth.json"
MOST_DEVIATIONS = 4.0
_HISTORY = NAMES.index("history")
_COMMON = 64  # values of a number whose part is kept
Units = tuple[float, ...]


def _within(deviations: float) -> float:
    return min(max(deviations, -MOST_DEVIATIONS), MOST_DEVIATIONS)


def _change(mean: float, deviation: float, weights: Units, value: int) -> Units:
    """Return what the units have more of for a number that is `value` and not 0."""
    change = _within((math.log1p(value) - mean) / deviation) - _within(-mean / deviation)
    return tuple(change * weight for weight in weights)


class WorthError(ValueError):
    """Raised for a file of worth that this service cannot use; the message says which and why."""


class Network(BaseModel):
    """A layer of rectified units, and log odds, over the logarithms of one more than each number.

    Logarithms are in deviations from their mean, MOST_DEVIATIONS at most.
    """

    model_config = ConfigDict(extra="forbid", frozen=True, allow_inf_nan=False)

    mean: tuple[float, ...]
    deviation: tuple[Annotated[float, Field(gt=0)], ...]
    hidden: tuple[tuple[float, ...], ...]  # [units, numbers]
    bias: tuple[float, ...]  # [units]
    output: tuple[float, ...]  # [units]
    start: float

    @model_validator(mode="after")
    def _layers_fit(self) -> Self:
        if len(self.deviation) != len(self.mean) or any(len(unit) != len(self.mean) for unit in self.hidden):
            raise ValueError("a unit has not one weight for each number")
        if not len(self.hidden) == len(self.bias) == len(self.output):
            raise ValueError("a unit has no bias or no weight in the output")
        return self


class Bound(BaseModel):
    """What rules may plan by choice, and how that is known.

    Of questions like the `questions` asked, the share that is planned well falls by more than `lost` for what rules
    plan with probability `risk` at most (Learn then Test: Angelopoulos et al., 2021, arXiv:2110.01052). Rules plan the
    share `by_rule` of them, and the share `work` of the model's time on them is left; fleets are sized by it.
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
    network: Network
    shift: tuple[float, float] = (0.0, 0.0)  # more of it for a question alone, and for one after others: calibrated
    bound: Bound
    differs: tuple[tuple[float, float], ...]  # (worth at most, share of plans that differ), the last at 1

    @model_validator(mode="after")
    def _numbers_exist(self) -> Self:
        if unknown := set(self.numbers) - set(NAMES):
            raise ValueError(f"this service does not compute {', '.join(sorted(unknown))}")
        if len(self.network.mean) != len(self.numbers):
            raise ValueError("the network does not take the numbers that the file names")
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
    def _units_of_none(self) -> Units:
        """What the units are for numbers that are all 0, as most of a question's are."""
        network = self.worth.network
        still = [_within(-mean / deviation) for mean, deviation in zip(network.mean, network.deviation, strict=True)]
        return tuple(bias + sum(map(mul, unit, still)) for bias, unit in zip(network.bias, network.hidden, strict=True))

    @cached_property
    def _inputs(self) -> tuple[tuple[int, Callable[[int], Units]], ...]:
        """The place of each number among a reading's, and what a value of it adds to the units: few are common."""
        network = self.worth.network
        columns = zip(*network.hidden, strict=True) if network.hidden else repeat(())
        adds = (
            lru_cache(_COMMON)(partial(_change, *number))
            for number in zip(network.mean, network.deviation, columns, strict=False)
        )
        return tuple(zip(map(NAMES.index, self.worth.numbers), adds, strict=True))

    def score(self, reading: Reading) -> float:
        """Return how likely the model's plan is to be better, between 0 and 1 (some 0.1 ms)."""
        return self.of_numbers(numbers(reading))

    def of_numbers(self, found: tuple[int, ...]) -> float:
        """Return the same for the numbers of a question."""
        changes = [adds(found[place]) for place, adds in self._inputs if found[place]]
        units = map(sum, zip(self._units_of_none, *changes, strict=True))
        network = self.worth.network
        total = sum(unit * weight for unit, weight in zip(units, network.output, strict=True) if unit > 0)
        total += network.start + self.worth.shift[found[_HISTORY] > 0]
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
