"""An utterance as lower-case tokens, in any language whose words are parted by spaces."""

import re
from collections import defaultdict
from collections.abc import Callable
from typing import Final

from service.planner.question import TOKEN

_NUMBER = re.compile(r"(\d{1,3}(?:,\d{3}){1,2}|\d{1,7})(?:\.\d{1,2})?")
BREAKS: Final = frozenset(",;:.!?()[]|")


class Words:
    """The tokens of a text: `texts` in lower case, and their positions [starts[i], ends[i]).

    Positions are the same in `source` and `lower`, which agree character by character.
    """

    __slots__ = ("at", "ends", "lower", "source", "starts", "texts")

    def __init__(self, source: str) -> None:
        self.source = source
        lower = source.lower()
        if len(lower) != len(source):  # "İ" becomes two characters, and places would shift
            lower = "".join(character.lower() if len(character.lower()) == 1 else character for character in source)
        self.lower = lower.replace("’", "'")
        found = list(TOKEN.finditer(self.lower))
        self.texts = [match.group() for match in found]
        self.starts = [match.start() for match in found]
        self.ends = [match.end() for match in found]
        # The token at an index, empty outside the text; rules ask for neighbours at every step, and no call is as fast.
        self.at: Callable[[int], str] = defaultdict(str, enumerate(self.texts)).__getitem__

    def touches(self, index: int) -> bool:
        """Tell whether this token and the next one are adjacent."""
        return index + 1 < len(self.texts) and self.ends[index] == self.starts[index + 1]

    def span(self, first: int, end: int) -> tuple[int, int]:
        """Return the position of tokens [first, end) in the source; (0, 0) for no tokens."""
        return (self.starts[first], self.ends[end - 1]) if end > first else (0, 0)


def is_number(text: str) -> bool:
    """Tell whether a token consists of digits only."""
    return text[:1].isdigit() and _NUMBER.fullmatch(text) is not None
