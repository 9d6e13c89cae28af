"""What catalogues call their columns and values, from `fields.txt`."""

import re
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
