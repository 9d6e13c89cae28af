"""What texts and numbers of a catalogue say: words, prices, measures."""

import html
import re
import unicodedata
from functools import lru_cache
from typing import Any, Final

from peakplan_client.mapping import stem

from peakplan.shop.fields import SECTIONS
from service.planner.amounts import Amount, read_amounts
from service.planner.fallback.reading.en.facets import KIND_OF
from service.planner.fallback.reading.en.lists import FUNCTION_WORDS
from service.planner.money import code_of

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


@lru_cache(maxsize=200_000)
def singular(word: str) -> str:
    """Return a word as it is compared: without its plural ending."""
    return stem(word)


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
