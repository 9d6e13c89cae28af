"""How the cells of a column are written: the mark before decimals, between the levels of a path, between values."""

import re
from collections import Counter
from collections.abc import Collection, Iterable
from typing import Any, Final, NamedTuple

from peakplan.shop.texts import plain

LISTED: Final = "\u241f"  # between the values of a list, as `cell` writes them
_PATHS: Final = (">>", ">", "»", "›")
_TREES: Final = (LISTED, "|", "/")  # between levels or between values: the column tells
_DECIMALS: Final = re.compile(
    r"(?:(?<=\d)(?=[.,](?:\d{1,2}|\d{4,})(?!\d|[.,]\d))|(?<=(?<!\d)0)(?=[.,]\d{3}(?!\d))|(?<=\d{4})(?=[.,]\d{3}(?!\d)))([.,])"
)
_OFTEN: Final = 0.3
_MOSTLY: Final = 0.5
_SHORT: Final = 6  # words of one of several values in a cell
_COMMA: Final = r",(?!\d)|(?<!\d),"  # "5,5" is one number


class Notation(NamedTuple):
    """The signs between several values of a cell, and between the levels of a path; a price's mark of decimals."""

    several: str = ""
    level: str = ""

    def parts(self, value: Any) -> list[str]:
        """Return the values of a cell."""
        text = cell(value)
        marks = "|".join(_COMMA if mark == "," else re.escape(mark) for mark in self.several)
        return [part for each in (re.split(marks, text) if marks else [text]) if (part := each.strip())]

    def levels(self, part: str) -> list[str]:
        """Return the levels of a path from the top."""
        found = part.split(self.level) if self.level else [part]
        return [level for each in found if (level := each.strip().strip('"'))]


def cell(value: Any) -> str:
    """Return what a field holds as one text."""
    if isinstance(value, str) and "\n" in value and "<" not in value:
        value = value.split("\n")
    return LISTED.join(map(plain, value)) if isinstance(value, list) else plain(value)


def decimal_mark(values: Iterable[str]) -> str:
    """Return the mark that stands before the decimals of a column's numbers; nothing where none tells."""
    marks = Counter(match[1] for value in values for match in _DECIMALS.finditer(value))
    return marks.most_common(1)[0][0] if marks else ""


def notation_of(values: Collection[str], *, is_path: bool, facet: str = "") -> Notation:
    """Return how a column's cells are written; values that hold a mark in their names are not split at it."""
    level = _level(values) if is_path else ""
    several = "".join(mark for mark in (LISTED, "|", ";") if mark != level and _separates(mark, values))
    if _lists(Notation(several, level), values, is_path=is_path):
        several += ","
    if facet in ("color", "material") and not is_path:  # "Red/Grey" is two, and a size "M/L" one
        several += "/"
    return Notation(several, level)


def _level(values: Collection[str]) -> str:
    for mark in _PATHS:
        if sum(mark in value for value in values) >= _OFTEN * len(values) > 0:
            return mark
    return next((mark for mark in _TREES if _is_tree(mark, values)), "")


def _is_tree(mark: str, values: Collection[str]) -> bool:
    """Tell whether a mark stands between levels: tops have several things below them, and are below nothing."""
    paths = [[level.strip() for level in value.split(mark)] for value in values if mark in value]
    if len(paths) < _MOSTLY * len(values) or not paths:
        return False
    if mark == LISTED and len(values) == len(paths) == 1:
        return True
    tops = Counter(top for top, *_ in paths)
    shared = sum(count for count in tops.values() if count > 1)
    below = {level for _, *rest in paths for level in rest} - {""}
    return shared >= _MOSTLY * len(paths) and sum(top in below for top in tops) <= 0.1 * len(tops)


def _separates(mark: str, values: Collection[str]) -> bool:
    having = [value for value in values if mark in value]
    short = sum(all(len(part.split()) <= _SHORT for part in value.split(mark)) for value in having)
    return bool(having) and short >= _MOSTLY * len(having)


def _lists(so_far: Notation, values: Collection[str], *, is_path: bool) -> bool:
    """Tell whether commas stand between values: those are values elsewhere, begin as others do, or are short words."""
    cells = [part for value in values for part in so_far.parts(value)]
    having = [part for part in cells if re.search(_COMMA, part)]
    alone = {part for part in cells if "," not in part}
    tops = {levels[0] for part in alone if (levels := so_far.levels(part))} if so_far.level else set()
    firsts = Counter(re.split(_COMMA, part)[0].strip() for part in having)
    sure = 0
    for part in having:
        first, *rest = (each.strip() for each in re.split(_COMMA, part))
        known = (
            first in alone
            or (not so_far.level and firsts[first] > 2)
            or any(each in alone or (so_far.level in each and so_far.level) for each in rest)
        )
        known = known or any((so_far.levels(each) or [""])[0] in tops for each in rest)
        sure += known or (not is_path and all(len(each.split()) <= 2 for each in (first, *rest)))
    return bool(having) and sure >= _MOSTLY * len(having)
