"""Currencies of ISO 4217 by name, sign and code, as `money.txt` has them from Unicode's CLDR data.

A currency is told only where that is certain: by its own name ("peso mexicano"), by a sign or a word that one currency
alone has ("€", "Franken"), or by the territory of the locale ("pesos" in es-MX).
"""

import re
from functools import cache, lru_cache
from pathlib import Path
from typing import Final, NamedTuple

from service.planner.text import fold, lines_of_sections

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
    """Return the currency of each territory."""
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
    """Return the codes of all currencies that are money somewhere."""
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
