"""Minimum ratings from the phrases that name them ("4 stars and up", "rated 4.5+"), by rule."""

import re
from bisect import bisect_left
from collections.abc import Iterator
from typing import Final, NamedTuple

from service.planner.reading.tokens import Words

_STAR_COUNT = r"(?:[0-5](?:\.\d{1,2})?|one|two|three|four and a half|four|five)"
_STARS_BEFORE = (
    r"(?:(?:rated|ratings?|review(?:s|ed)?|scored?|with|at least|no less than|not less than|no lower than"
    r"|minimum(?: of)?|min|over|above|more than|higher than|better than|>=?|≥|of|is|has|have|having|an?|average|only"
    r"|customer|nothing|under|below|less than|that|are|and|or) ?,? ?){0,6}"
)
_STARS_AFTER = (
    r"(?: ?(?:or (?:more|higher|better|above|up|over)|and (?:up|above|over|higher|more|better)|& (?:up|above)|\+|plus"
    r"|minimum|min|only|ratings?|rated|reviews?|average|customer|at least|products?(?= only)|please|up)(?![^\W_]))*"
)
_MORE = r"(?: ?(?:\+|plus\b|or (?:more|higher|better|above|up)\b|and (?:up|above|over|higher|more|better)\b|& up\b))?"
_OUT_OF = r"(?: out of (?:5|five))"
# "rated 300 lbs" and "rating 4 x 6" are no ratings.
_NO_UNIT = (
    r"(?![\w%/$£€-]|\.\d| ?(?:[\"'x]|inch|lbs?|pounds|tons?|volts?|amps?|v\b|people|persons?|hours?|degrees|feet|ft))"
)
_NOT_INSIDE = r"(?<![\w.$£€#-])"
_RATING = re.compile(
    rf"{_NOT_INSIDE}{_STARS_BEFORE}{_NOT_INSIDE}({_STAR_COUNT}){_MORE} ?-? ?stars?(?![\w']){_OUT_OF}?{_STARS_AFTER}"
    rf"|\b(?:rated|ratings?|scored?|reviews?)[ :]?{_STARS_BEFORE}({_STAR_COUNT})(?:/5|{_OUT_OF}(?: stars)?)?"
    rf"{_NO_UNIT}{_STARS_AFTER}"
    rf"|{_NOT_INSIDE}{_STARS_BEFORE}{_NOT_INSIDE}({_STAR_COUNT})"
    rf"(?:{_MORE} ?(?:ratings?|rated|average rating)\b|/5\b|{_OUT_OF}\b(?: stars?\b)?){_STARS_AFTER}"
)
_RATING_GATES: Final = ("star", "rat", "/5", "out of", "scor", "review")
_NO_RATING = re.compile(
    r" ?(?:notebooks?|binders?|planners?|folders?|paper|general|hotels?|resort|restaurant|necklace|earrings?|flag"
    r"|garland|charts?|tattoos?|ornaments?|stickers?|badge|ring|pendant|sheriff|energy|wars|trek|shaped?|pattern|print|point"
    r"|light|lights|string|dragon ball|ball|cookie|cutter|decal|patch|filler|loose|linebacker|products book)\b"
)
_STAR_WORDS: Final = {"one": 1.0, "two": 2.0, "three": 3.0, "four": 4.0, "five": 5.0, "four and a half": 4.5}


class Rating(NamedTuple):
    """A minimum rating out of five stars, and its tokens [first, end)."""

    min: float
    first: int
    end: int


def find_ratings(words: Words) -> Iterator[Rating]:
    """Return every rating in order; "5 star notebook" and "star wars" name none."""
    if not any(gate in words.lower for gate in _RATING_GATES):
        return
    for match in _RATING.finditer(words.lower):
        count = next(group for group in match.groups() if group)
        value = _STAR_WORDS[count] if count in _STAR_WORDS else float(count)
        if not 0 < value <= 5 or _NO_RATING.match(words.lower, match.end()):
            continue
        first, end = bisect_left(words.starts, match.start()), bisect_left(words.starts, match.end())
        if end > first:
            yield Rating(value, first, end)
