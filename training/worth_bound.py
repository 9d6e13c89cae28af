"""Calibrate the worth of questions, and bound what rules may plan by choice, on questions that no tree has learnt from.

Used on held-out sentences of ours (`worth.py`), on other writers' cases (`rehearsal/bench/worth.py`) and on a shop's
own rows (`own_data.py`): the more questions there are, the closer to its promise rules may go.
"""

import itertools
import json
import math
import random
from collections.abc import Sequence
from dataclasses import dataclass
from itertools import pairwise
from pathlib import Path
from typing import Any

import numpy as np
from scipy.optimize import brentq

from service.planner.worth.features import NAMES
from service.planner.worth.scorer import FILE_NAME, Bound, Scorer, Worth
from service.weights.seal import seal_again
from training.export import RECORD, sha256

LOST, RISK = 0.01, 0.1  # what the bound promises
STEPS = 100  # of more and more questions by rule, each tested until one fails
SEED = 7
_MOST_BET = 0.75  # of what it takes to be ruined by one question
_HISTORY = NAMES.index("history")
_SHIFTING, _MOST_SHIFT = 4, 50.0
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

    @property
    def loss(self) -> int:
        """What a plan by rule loses: 1, 0, or -1 where it has what the model's plan has not."""
        return int(self.by_model) - int(self.by_rule)


def is_bounded(losses: Sequence[int], lost: float, risk: float) -> bool:
    """Tell whether losses, each from -1 to 1, say that their mean is `lost` at most, but for `risk`.

    Somebody bets against a larger mean, question by question, on how losses have spread so far; who multiplies the
    stake by 1 / risk at any time is believed (Waudby-Smith and Ramdas, 2023, doi:10.1093/jrsssb/qkad009).
    """
    stake, total, square = 1.0, 0.0, 0.25
    for count, loss in enumerate(losses, 1):
        spread = square / count
        bet = min(math.sqrt(2 * math.log(1 / risk) / (len(losses) * spread)), _MOST_BET / (1 - lost))
        stake *= 1 + bet * (lost - loss)
        if stake >= 1 / risk:
            return True
        total += loss
        square += (loss - total / (count + 1)) ** 2
    return False


# Questions: with fewer the bound allows nothing, whatever they say.
FEWEST = next(n for n in itertools.count(1) if is_bounded([0] * n, LOST, RISK)) * _SHIFTING // (_SHIFTING - 1) + 1


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
    """Return the worth with the most that rules may plan while no more than the share `lost` is lost, but for `risk`.

    Learn then Test with a fixed sequence: more and more questions by rule, the least worth first, until a test can no
    longer reject that more is lost: questions that the model alone plans well, less those that the rules alone do.
    None of the questions may be one learnt from.
    """
    scorer = Scorer(worth)
    scored = [(scorer.of_numbers(one.numbers), one) for one in compared]
    ranked = sorted(scored, key=lambda pair: pair[0])
    by_chance = random.Random(SEED).sample(scored, len(scored))  # a bet must not know what comes next
    most = 0.0
    for step in range(1, STEPS):
        least = ranked[len(ranked) * step // STEPS][0] if ranked else 0.0
        if not is_bounded([one.loss if value < least else 0 for value, one in by_chance], lost, risk):
            break
        most = least
    most = round(most, 6)
    spared = [one.work for value, one in scored if value < most]
    bound = Bound(
        worth=most,
        lost=lost,
        risk=risk,
        questions=len(scored),
        by_rule=round(len(spared) / max(len(scored), 1), 4),
        work=round(1 - sum(spared) / max(sum(one.work for one in compared), 1e-9), 4),
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
