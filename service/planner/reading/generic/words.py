"""An utterance as tokens without accents and case, in a language of the Latin script that is read by data alone."""

import re
import unicodedata
from collections import defaultdict
from functools import lru_cache
from typing import Final

from service.planner.reading.tokens import Words

# "d'" and "l'" of "d'occasion" and "l'iphone" are words of their own; numbers keep their marks, letters their digits.
TOKEN: Final = re.compile(
    r"(?:[cdjlmnst]|qu|jusqu|lorsqu)['’](?=[^\W_])|[^\W\d_][^\W_]*(?:['’][^\W\d_]+)*"
    r"|\d+(?:[.,]\d+)?(?:[x×]\d+(?:[.,]\d+)?)+(?![^\W_])|\d+(?:[.,'’\u00a0\u202f]\d+)*|[^\w\s]|_",
    re.IGNORECASE,
)
_GROUPED = re.compile(r"(\d{1,3})((?:[.,'’\u00a0\u202f]\d{3})+)(?:([.,])(\d{1,2}))?")
_DECIMAL = re.compile(r"(\d+)[.,](\d+)")
_MARKS = re.compile(r"\D")
_UMLAUTS: Final = {"ae": "a", "oe": "o", "ue": "u"}  # as they are typed where there is no key for them
_UMLAUT = re.compile("|".join(_UMLAUTS))


@lru_cache(maxsize=8192)
def fold(text: str, umlauts: bool = False) -> str:
    """Return the text in lower case and without accents; with `umlauts`, "ae" is "ä" and so "a"."""
    lower = text.lower().replace("ß", "ss").replace("’", "'").replace("œ", "oe").replace("æ", "ae")
    if not lower.isascii():
        lower = "".join(c for c in unicodedata.normalize("NFKD", lower) if not unicodedata.combining(c))
    return _UMLAUT.sub(lambda match: _UMLAUTS[match.group()], lower) if umlauts else lower


def plain_number(text: str) -> str:
    """Return a number as Python writes it: "1.200,50", "1'200.50" and "1,200.5" are 1200.5, "12,5" is 12.5.

    Three digits after a mark are thousands in every locale that shops are asked in; the marks decide, not the locale.
    """
    grouped = _GROUPED.fullmatch(text)
    if grouped and not text.startswith("0"):
        whole, cents = _MARKS.sub("", grouped[1] + grouped[2]), grouped[4]
        return f"{whole}.{cents}" if cents else whole
    decimal = _DECIMAL.fullmatch(text)
    return f"{decimal[1]}.{decimal[2]}" if decimal else text


class FoldedWords(Words):
    """The tokens of a text, folded; numbers are written as Python writes them."""

    __slots__ = ("joined", "offsets")

    def __init__(self, source: str, *, umlauts: bool = False) -> None:
        self.source = source
        self.lower = source
        found = list(TOKEN.finditer(source))
        self.starts = [match.start() for match in found]
        self.ends = [match.end() for match in found]
        self.texts = [
            plain_number(text) if text[0].isdigit() else fold(text, umlauts) or text  # a lone accent folds to nothing
            for text in (match.group() for match in found)
        ]
        self.at = defaultdict(str, enumerate(self.texts)).__getitem__
        self.joined = " ".join(self.texts)
        self.offsets: list[int] = []
        at = 0
        for text in self.texts:
            self.offsets.append(at)
            at += len(text) + 1

    def tokens_in(self, start: int, end: int) -> range:
        """Return the tokens of a span of `joined`."""
        inside = [index for index, at in enumerate(self.offsets) if start <= at < end]
        return range(inside[0], inside[-1] + 1) if inside else range(0)


def tokens_of(text: str, *, umlauts: bool = False) -> list[str]:
    """Return the tokens of a phrase as they are matched."""
    found = TOKEN.findall(text)
    return [plain_number(token) if token[0].isdigit() else fold(token, umlauts) for token in found]
