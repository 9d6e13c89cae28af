"""The numbers in a text, as digits or words: the only numbers that a price bound may take."""

import re
from collections.abc import Sequence

_DIGITS = re.compile(r"(?<![\w.])[$£€¥]?(\d{1,3}(?:,\d{3})+|\d{1,9})(\.\d{1,2})?(k\b)?", re.IGNORECASE)
_UNITS = {
    word: value
    for value, word in enumerate(
        "zero one two three four five six seven eight nine ten eleven twelve thirteen fourteen fifteen sixteen "
        "seventeen eighteen nineteen".split()
    )
}
_TENS = {
    word: 10 * value
    for value, word in enumerate("twenty thirty forty fifty sixty seventy eighty ninety".split(), start=2)
}
_SCALES = {"hundred": 100, "thousand": 1000, "grand": 1000}
NUMBER_WORDS = frozenset({*_UNITS, *_TENS, *_SCALES})
_LETTERS = re.compile("[a-z]+")
_MAX_NUMBER = 10_000_000


def find_numbers(text: str) -> list[float]:
    """Return every number in the text, in order: "$1,200.50", "1.5k", "$20-$40", "fifty", "two hundred"."""
    found = [(match.start(), _digits_value(match)) for match in _DIGITS.finditer(text)]
    found += _spelled_numbers(text.lower())
    return [value for _, value in sorted(found) if value <= _MAX_NUMBER]


def format_number(number: float) -> str:
    """Format without trailing zeros: 40.0 is "40", 19.5 is "19.5"."""
    return f"{number:.2f}".rstrip("0").rstrip(".")


def _digits_value(match: re.Match[str]) -> float:
    value = float(match.group(1).replace(",", "") + (match.group(2) or ""))
    return value * 1000 if match.group(3) else value


def _spelled_numbers(text: str) -> list[tuple[int, float]]:
    """Find runs of number words, as "a hundred" and "twenty five"; a lone "one" or "a" names no price."""
    found: list[tuple[int, float]] = []
    total, current, start, previous_end = 0, 0, -1, -1

    def flush() -> None:
        if start >= 0 and total + current > 1:
            found.append((start, float(total + current)))

    for match in _LETTERS.finditer(text):
        word = match.group()
        if word not in NUMBER_WORDS:
            continue
        if start < 0 or text[previous_end : match.start()].strip(" -"):  # not directly after the previous one
            flush()
            total, current, start = 0, 0, match.start()
        previous_end = match.end()
        if word in _SCALES:
            current = max(current, 1) * _SCALES[word]
            if _SCALES[word] > 100:
                total, current = total + current, 0
        else:
            current += _UNITS.get(word, _TENS.get(word, 0))
    flush()
    return found


def spelled_number(words: Sequence[str]) -> tuple[float, int] | None:
    """Return (value, number of words) of the number that the words begin with: "two hundred", "twenty-five".

    Hyphens count as words. A lone "one" or "a" is no number.
    """
    if words[0] not in NUMBER_WORDS and words[0] not in ("a", "couple"):
        return None
    total, current, used, at = 0, 0, 0, 0
    if words[0] in ("a", "couple"):  # "a hundred", "a couple of hundred"
        lead = [word for word in words[:3] if word in ("a", "couple", "of")]
        if words[0] == "a" and len(words) > 1 and words[1] not in ("couple", *_SCALES):
            return None
        at, current = len(lead), 2 if "couple" in lead else 1
        if at >= len(words) or words[at] not in _SCALES:
            return None
    while at < len(words):
        word = words[at]
        if word in _SCALES:
            current = max(current, 1) * _SCALES[word]
            if _SCALES[word] > 100:
                total, current = total + current, 0
        elif word in _UNITS and (used == 0 or (current % 10 == 0 and (_UNITS[word] < 10 or current % 100 == 0))):
            current += _UNITS[word]
        elif word in _TENS and (used == 0 or current % 100 == 0):
            current += _TENS[word]
        elif word == "-" and used:
            at += 1
            continue
        else:
            break
        at += 1
        used = at
    value = total + current
    if used == 1 and words[0] == "grand":  # "grand piano"
        return None
    return (float(value), used) if used and value > 1 else None
