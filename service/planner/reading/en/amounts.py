"""The amounts in a question: numbers in digits or in words, with an adjacent currency."""

import re
from collections.abc import Sequence
from typing import Final, NamedTuple

from service.planner.reading import money
from service.planner.reading.en.data import PHRASES
from service.planner.reading.tokens import Words

_MAX_AMOUNT: Final = 10_000_000
_MOST_NUMBER_WORDS: Final = 8
_GLUED = re.compile(r"(\d{1,3}(?:,\d{3}){1,2}|\d{1,7})(\.\d{1,2})?(k)?([^\W\d_]*)")
CURRENCIES: Final[dict[str, str | None]] = {
    **money.words_of("en", PHRASES.words("price.not.currencies")),
    **dict.fromkeys(PHRASES.words("price.any.currency")),  # money, but whose: "500 kr"
    **PHRASES.table("price.currencies"),
}
_SIGNS = frozenset(entry for entry in CURRENCIES if not entry.isalpha())
_DOLLARS = PHRASES.table("price.dollars")
_BANKNOTES = PHRASES.table("price.notes")  # in pounds sterling

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
_NUMBER_WORDS = frozenset({*_UNITS, *_TENS, *_SCALES})


class Amount(NamedTuple):
    """A number as tokens [first, end), its currency with it (ISO 4217)."""

    value: float
    first: int
    end: int
    currency: str | None
    is_money: bool  # a sign or a word for money stands beside it
    has_prefix: bool = False  # a sign or a code stands before it
    pounds: bool = False  # "30 pounds": money or weight


def find_amounts(words: Words, taken: frozenset[int]) -> list[Amount]:
    """Return every amount in order; `taken` are tokens to skip."""
    found: list[Amount] = []
    at = 0
    while at < len(words.texts):
        amount = None if at in taken else _amount_at(words, at)
        if amount is not None:
            found.append(amount)
        at = amount.end if amount is not None else at + 1
    return found


def _amount_at(words: Words, first: int) -> Amount | None:
    """Return the amount whose number begins here; a sign or code before it belongs to it."""
    text = words.texts[first]
    if text in _BANKNOTES:
        return Amount(float(_BANKNOTES[text]), first, first + 1, "GBP", is_money=True)
    if text[0].isdigit():
        match = _GLUED.fullmatch(text)
        if match is None or (match.group(4) and match.group(4) not in CURRENCIES):
            return None
        value = float(match.group(1).replace(",", "") + (match.group(2) or "")) * (1000 if match.group(3) else 1)
        end, code = first + 1, CURRENCIES.get(match.group(4))
        if words.at(end) in ("k", "grand", "hundred", "thousand"):
            value *= {"hundred": 100}.get(words.at(end), 1000)
            end += 1
    else:
        spelled = _spelled(words.texts[first : first + _MOST_NUMBER_WORDS])
        if spelled is None:
            return None
        value, end, code = spelled[0], first + spelled[1], None
    if value > _MAX_AMOUNT:
        return None
    return _with_currency(words, Amount(value, first, end, code, is_money=code is not None))


def _with_currency(words: Words, amount: Amount) -> Amount:
    first, end = amount.first, amount.end
    if words.at(end - 1) == "grand":
        amount = amount._replace(is_money=True)
    before = words.at(first - 1)
    if before == "." and words.at(first - 2) == "rs":
        before, first = "rs", first - 1
    if before in CURRENCIES and (before in _SIGNS or (before.isalpha() and len(before) <= 3)):
        first -= 1
        currency = CURRENCIES[before]
        is_sign = before in _SIGNS
        if before == "$" and words.at(first - 1) in _DOLLARS and words.touches(first - 1):
            first -= 1
            currency = _DOLLARS[words.at(first)]
        amount = amount._replace(currency=currency, first=first, is_money=amount.is_money or is_sign, has_prefix=True)
    after = end + 1 if words.at(end) == "-" and words.at(end + 1) in CURRENCIES else end
    if words.at(after) in _DOLLARS and words.at(after + 1) in ("dollar", "dollars", "bucks"):
        return amount._replace(currency=_DOLLARS[words.at(after)], end=after + 2, is_money=True)
    leads_on = words.at(after) in _SIGNS and words.at(after + 1)[:1].isdigit() and words.touches(after)
    if words.at(after) in CURRENCIES and not leads_on:
        currency = CURRENCIES[words.at(after)]
        if amount.has_prefix and amount.currency != "USD":
            currency = amount.currency or currency
        return amount._replace(currency=currency, end=after + 1, is_money=True)
    if words.at(end) in ("pounds", "pound"):
        return amount._replace(pounds=True)
    return amount


def _spelled(words: Sequence[str]) -> tuple[float, int] | None:
    """Return (value, number of words) of the number that the words begin with: "two hundred", "twenty-five".

    Hyphens count as words. A lone "one" or "a" is no number.
    """
    if words[0] not in _NUMBER_WORDS and words[0] not in ("a", "couple"):
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
        elif (word == "-" and used) or (word == "and" and _adds(words, at)):
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


def _adds(words: Sequence[str], at: int) -> bool:
    """Tell whether an "and" is inside a number, "two hundred and fifty", not between two: "a hundred and a lamp"."""
    before, after, then = words[at - 1], words[at + 1 : at + 2], words[at + 2 : at + 3]
    is_low = bool(after) and (after[0] in _UNITS or after[0] in _TENS)
    return is_low and before in _SCALES and set(then).isdisjoint(_SCALES)
