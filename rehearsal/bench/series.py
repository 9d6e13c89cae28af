"""What was measured question by question, and the quantile by which every benchmark sums up such times."""

import statistics
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any


@dataclass(slots=True)
class Series:
    """The results of one strategy, question by question."""

    milliseconds: list[float] = field(default_factory=list)
    forwards: list[int] = field(default_factory=list)
    decisions: list[int] = field(default_factory=list)
    forced: list[int] = field(default_factory=list)
    tokens: list[tuple[int, ...]] = field(default_factory=list)

    def summary(self) -> dict[str, Any]:
        return {
            "p50_ms": round(statistics.median(self.milliseconds), 1),
            "p99_ms": round(quantile(self.milliseconds, 0.99), 1),
            "forwards": round(statistics.fmean(self.forwards), 2),
            "decisions": round(statistics.fmean(self.decisions), 2),
            "forced_tokens": round(statistics.fmean(self.forced), 2),
            "tokens": round(statistics.fmean(map(len, self.tokens)), 2),
            "tokens_per_forward": round(sum(map(len, self.tokens)) / sum(self.forwards), 2),
        }


def quantile(values: Sequence[float], share: float) -> float:
    """Return the nearest-rank quantile: the smallest value that `share` of all values do not exceed."""
    ordered = sorted(values)
    return ordered[min(len(ordered) - 1, max(0, -int(-share * len(ordered) // 1) - 1))]
