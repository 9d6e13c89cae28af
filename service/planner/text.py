"""Text as the planner compares it: letters without case and accents, plain numbers, and files of sections.

The lists of English words are for the shop learner and training data: planning does not read them.
"""

import re
import unicodedata
from functools import lru_cache
from pathlib import Path
from typing import Final

_GROUPED = re.compile(r"(\d{1,3})((?:[.,'’\u00a0\u202f]\d{3})+)(?:([.,])(\d{1,2}))?")
_DECIMAL = re.compile(r"(\d+)[.,](\d+)")
_GROUP = 4  # a mark and its three digits
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


def plain_number(text: str, decimal_mark: str = "") -> str:
    """Return a number as Python writes it: "1.200,50", "1'200.50" and "1,200.5" are 1200.5, "12,5" is 12.5.

    Three digits after the only mark, "1.200", are decimals where that mark is the locale's `decimal_mark`, and else
    thousands.
    """
    if text.isdecimal():
        return text
    grouped = _GROUPED.fullmatch(text)
    is_decimal = grouped is not None and grouped[2][0] == decimal_mark and len(grouped[2]) == _GROUP and not grouped[4]
    if grouped and not is_decimal and not text.startswith("0"):
        whole, cents = _MARKS.sub("", grouped[1] + grouped[2]), grouped[4]
        return f"{whole}.{cents}" if cents else whole
    decimal = _DECIMAL.fullmatch(text)
    return f"{decimal[1]}.{decimal[2]}" if decimal else text


def lines_of_sections(path: Path) -> dict[str, list[str]]:
    """Read the lines below each [section]; "# " begins a comment. Raises ValueError that names the line."""
    found: dict[str, list[str]] = {}
    lines: list[str] | None = None
    for number, line in enumerate(path.read_text(encoding="utf-8").splitlines(), 1):
        if line.startswith("[") and line.endswith("]"):
            lines = found.setdefault(line[1:-1], [])
        elif line.strip() and not line.startswith("# "):
            if lines is None:
                raise ValueError(f"{path.name}:{number}: a line before the first section")
            lines.append(line)
    return found


_LISTS: Final = {
    name: frozenset(word.strip() for word in " ".join(lines).split(","))
    for name, lines in lines_of_sections(Path(__file__).with_name("word_lists.txt")).items()
}
FUNCTION_WORDS: Final = _LISTS["function"]
UNSEARCHED: Final = FUNCTION_WORDS | _LISTS["unsearched"]  # name nothing to search for
COLORS: Final = _LISTS["color"]
MATERIALS: Final = _LISTS["material"]
# The facet that each of these words is of, the first where it is of several.
KIND_OF: Final = {word: facet for facet in ("size", "audience", "material", "color") for word in _LISTS[facet]}
