"""What texts and numbers of a catalogue say (words, prices, measures), and how a column's cells are written."""

import html
import re
import unicodedata
from collections import Counter
from collections.abc import Collection, Iterable
from functools import lru_cache
from typing import Any, Final, NamedTuple

from peakplan_client.mapping import stem

from peakplan.shop.fields import SECTIONS
from service.planner.amounts import Amount, code_of, read_amounts
from service.planner.text import FUNCTION_WORDS, KIND_OF

_TAG: Final = re.compile(r"<[^<>]{1,200}>")
_WORD: Final = re.compile(r"[^\W_]+(?:[.'’&+-][^\W_]+)*")
_MOST_LETTERS: Final = 16  # beside an amount
_LOCALES: Final = {".": "en", ",": "de"}  # whose decimals have this mark
_PLAIN: Final = re.compile(r"-?\d+(?:\.\d+)?")
_MEASURE: Final = re.compile(r"^\s*(\d+(?:[.,]\d+)?)\s*([a-zA-Zμ\"'″′]+\.?|fl\.? ?oz\.?)\s*$")
_ONE_NUMBER: Final = re.compile(r"^[^\w\s]{0,2}\s?-?\d[\d.,  ]*\s?\S{0,3}$")
# What ends the name of a thing in a title.
ENDS: Final = frozenset("with for by in on from and - – — | , ( [ / featuring".split()) | FUNCTION_WORDS
# The dimension of each unit's name, and the unit in the base of its dimension.
UNIT_OF: Final = {
    name: (section.split()[1], float(section.split()[2]))
    for section, names in SECTIONS.items()
    if section.startswith("units ")
    for name in names
}


def plain(value: Any) -> str:
    """Return a value as one line of text without markup."""
    text = str(value)
    if not text.isascii():
        text = text.encode("utf-8", "replace").decode()  # JSON may hold halves of surrogate pairs
    if "<" in text:
        text = _TAG.sub(" ", text)
    for _ in range(2 if "&" in text else 0):  # some exports escape twice
        text = html.unescape(text)
    return " ".join(text.split())


def tokens(text: str) -> list[str]:
    """Return the words of a text in lower case, signs inside words included ("t-shirt", "h&m")."""
    return _WORD.findall(unicodedata.normalize("NFKC", text).casefold())


singular = lru_cache(maxsize=200_000)(stem)


def key(text: str) -> str:
    """Return how a value is compared: its words without case, plural, signs and spaces between them."""
    return " ".join(singular(part) for word in tokens(text) for part in re.split(r"[.'’&+-]", word))


def is_aside(word: str) -> bool:
    """Tell whether a word behind a thing is a letter, a unit, a size or a colour: "Bolt M8 x", "Tee XL tan"."""
    return len(word) == 1 or word in UNIT_OF or KIND_OF.get(word) in ("size", "color")


@lru_cache(maxsize=200_000)
def amounts(text: str, mark: str = "") -> tuple[Amount, ...]:
    """Return the amounts that a text says; `mark` stands before decimals where that is known."""
    found = read_amounts(text, _LOCALES.get(mark, ""))
    return tuple(Amount(-one.value, one.currency) for one in found) if text[:1] in "-−" else tuple(found)


def number(value: Any, mark: str = "") -> float | None:
    """Return a number, written as in any country ("1.299,00", "$1,299"); None where there is none."""
    if isinstance(value, bool) or value is None:
        return None
    if isinstance(value, int | float):
        return float(value) if value == value else None
    text = str(value).strip()
    if _PLAIN.fullmatch(text) and (mark == "." or text[-4:-3] != "."):
        return float(text)
    return next((one.value for one in amounts(text, mark)), None)


def amounts_of(value: Any, mark: str = "") -> list[Amount]:
    """Return the amounts of a field, which may be a number, a text or a list of them."""
    found: list[Amount] = []
    for each in value if isinstance(value, list) else [value]:
        text = "" if each is None or isinstance(each, bool) else plain(each)
        is_whole = not isinstance(each, str) or mark == "." or text[-4:-3] != "."
        found += [Amount(float(text))] if _PLAIN.fullmatch(text) and is_whole else amounts(text, mark) if text else ()
    return found


def currency_of(text: str) -> str | None:
    """Return the code that a currency's code, sign or name means: "eur", "US Dollar"; None where it means none."""
    found: str | None = next((one.currency for one in amounts(f"1 {text}")), None)
    return text.upper() if code_of(text.upper()) else found


def is_amount(text: str) -> bool:
    """Tell whether a text is an amount, with a currency or "from" beside it, and no title that has a number."""
    return sum(letter.isalpha() for letter in text) <= _MOST_LETTERS and bool(amounts(text))


def is_number(text: str) -> bool:
    """Tell whether a text is one number, with a currency's sign or a short unit at most."""
    return len(text) < 24 and bool(_ONE_NUMBER.match(text))


def measure(value: str) -> tuple[str, float] | None:
    """Return dimension and size of a measure in that dimension's base unit: ("length", 254.0) of "10 in"."""
    match = _MEASURE.match(value)
    if match is None:
        return None
    unit = UNIT_OF.get(re.sub(r"[. ]", "", match[2].lower()))
    size = number(match[1], ".")
    return (unit[0], size * unit[1]) if unit and size is not None else None


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
    """Return a field's content as one text."""
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
