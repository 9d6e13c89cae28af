"""What texts and numbers of a catalogue say: words, prices, measures."""

import html
import re
import unicodedata
from functools import lru_cache
from typing import Any, Final

from peakplan_client.mapping import stem

_TAG: Final = re.compile(r"<[^<>]{1,200}>")
_WORD: Final = re.compile(r"[^\W_]+(?:[.'’&+-][^\W_]+)*")
_NUMBER: Final = re.compile(r"-?\d+(?:[.,'  ]\d+)*")
_MEASURE: Final = re.compile(r"^\s*(\d+(?:[.,]\d+)?)\s*([a-zA-Zμ\"'″′]+\.?|fl\.? ?oz\.?)\s*$")
_ONE_NUMBER: Final = re.compile(r"^[^\w\s]{0,2}\s?-?\d[\d.,  ]*\s?\S{0,3}$")
_SIGNS: Final = {"$": "USD", "€": "EUR", "£": "GBP", "¥": "JPY", "₹": "INR", "₩": "KRW", "₽": "RUB", "zł": "PLN"}
# One unit in the base of its dimension, and all its names.
_UNITS: Final = {
    ("length", 1.0): "mm millimeter millimeters millimetre millimetres",
    ("length", 10.0): "cm centimeter centimeters centimetre centimetres",
    ("length", 1000.0): "m meter meters metre metres",
    ("length", 25.4): 'in inch inches " ″',
    ("length", 304.8): "ft foot feet ' ′",
    ("weight", 1.0): "g gram grams gr",
    ("weight", 1000.0): "kg kilo kilos kilogram kilograms kgs",
    ("weight", 28.349523): "oz ounce ounces",
    ("weight", 453.59237): "lb lbs pound pounds",
    ("volume", 1.0): "ml milliliter milliliters millilitre millilitres",
    ("volume", 10.0): "cl centiliter centilitre",
    ("volume", 1000.0): "l liter liters litre litres",
    ("volume", 29.57353): "floz",
    ("volume", 3785.411784): "gal gallon gallons",
    ("storage", 1.0): "mb megabyte megabytes",
    ("storage", 1000.0): "gb gigabyte gigabytes",
    ("storage", 1000000.0): "tb terabyte terabytes",
    ("power", 1.0): "w watt watts",
    ("power", 1000.0): "kw kilowatt kilowatts",
}
UNIT_OF: Final = {name: key for key, names in _UNITS.items() for name in names.split()}


def plain(value: Any) -> str:
    """Return a value as one line of text without markup."""
    text = str(value)
    if "<" in text:
        text = _TAG.sub(" ", text)
    if "&" in text:
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


def number(value: Any) -> float | None:
    """Return a number, written as in any country ("1.299,00", "$1,299"); None where there is none."""
    if isinstance(value, bool) or value is None:
        return None
    if isinstance(value, int | float):
        return float(value) if value == value else None
    match = _NUMBER.search(str(value))
    if match is None:
        return None
    digits = re.sub(r"['  ]", "", match[0])
    last = max(digits.rfind(","), digits.rfind("."))
    if last >= 0:
        whole, part = digits[:last], digits[last + 1 :]
        thousands = len(part) == 3 and (whole.count(digits[last]) > 0 or (digits[last] == "," and whole != "0"))
        digits = re.sub(r"[.,]", "", digits) if thousands else re.sub(r"[.,]", "", whole) + "." + part
    return float(digits)


def is_number(text: str) -> bool:
    """Tell whether a text is one number, with a currency's sign or a short unit at most."""
    return len(text) < 24 and bool(_ONE_NUMBER.match(text)) and number(text) is not None


def currency(value: Any) -> str | None:
    """Return the ISO 4217 code that a price's sign or a code in it says."""
    text = str(value).strip()
    for sign, code in _SIGNS.items():
        if sign in text:
            return code
    match = re.search(r"\b[A-Z]{3}\b", text)
    return match[0] if match else None


def measure(value: str) -> tuple[str, float] | None:
    """Return dimension and size of a measure in that dimension's base unit: ("length", 254.0) of "10 in"."""
    match = _MEASURE.match(value)
    if match is None:
        return None
    unit = UNIT_OF.get(re.sub(r"[. ]", "", match[2].lower()))
    size = number(match[1])
    return (unit[0], size * unit[1]) if unit and size is not None else None
