"""Engines side by side in turns: forwards by rows, and whole plans. One that fails is kept with its reason."""

import statistics
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Protocol

from rehearsal.bench.peers.process import PeerError
from rehearsal.bench.series import quantile

ROWS = (1, 2, 4, 8, 12, 16)
TIMES = 3  # forwards in a row, of which the fastest counts: the others ran over what another program was doing
# Share of positions with our best token: Q4_0 has 0.92, and 0.45 a file whose rotary positions are laid out wrongly,
# which the correlation of logits right after a prompt (0.89) does not tell from coarse rounding.
VOID_BELOW = 0.8


@dataclass(frozen=True)
class Asked:
    """One question as every engine gets it."""

    prompt: list[int]  # token ids
    grammar: str
    max_tokens: int


@dataclass(frozen=True)
class Answered:
    """A plan, the milliseconds until it was complete, and the model's forwards."""

    milliseconds: float
    tokens: tuple[int, ...]
    forwards: int


class Engine(Protocol):
    """One engine in one setting. Every method may raise PeerError."""

    plans: Sequence[str]  # the ways in which it decodes a plan

    def forwards(self, rows: int, times: int) -> list[float]:
        """Return the milliseconds of forwards of `rows` rows, the fastest first."""

    def plan(self, how: str, asked: Asked) -> Answered:
        """Decode one plan."""


@dataclass
class Comparison:
    """The measurements by engine; `failed` has the reason of each engine that did not finish."""

    forwards: dict[str, dict[int, list[float]]] = field(default_factory=dict)
    plans: dict[tuple[str, str], list[Answered]] = field(default_factory=dict)
    failed: dict[str, str] = field(default_factory=dict)

    def forward_ms(self, name: str) -> dict[str, float]:
        """Return the median of all turns, by rows."""
        return {str(rows): round(statistics.median(each), 2) for rows, each in self.forwards[name].items()}

    def plan_ms(self, name: str, how: str, ours: Sequence[Answered]) -> dict[str, Any]:
        """Return quantiles, and the share of plans with the tokens of `ours`."""
        answers = self.plans[name, how]
        times = [one.milliseconds for one in answers]
        same = [one.tokens == other.tokens for one, other in zip(answers, ours, strict=True)]
        return {
            "p50_ms": round(statistics.median(times), 1),
            "p99_ms": round(quantile(times, 0.99), 1),
            "forwards": round(statistics.fmean(one.forwards for one in answers), 2),
            "identical_to_ours": round(sum(same) / len(same), 4),
        }


def compare(
    engines: Mapping[str, Engine],
    asked: Sequence[Asked],
    turns: int,
    *,
    rows: Sequence[int] = ROWS,
    progress: Callable[[str], None] = lambda _: None,
) -> Comparison:
    """Measure all engines in short turns, in rotating order, so that drift affects all alike."""
    found = Comparison()
    for number in range(turns):
        progress(f"forwards, turn {number + 1} of {turns}")
        for count in rows:
            for name in _rotated(engines, number, found.failed):
                series = found.forwards.setdefault(name, {each: [] for each in rows})
                with _Listed(found, name):
                    series[count].append(engines[name].forwards(count, TIMES)[0])
    for number, question in enumerate([asked[0], *asked]):  # the first once more than counts: it warms up
        if number % 10 == 0:
            progress(f"plans, question {number} of {len(asked)}")
        for name in _rotated(engines, number, found.failed):
            for how in engines[name].plans:
                with _Listed(found, name):
                    answer = engines[name].plan(how, question)
                    if number:
                        found.plans.setdefault((name, how), []).append(answer)
    return found


def _rotated(engines: Mapping[str, Engine], number: int, failed: Mapping[str, str]) -> list[str]:
    names = list(engines)
    first = number % len(names)
    return [name for name in names[first:] + names[:first] if name not in failed]


class _Listed:
    """Context manager that records why an engine failed, drops its figures and lets the others go on."""

    def __init__(self, found: Comparison, name: str) -> None:
        self._found, self._name = found, name

    def __enter__(self) -> None:
        pass

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, _: object) -> bool:
        if not isinstance(error, PeerError):
            return False
        self._found.failed.setdefault(self._name, str(error))
        return True
