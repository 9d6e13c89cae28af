"""Values that mean the same: other case and signs, other units, a rare one that is a misspelling of a frequent one."""

from collections import Counter, defaultdict
from collections.abc import Mapping
from typing import Final

from peakplan.shop.texts import key, measure
from service.planner.spelling import distance, edits, is_known

_RARER: Final = 8  # times rarer than the right spelling, at least
_RARER_THAN_A_WORD: Final = 2  # where the right spelling is a word, and the other is none
_LEAST_LETTERS: Final = 5
_NEAR: Final = 1.3  # as `spelling.distance` counts
_SAME: Final = 0.015  # of a size: "10 in" is "25 cm"


def canonical(counts: Mapping[str, int]) -> dict[str, str]:
    """Return the value that each value is a variant of: itself, for one that is as it should be."""
    groups: dict[str, Counter[str]] = defaultdict(Counter)
    for value, count in counts.items():
        groups[_joined(value)][value] += count
    best = {short: values.most_common(1)[0][0] for short, values in groups.items()}
    totals = {short: values.total() for short, values in groups.items()}
    means = _units(best, totals)
    means |= {wrong: right for wrong, right in _slips(totals, best).items() if wrong not in means}
    return {value: best[_end(short, means)] for short, values in groups.items() for value in values}


def _joined(value: str) -> str:
    return key(value).replace(" ", "") or value


def _end(short: str, means: Mapping[str, str]) -> str:
    seen = {short}
    while short in means and means[short] not in seen:
        short = means[short]
        seen.add(short)
    return short


def _units(best: Mapping[str, str], totals: Mapping[str, int]) -> dict[str, str]:
    """Return the most frequent of the measures that say the same size in other units."""
    sizes = [(size, short) for short, value in best.items() if (size := measure(value)) is not None]
    means: dict[str, str] = {}
    group: list[tuple[tuple[str, float], str]] = []
    for one in [*sorted(sizes), (("", -1.0), "")]:
        if group and (one[0][0] != group[0][0][0] or one[0][1] > group[0][0][1] * (1 + _SAME)):
            shorts = [short for _, short in group]
            frequent = max(shorts, key=lambda short: totals[short])
            means |= {short: frequent for short in shorts if short != frequent}
            group = []
        group.append(one)
    return means


def _rarer(best: Mapping[str, str], short: str) -> int:
    is_word = short in best and all(is_known(word) for word in best[short].casefold().split())
    return _RARER_THAN_A_WORD if is_word else _RARER


def _slips(totals: Mapping[str, int], best: Mapping[str, str]) -> dict[str, str]:
    """Return the right spelling of rare values that are one edit from a frequent one."""
    means: dict[str, str] = {}
    for short, count in totals.items():
        if len(short) < _LEAST_LETTERS or any(letter.isdigit() for letter in short):
            continue
        if all(is_known(word) for word in best[short].casefold().split()):
            continue  # words that are right as they stand: "tan" is no slip of "teal"
        near = {edit for edit in edits(short) if edit != short and totals.get(edit, 0) >= _rarer(best, edit) * count}
        near = {edit for edit in near if distance(short, edit) <= _NEAR}
        if near:
            means[short] = max(near, key=lambda edit: totals[edit])
    return means
