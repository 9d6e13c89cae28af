"""What catalogues call their columns and values, from `fields.txt`, and which facet of a plan a column is."""

import re
from functools import lru_cache
from pathlib import Path
from typing import Final

from service.planner.text import fold, lines_of_sections

SECTIONS: Final = {
    name: tuple(word for line in lines for word in line.split())
    for name, lines in lines_of_sections(Path(__file__).with_name("fields.txt")).items()
}
_IN_STOCK: Final = frozenset(SECTIONS["in stock"])
_SOLD_OUT: Final = frozenset(SECTIONS["out of stock"])


def is_in_stock(value: str) -> bool | None:
    """Tell whether a word or number of a stock's field says that a product is there; None for one that is unknown."""
    word = re.sub(r"[ -]+", "_", fold(value).strip().rpartition("/")[2])
    if re.fullmatch(r"\d+(\.\d+)?\+?", word):
        return float(word.rstrip("+")) > 0
    word = re.sub(r"[_\d()+]+", "_", word).strip("_") or word  # "In stock (5)", "only 2 left"
    return True if word in _IN_STOCK else False if word in _SOLD_OUT else None


@lru_cache(maxsize=20_000)
def plain_name(name: str) -> str:
    """Return the last part of a field's name in lower case, without accents, `g:` and signs: "is_in_stock"."""
    last = re.split(r"\.(?=[^\W\d])", re.sub(r"^.*\[(.*)\]$", r"\1", name))[-1]
    last = re.sub(r"(?<=[a-z])(?=[A-Z])", "_", last.rpartition(":")[2] if last[:2] in ("g:", "c:") else last)
    return re.sub(r"\W+", "_", fold(last)).strip("_")


_FACETS: Final = ("color", "material", "size", "audience", "count", "shape", "condition", "occasion", "theme", "origin",
                  "time", "line", "model")  # fmt: skip
_FACET_OF: Final = {name: facet for facet in reversed(_FACETS) for name in SECTIONS[facet]}
NAMED: Final = frozenset(("brand", "line", "model", "type"))

_CODES: Final = {
    "audience": {
        code: list(words)
        for section, words in SECTIONS.items()
        if section.startswith("audience ") and f"{section} codes" in SECTIONS
        for code in SECTIONS[f"{section} codes"]
    },
    "size": {"s": ["small"], "m": ["medium"], "l": ["large"], "xl": ["x-large"], "xs": ["x-small"],
             "xxl": ["2xl", "xx-large"]},
}  # fmt: skip


def facet_of_field(field: str) -> str:
    """Return the facet that a field's name tells; "feature", which every other attribute is, where it tells none."""
    name = plain_name(field)
    parts = name.split("_")
    shorter = ("_".join(parts[at:]) for at in range(1, len(parts)) if parts[at - 1] in SECTIONS["qualifiers"])
    return next((_FACET_OF[each] for each in (name, *shorter) if each in _FACET_OF), "feature")


def words_of_code(facet: str, value: str) -> list[str]:
    """Return what shoppers say for a code or a short name that a field holds: "women" for "F"."""
    return _CODES.get(facet, {}).get(value.casefold().replace("'", ""), [])
