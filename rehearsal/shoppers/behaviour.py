"""What a shopper does with what is shown: two published click models, patience, baskets, coming back.

Pure and seeded: it knows no service. The models are those of Craswell et al. 2008: in the cascade model a shopper goes
down the list until satisfied, in the position-based one each rank is looked at with a chance of its own. How large the
chances are is made up; they prove that the instrument counts what happened, and nothing about real shoppers.
"""

import math
import random
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Literal

ClickModel = Literal["cascade", "position"]
CLICKS_RIGHT, CLICKS_WRONG = 0.6, 0.05  # of products that are looked at
SATISFIED = 0.7  # of the right ones that were clicked
GOES_ON = 0.85  # to the next rank, who is not satisfied yet
ADDS = 0.5  # of the right ones that were clicked
BUYS = 0.5  # of those in the basket
COMES_BACK, COMES_BACK_AFTER_BUYING = 0.15, 0.4
PATIENCE_MS = 4000.0  # the mean of what shoppers wait for a first answer; half of them wait less than 0.7 of it


@dataclass(frozen=True, slots=True)
class Effects:
    """What is planted in an arm: factors of the chances to click and to buy, and milliseconds before anything shows."""

    click: float = 1.0
    buy: float = 1.0
    delay_ms: float = 0.0


_PLAIN = Effects()


@dataclass(slots=True)
class Visit:
    """What happened after one question, as ranks from 0."""

    left_ms: float | None = None  # after which the shopper had gone, without an answer
    clicked: list[int] = field(default_factory=list)
    added: list[int] = field(default_factory=list)
    bought: list[int] = field(default_factory=list)
    comes_back: bool = False


def visit(
    is_right: Sequence[bool], first_ms: float, rng: random.Random, model: ClickModel, effects: Effects = _PLAIN
) -> Visit:
    """Return what a shopper does with products of which some are right, the first of them shown after `first_ms`."""
    patience = rng.expovariate(1 / PATIENCE_MS)
    if first_ms + effects.delay_ms > patience:
        return Visit(left_ms=patience)
    done = Visit(clicked=_MODELS[model](is_right, rng, effects.click))
    for rank in done.clicked:
        if is_right[rank] and rng.random() < ADDS:
            done.added.append(rank)
            if rng.random() < BUYS * effects.buy:
                done.bought.append(rank)
    done.comes_back = rng.random() < (COMES_BACK_AFTER_BUYING if done.bought else COMES_BACK)
    return done


def _cascade(is_right: Sequence[bool], rng: random.Random, factor: float) -> list[int]:
    clicked = []
    for rank, right in enumerate(is_right):
        if rng.random() < (CLICKS_RIGHT if right else CLICKS_WRONG) * factor:
            clicked.append(rank)
            if right and rng.random() < SATISFIED:
                break
        if rng.random() > GOES_ON:
            break
    return clicked


def _position(is_right: Sequence[bool], rng: random.Random, factor: float) -> list[int]:
    return [
        rank
        for rank, right in enumerate(is_right)
        if rng.random() < 1 / math.log2(rank + 2) and rng.random() < (CLICKS_RIGHT if right else CLICKS_WRONG) * factor
    ]


_MODELS: dict[ClickModel, Callable[[Sequence[bool], random.Random, float], list[int]]] = {
    "cascade": _cascade,
    "position": _position,
}
