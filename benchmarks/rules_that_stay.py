"""The list of rules that change no plan of the cases, or more for worse than for better, and stay all the same."""

import re
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import NamedTuple

LIST = Path(__file__).with_name("rules_that_stay.tsv")
_UNCOUNTED = "uncounted: "
Counts = Mapping[str, Mapping[str, int]]  # by the model and by rule


class Stay(NamedTuple):
    """Rules by a pattern of their places, and the contract's words that ask for them, or why no plan counts them."""

    pattern: re.Pattern[str]
    why: str

    @property
    def is_uncounted(self) -> bool:
        return self.why.startswith(_UNCOUNTED)


def stays() -> Iterator[Stay]:
    """Yield the list's lines."""
    for line in LIST.read_text(encoding="utf-8").splitlines():
        if not line.startswith("# "):
            pattern, why = line.split("\t")
            yield Stay(re.compile(pattern), why)


def worth_nothing(rules: Mapping[str, Counts]) -> list[str]:
    """Return the rules of a figure that change no plan, or without which more cases pass than with them."""
    return [name for name, count in rules.items() if not changed(count) or gain(count) < 0]


def without_reason(rules: Mapping[str, Counts]) -> list[str]:
    """Return those of the rules that are worth nothing which the list does not name."""
    patterns = [stay.pattern for stay in stays()]
    return [name for name in worth_nothing(rules) if not any(pattern.fullmatch(name) for pattern in patterns)]


def without_example(rules: Mapping[str, Counts], examples: Mapping[str, Counts]) -> list[str]:
    """Return the rules of a figure that change no plan, not that of an example either, though one could count them."""
    idle = (name for name, count in rules.items() if not changed(count))
    shown = {name for name, count in examples.items() if any(one["better"] for one in count.values())}
    return [name for name in idle if name not in shown and not is_uncounted(name)]


def is_uncounted(name: str) -> bool:
    """Tell whether no plan could count a rule."""
    return any(stay.pattern.fullmatch(name) for stay in stays() if stay.is_uncounted)


def changed(count: Counts) -> int:
    """Return how many plans are others without a rule."""
    return sum(one["changed"] for one in count.values())


def gain(count: Counts) -> int:
    """Return how many more cases pass with a rule than without it."""
    return sum(one["better"] - one["worse"] for one in count.values())
