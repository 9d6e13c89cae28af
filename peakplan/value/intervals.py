"""Intervals that stay valid however often and for however long somebody looks.

Ordinary 95% intervals are good for one look. These are asymptotic confidence sequences: with probability 95% the truth
is inside at every look at once. Source: Waudby-Smith, Arbour, Sinha, Kennedy and Ramdas, "Time-uniform central limit
theory and asymptotic confidence sequences", Annals of Statistics 2024 (arXiv 2103.06476), theorem 2.2, whose boundary
is that of the mixture sequential probability ratio test (Johari et al., arXiv 1512.04922). PyPI's confseq has had no
release since 2023 and no wheel for our Pythons. Everything here takes numbers or numpy arrays of equal shapes.
"""

import math
from dataclasses import dataclass
from typing import Any

import numpy as np

Numbers = Any  # a float, or an array of them

ALPHA = 0.05
PLANNED = (
    1_000_000  # shoppers in both arms at which intervals are narrowest; nearly as narrow at a tenth and at tenfold
)
FEWEST_CHOSEN = 100  # of each arm, before which a share is not near enough to normal for a verdict
POWER_Z = 0.8416  # of the normal distribution: 80% are below


@dataclass(frozen=True, slots=True)
class Arm:
    """What is known of an arm: shoppers, and of a measure of theirs the sum and the sum of squares."""

    shoppers: Numbers
    total: Numbers
    squares: Numbers

    @property
    def mean(self) -> Numbers:
        return self.total / np.maximum(self.shoppers, 1)

    @property
    def variance(self) -> Numbers:
        return np.maximum(self.squares / np.maximum(self.shoppers, 1) - self.mean**2, 0)


@dataclass(frozen=True, slots=True)
class Lift:
    """How much an arm's mean is above the control's, as a share of it; `low` and `high` hold at every look."""

    estimate: Numbers
    low: Numbers
    high: Numbers
    is_enough: Numbers  # false before the normal approximation can be trusted

    @property
    def verdict(self) -> Numbers:
        """1 for better, -1 for worse, 0 for not known yet."""
        return np.where(self.is_enough, np.where(self.low > 0, 1, np.where(self.high < 0, -1, 0)), 0)


def boundary(looks: Numbers, planned: float = PLANNED, alpha: float = ALPHA) -> Numbers:
    """Return how many standard errors an interval reaches after so many observations."""
    square = (-2 * math.log(alpha) + math.log(-2 * math.log(alpha)) + 1) / planned  # rho^2, narrowest at `planned`
    grown = np.maximum(looks, 1) * square
    return np.sqrt(2 * (grown + 1) / grown * np.log(np.sqrt(grown + 1) / alpha))


def log_ratio(control: Arm, arm: Arm) -> tuple[Numbers, Numbers]:
    """Return the logarithm of the means' ratio and its standard error, by the delta method."""
    means = [np.maximum(each.mean, 1e-100) for each in (control, arm)]
    spread = sum(
        each.variance / (np.maximum(each.shoppers, 1) * mean**2)
        for each, mean in zip((control, arm), means, strict=True)
    )
    return np.log(means[1] / means[0]), np.sqrt(spread)


def lift(control: Arm, arm: Arm, *, planned: float = PLANNED, alpha: float = ALPHA) -> Lift:
    """Return the lift of an arm over the control."""
    ratio, error = log_ratio(control, arm)
    reach = boundary(control.shoppers + arm.shoppers, planned, alpha) * error
    effective = [each.total**2 / np.maximum(each.squares, 1e-300) for each in (control, arm)]  # of a share: its count
    enough = np.minimum(*effective) >= FEWEST_CHOSEN
    return Lift(np.expm1(ratio), np.expm1(ratio - reach), np.expm1(ratio + reach), enough)


def faded(early: tuple[Arm, Arm], late: tuple[Arm, Arm], *, planned: float = PLANNED) -> int:
    """Return -1 where the lift of (control, arm) became smaller from early to late, 1 larger, 0 not known."""
    (before, error), (after, other) = log_ratio(*early), log_ratio(*late)
    reach = boundary(sum(each.shoppers for each in (*early, *late)), planned) * math.hypot(error, other)
    enough = all(min(pair[0].total, pair[1].total) >= FEWEST_CHOSEN for pair in (early, late))
    return int(np.sign(after - before)) if enough and abs(after - before) > reach else 0


def shoppers_needed(control: Arm, effect: float, *, planned: float = PLANNED, alpha: float = ALPHA) -> float:
    """Return shoppers in both arms, half in each, with whom a lift of `effect` is found in 80% of tests.

    inf where the control's mean is not known yet.
    """
    if control.mean <= 0 or control.variance <= 0:
        return math.inf
    unit = 2 * math.sqrt(control.variance) / control.mean  # of the log ratio's standard error, times sqrt(shoppers)
    low, high = 1.0, 1e15
    while high / low > 1.001:
        middle = math.sqrt(low * high)
        found = (boundary(middle, planned, alpha) + POWER_Z) * unit / math.sqrt(middle) <= math.log1p(effect)
        low, high = (low, middle) if found else (middle, high)
    return high


def mismatch(counts: list[float], shares: list[float]) -> float:
    """Return how many times likelier the counts are with other shares than with these: above 100 there is a mismatch.

    Valid at every look: Lindon and Malek, "Anytime-valid inference for multinomial count data", NeurIPS 2022, with a
    uniform Dirichlet prior. A mismatch means that arms were not assigned, or not recorded, as they should have been.
    """
    total, arms = sum(counts), len(counts)
    whole = sum(shares)
    logarithm = math.lgamma(arms) - math.lgamma(arms + total)
    logarithm += sum(math.lgamma(1 + count) for count in counts)
    logarithm -= sum(count * math.log(share / whole) for count, share in zip(counts, shares, strict=True))
    return math.exp(min(logarithm, 700.0))
