"""Calibrate the worth of questions, and bound what rules may plan by choice, on questions that no tree has learnt from.

Used on held-out sentences of ours (`worth.py`), on other writers' cases (`benchmarks/worth.py`) and on a shop's own
rows (`own_data.py`): the more questions there are, the closer to its promise rules may go.
"""

import json
import math
from collections.abc import Sequence
from dataclasses import dataclass
from itertools import groupby, pairwise
from pathlib import Path
from typing import Any

import numpy as np
from scipy.optimize import brentq
from scipy.stats import binom

from service.planner.worth.features import NAMES
from service.planner.worth.scorer import FILE_NAME, Bound, Scorer, Worth
from service.weights.seal import seal_again
from training.export import RECORD, sha256

LOST, RISK = 0.01, 0.1  # what the bound promises
_HISTORY = NAMES.index("history")
_SHIFTING, _MOST_SHIFT = 4, 50.0
# Questions: with fewer the bound rejects nothing, whatever they say.
FEWEST = math.ceil(math.log(RISK) / math.log(1 - LOST) * _SHIFTING / (_SHIFTING - 1))
_GROUPS = 10  # of questions by worth, each with its share of plans that differ


@dataclass(frozen=True, slots=True)
class Compared:
    """A question planned by the model and by rule: who was right, whether the plans differ, and the model's work."""

    numbers: tuple[int, ...]
    by_model: bool
    by_rule: bool
    differs: bool
    work: float = 1.0  # in any unit: seconds where they were measured, else the words that it read and wrote

    @property
    def lost(self) -> bool:
        """Whether a plan by rule loses what the model's has."""
        return self.by_model and not self.by_rule


def calibrated(worth: Worth, compared: Sequence[Compared], lost: float = LOST, risk: float = RISK) -> Worth:
    """Return the worth as calibrated by questions that no tree has learnt from, with the bound that they give.

    One in four says how much more, or less, questions alone and questions after others lose than ours do; the rest
    bound what rules may plan, so that the bound holds whatever the first ones said.
    """
    shifted = worth.model_copy(update={"shift": _shift(worth, compared[::_SHIFTING])})
    return bounded(shifted, [one for at, one in enumerate(compared) if at % _SHIFTING], lost, risk)


def _shift(worth: Worth, compared: Sequence[Compared]) -> tuple[float, float]:
    """Return the two most likely shifts of the log odds, each with half a question lost and half a one kept added."""
    scorer = Scorer(worth.model_copy(update={"shift": (0.0, 0.0)}))
    shifts = []
    for is_later in (False, True):
        group = [one for one in compared if (one.numbers[_HISTORY] > 0) == is_later]
        odds = np.array([math.log(w / (1 - w)) for w in (scorer.of_numbers(one.numbers) for one in group)] + [0.0])
        lost = np.array([float(one.lost) for one in group] + [0.5])

        def excess(shift: float, odds: Any = odds, lost: Any = lost) -> float:
            return float((1 / (1 + np.exp(-odds - shift)) - lost).sum())

        shifts.append(round(float(brentq(excess, -_MOST_SHIFT, _MOST_SHIFT)), 4))
    return shifts[0], shifts[1]


def bounded(worth: Worth, compared: Sequence[Compared], lost: float = LOST, risk: float = RISK) -> Worth:
    """Return the worth with the most that rules may plan while the share `lost` holds but for `risk`.

    Learn then Test with a fixed sequence: one question more by rule at a time, the least worth first, until the exact
    binomial test can no longer reject that more than `lost` is lost. None of the questions may be one learnt from.
    """
    scorer = Scorer(worth)
    ranked = sorted(((scorer.of_numbers(one.numbers), one) for one in compared), key=lambda pair: pair[0])
    most = 0.0
    gone = count = before = 0
    done = spared = 0.0
    for value, same in groupby(ranked, key=lambda pair: pair[0]):
        if binom.cdf(gone, len(ranked), lost) > risk:
            break
        most, before, spared = value, count, done
        for _, one in same:
            gone, count, done = gone + one.lost, count + 1, done + one.work
    bound = Bound(
        worth=round(most, 6),
        lost=lost,
        risk=risk,
        questions=len(ranked),
        by_rule=round(before / max(len(ranked), 1), 4),
        work=round(1 - spared / max(sum(one.work for one in compared), 1e-9), 4),
    )
    return worth.model_copy(update={"bound": bound, "differs": _differing(ranked)})


def _differing(ranked: Sequence[tuple[float, Compared]]) -> tuple[tuple[float, float], ...]:
    """Return (worth at most, share of plans that differ) of equally large groups, the last up to 1."""
    ends = [round(len(ranked) * (group + 1) / _GROUPS) for group in range(_GROUPS)]
    groups = [ranked[start:end] for start, end in pairwise([0, *ends]) if end > start]
    most = [round(group[-1][0], 6) for group in groups[:-1]] + [1.0]
    shares = [round(sum(one.differs for _, one in group) / len(group), 4) for group in groups]
    return tuple(zip(most, shares, strict=True)) if ranked else ()


def write(worth: Worth, model: Path) -> None:
    """Write worth.json, and its digest into the folder's record of parts and its seal, where it has them."""
    text = json.dumps(worth.model_dump(mode="json"), separators=(",", ":"))
    (model / FILE_NAME).write_text(text + "\n", encoding="utf-8")
    record = model / RECORD
    if record.is_file() and FILE_NAME in (made := json.loads(record.read_text(encoding="utf-8")))["parts"]:
        made["parts"][FILE_NAME] = sha256(model / FILE_NAME)
        record.write_text(json.dumps(made, indent=1) + "\n", encoding="utf-8")
    seal_again(model)
