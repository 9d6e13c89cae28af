"""Numbers and money inside words that the model marked: what "between fifty and 1.2k euros" says as two amounts.

Nothing here looks for a price in a question. It reads a span that is one, a rating or a count: digits in any locale's
marks, number words (text2num), units of thousands, and currencies (`money`).
"""

import re
from collections.abc import Iterator
from dataclasses import dataclass
from functools import cache, lru_cache
from pathlib import Path
from typing import Final, NamedTuple

from text_to_num import alpha2digit

from service.planner.text import fold, lines_of_sections, plain_number

MONEY_PATH: Final = Path(__file__).with_name("money.txt")
LOCAL: Final = "local"  # a word for whatever money is the shopper's own: "pavos", "Mäuse"
_CODES_THAT_ARE_WORDS: Final = frozenset(
    "all amd ang awg bam bob btn cup gel kgs lak mad mop mur npr pen ron sos top try".split()
)
_SUBTAGS: Final = re.compile("[-_]")
_MAIN: Final = ("USD", "GBP", "CAD")  # what "dollars", "$", "pounds" and "C$" mean where no locale says otherwise


class Region(NamedTuple):
    """What a locale says of money: its territory, ISO 3166, and the mark before decimals; nothing without a locale."""

    territory: str | None = None
    decimal_mark: str = ""


ANYWHERE: Final = Region()


@lru_cache(maxsize=256)
def region_of(locale: str) -> Region:
    """Return the region of a BCP 47 tag: "MX" and "." of "es-MX"."""
    language, *tags = _SUBTAGS.split(locale)
    territory = next((tag.upper() for tag in tags if len(tag) == 2 and tag.isalpha()), None)
    marks = _decimal_marks()
    mark = marks.get(f"{language.lower()}_{territory}") or marks.get(language.lower(), "")
    return Region(territory, mark)


@cache
def _decimal_marks() -> dict[str, str]:
    return {name: mark for mark in ",." for line in _sections()[f"decimals {mark}"] for name in line.split()}


@cache
def _sections() -> dict[str, list[str]]:
    return lines_of_sections(MONEY_PATH)


def _table(name: str) -> dict[str, tuple[str, ...]]:
    pairs = (line.rpartition("=") for line in _sections().get(name, ()))
    return {key: tuple(codes.split(",")) for key, _, codes in pairs}


@cache
def territories() -> dict[str, str]:
    return dict(entry.split("=") for line in _sections()["territories"] for entry in line.split())


@cache
def signs() -> dict[str, tuple[str, ...]]:
    """Return the currencies that each sign may stand for."""
    return _table("signs")


@cache
def written() -> frozenset[str]:
    """Return all codes and signs as tokens are folded, with umlauts and without: few words are one of them."""
    return frozenset(fold(text, umlauts) for text in (*codes(), *signs()) for umlauts in (False, True))


def names(language: str) -> dict[str, tuple[str, ...]]:
    """Return the currencies that each name or word for a unit may stand for, in a language."""
    return _table(f"units {language}") | _table(f"names {language}")


def code_of(text: str) -> str | None:
    """Return the ISO 4217 code that a word is; a lower-case one that is also a word counts as none."""
    code = text.upper()
    is_code = code in codes() and (text.isupper() or text.lower() not in _CODES_THAT_ARE_WORDS)
    return code if is_code else None


@cache
def codes() -> frozenset[str]:
    return frozenset(territories().values())


def certain(candidates: tuple[str, ...], territory: str | None) -> str | None:
    """Return the one currency that a sign or a word means, None where it may be several."""
    local = territories().get(territory or "")
    if LOCAL in candidates:
        return local
    if len(candidates) == 1:
        return candidates[0]
    if local in candidates:
        return local
    return next((code for code in _MAIN if code in candidates), None)


LANGUAGES: Final = ("en", "es", "de", "fr", "it", "pt", "nl")  # whose number words are read
_MOST: Final = 1_000_000_000  # guaraníes and pesos have many zeros
_TOKEN: Final = re.compile(
    r"\d{1,3}(?:[\u00a0\u202f ]\d{3})+(?:[.,]\d{1,2})?(?![\d.,])|\d+(?:[.,'’\u00a0\u202f]\d+)*"
    r"|x10+(?!\d)|[^\W\d_]+[$€£¥]|[^\W\d_]+|[^\w\s]"
)
# What multiplies the number before it, or stands for one alone.
_SCALES: Final = {
    "k": 1e3, "grand": 1e3, "thousand": 1e3, "mil": 1e3, "mille": 1e3, "mila": 1e3, "tausend": 1e3, "duizend": 1e3,
    "m": 1e6, "mio": 1e6, "million": 1e6, "millions": 1e6, "millones": 1e6, "millon": 1e6, "millionen": 1e6,
    "milhoes": 1e6, "milioni": 1e6, "miljoen": 1e6, "lakh": 1e5, "lakhs": 1e5, "lac": 1e5, "crore": 1e7, "crores": 1e7,
    "hundred": 100.0, "lucas": 1e3,
}  # fmt: skip
_LETTERS: Final = ("k", "m")  # scales that must touch their number
_HALVES: Final = ("half", "halbe", "halben", "halber", "medio", "media", "demi", "mezzo", "meio")
_ARTICLES: Final = ("a", "un", "une", "ein", "een", "um")
# Words for money itself, in the dictionary of no currency: the value of a note, or nothing but the currency.
_SLANG: Final = {
    "quid": (None, ("GBP",)), "tenner": (10.0, ("GBP",)), "fiver": (5.0, ("GBP",)), "bucks": (None, (LOCAL,)),
    "buck": (None, (LOCAL,)), "rs": (None, ("INR",)), "kr": (None, (LOCAL,)), "eur": (None, ("EUR",)),
    "contos": (None, ("BRL",)), "pila": (None, ("BRL",)), "lucas": (None, (LOCAL,)), "balles": (None, ("EUR",)),
    "pavos": (None, (LOCAL,)), "piasses": (None, ("CAD",)), "stutz": (None, ("CHF",)),
    "c$": (None, ("CAD", "NIO")), "s$": (None, ("SGD",)), "tl": (None, ("TRY",)), "руб": (None, ("RUB",)),
}  # fmt: skip
_SCALED: Final = re.compile(
    rf"(?<=\d)\s+({'|'.join(name for name in _SCALES if name not in _LETTERS)})\b", re.IGNORECASE
)
_LAKHS: Final = re.compile(r"\d{1,2}(?:,\d{2})+,\d{3}(?:\.\d{1,2})?")  # as India groups digits
_AND_REST: Final = re.compile(r"(?<!\d)(\d+)000 e (\d{1,3})(?!\d)")  # "mil e duzentos"
_NEXT_DIGITS: Final = re.compile(r"(?<![\d.,])([1-9]) ([1-9]0)(?![\d.,])")  # "two fifty" is 250


@dataclass(frozen=True, slots=True)
class Amount:
    """A number, and its currency (ISO 4217) where that is certain."""

    value: float
    currency: str | None = None


def read_amounts(text: str, locale: str = "") -> list[Amount]:
    """Return the amounts of a span in order; a currency said once holds for all of them.

    Args:
        text: the shopper's words, their case kept.
        locale: the BCP 47 tag of the request, for number marks and ambiguous currencies; empty for none.
    """
    region = region_of(locale)
    tokens = _TOKEN.findall(_in_digits(text, locale))
    values = list(_values(tokens, region.decimal_mark))
    currency = _currency(tokens, region.territory)
    slang = [_SLANG[fold(token)][0] for token in tokens if fold(token) in _SLANG]
    if not values:
        values = [value for value in slang if value is not None]
    return [Amount(value, currency) for value in values if 0 <= value <= _MOST]


def signed_currency(text: str, locale: str = "") -> str | None:
    """Return the currency whose sign or code stands beside a number in a text; words for money may be other things."""
    territory = region_of(locale).territory
    tokens = _TOKEN.findall(text)
    for at, token in enumerate(tokens):
        beside = [*tokens[max(0, at - 1) : at], *tokens[at + 1 : at + 2]]
        if any(other[0].isdigit() for other in beside):
            is_code = len(token) == 3 and token.isupper() and code_of(token)
            if is_code or token in signs():
                return code_of(token) if is_code else certain(signs()[token], territory)
    return None


def _in_digits(text: str, locale: str) -> str:
    """Write number words as digits, in the locale's language, in English, or in the first that knows any."""
    own = locale[:2].lower()
    spaced = re.sub(r"(?<=[^\W\d_])-(?=[^\W\d_])", " ", text)
    spaced = _SCALED.sub(lambda match: f" x{_SCALES[fold(match[1])]:.0f}", spaced)  # not a number of its own
    least = 0 if any(fold(word) in _SCALES for word in spaced.split()) else 3
    for language in dict.fromkeys((own if own in LANGUAGES else "en", "en", *LANGUAGES)):
        found = str(alpha2digit(spaced, language, threshold=least))
        if re.search(r"(?<!x)\d", found):
            found = _NEXT_DIGITS.sub(lambda match: match[1] + match[2], found)
            return _AND_REST.sub(lambda match: str(int(match[1]) * 1000 + int(match[2])), found)
    return text


def _values(tokens: list[str], decimal_mark: str) -> Iterator[float]:
    """Yield the numbers; "15 to 18 thousand" scales both."""
    found: list[float] = []
    at = 0
    while at < len(tokens):
        number, length = _scaled(tokens, at, decimal_mark)
        if number is not None:
            scale = _scale(tokens, at + length - 1) if length > 1 else 1.0
            if found and scale > 1 and found[-1] < number / scale:
                found[-1] = round(found[-1] * scale, 2)
            found.append(round(number, 2))
        at += length
    yield from found


def _scaled(tokens: list[str], at: int, decimal_mark: str) -> tuple[float | None, int]:
    """Return the number that begins at a token, None for no number, and how many tokens were read."""
    number, length = _number(tokens[at], decimal_mark), 1
    if number is None and fold(tokens[at]) in _HALVES:
        length += at + 1 < len(tokens) and fold(tokens[at + 1]) in _ARTICLES
        if at + length >= len(tokens) or _scale(tokens, at + length) == 1:
            return None, 1
        number = 0.5
    elif number is None:
        alone = fold(tokens[at]) not in _LETTERS and _scale(tokens, at) > 1  # "a grand"
        return (_scale(tokens, at) if alone else None), 1
    while at + length < len(tokens) and (scale := _scale(tokens, at + length)) > 1:
        number, length = number * scale, length + 1
    return number, length


def _scale(tokens: list[str], at: int) -> float:
    token = fold(tokens[at])
    return float(token[1:]) if re.fullmatch(r"x10+", token) else _SCALES.get(token, 1.0)


def _number(token: str, decimal_mark: str) -> float | None:
    if not token[0].isdigit():
        return None
    marks = r"[\u00a0\u202f ,]" if _LAKHS.fullmatch(token) else r"[\u00a0\u202f ]"
    plain = plain_number(re.sub(marks, "", token), decimal_mark)
    return float(plain) if re.fullmatch(r"\d+(?:\.\d+)?", plain) else None


def _currency(tokens: list[str], territory: str | None) -> str | None:
    """Return the currency that signs, codes and words of a span say together."""
    found: list[tuple[str, ...]] = []
    for at, token in enumerate(tokens):
        joined = "".join(tokens[max(0, at - 1) : at + 1])
        if joined != token and joined in signs() and found:
            found[-1] = signs()[joined]  # "R$", "A$"
        elif candidates := _candidates(token, joined):
            found.append(candidates)
    common = [codes for codes in found if len(codes) == 1]
    return next(filter(None, (certain(codes, territory) for codes in (*common, *found))), None)


def _candidates(token: str, joined: str) -> tuple[str, ...]:
    folded = fold(token)
    if folded in _SLANG:
        return _SLANG[folded][1]
    if code := code_of(token) if len(token) == 3 else None:
        return (code,)
    return signs().get(joined) or signs().get(token) or _words().get(folded, ())


@cache
def _words() -> dict[str, tuple[str, ...]]:
    """Return the currencies of every word for one in the languages that are read, folded."""
    found: dict[str, tuple[str, ...]] = {}
    for language in LANGUAGES:
        for word, codes in names(language).items():
            if " " not in word:
                before = found.get(fold(word), ())
                found[fold(word)] = tuple(dict.fromkeys((*before, *codes)))
    return found
