"""Intervals of means by a bootstrap over questions."""

from collections.abc import Sequence
from typing import Final

import numpy as np

RESAMPLES: Final = 10_000
_MOST_AT_ONCE: Final = 2_000_000  # drawn numbers, 8 bytes each


def interval(values: Sequence[float], resamples: int = RESAMPLES) -> tuple[float, float]:
    """Return the 95% interval of the mean by a seeded bootstrap; of differences of pairs, it is the paired one."""
    given = np.asarray(values, dtype=np.float64)
    draw = np.random.default_rng(1)
    at_once = max(1, _MOST_AT_ONCE // len(given))
    means = np.concatenate(
        [
            given[draw.integers(len(given), size=(min(at_once, resamples - first), len(given)))].mean(axis=1)
            for first in range(0, resamples, at_once)
        ]
    )
    low, high = np.quantile(means, (0.025, 0.975))
    return float(low), float(high)
