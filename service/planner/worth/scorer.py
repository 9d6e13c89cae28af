"""How likely the model's plan is to be better than the rules': a small network, kept as numbers in the model folder.

`training/worth.py` makes the file. A score only ever chooses who plans; it changes no plan.
"""

import math
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import Annotated, Self

import numpy as np
from numpy.typing import NDArray
from pydantic import BaseModel, ConfigDict, Field, ValidationError, model_validator

from service.planner.reading.conversation import Conversation
from service.planner.vocabulary import Vocabulary
from service.planner.worth.features import NAMES, Reading, numbers

FILE_NAME = "worth.json"
MOST_DEVIATIONS = 4.0
_HISTORY = NAMES.index("history")
Floats = NDArray[np.float64]


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
    def _layers(self) -> tuple[NDArray[np.intp], Floats, Floats, Floats, Floats, Floats]:
        network = self.worth.network
        places = np.array([NAMES.index(name) for name in self.worth.numbers], dtype=np.intp)
        hidden = np.array(network.hidden, dtype=np.float64).reshape(len(network.bias), len(places))
        mean, deviation, bias, output = map(np.array, (network.mean, network.deviation, network.bias, network.output))
        return places, mean, 1 / deviation, hidden, bias, output

    def score(self, reading: Reading) -> float:
        """Return how likely the model's plan is to be better, between 0 and 1 (some 0.1 ms)."""
        return self.of_numbers(numbers(reading))

    def of_numbers(self, found: tuple[int, ...]) -> float:
        """Return the same for the numbers of a question."""
        places, mean, per_deviation, hidden, bias, output = self._layers
        inputs = (np.log1p(np.array(found, dtype=np.float64)[places]) - mean) * per_deviation
        units = hidden @ inputs.clip(-MOST_DEVIATIONS, MOST_DEVIATIONS) + bias
        total = float(units.clip(0) @ output) + self.worth.network.start + self.worth.shift[found[_HISTORY] > 0]
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
