"""An utterance as tokens without accents and case, in any language whose words are parted by spaces."""

import re
from bisect import bisect_left
from collections import defaultdict
from collections.abc import Callable, Iterable, Mapping
from functools import lru_cache
from itertools import accumulate
from typing import Any, Final

from service.planner.text import fold, plain_number

# "d'" and "l'" of "d'occasion" and "l'iphone" are words of their own; numbers keep their marks, letters their digits.
TOKEN: Final = re.compile(
    r"(?:[cdjlmnst]|qu|jusqu|lorsqu)['’](?=[^\W_])|[^\W\d_][^\W_]*(?:['’][^\W\d_]+)*"
    r"|\d+(?:[.,]\d+)?(?:[x×]\d+(?:[.,]\d+)?)+(?![^\W_])|\d+(?:[.,'’\u00a0\u202f]\d+)*|[^\w\s]|_"
)
BREAKS: Final = frozenset(",;:.!?()[]|")
QUOTES: Final = frozenset("'\"“”„‘’")


class Words:
    """The tokens of a text: `texts` are folded; those of `numbers` begin with a digit and are as Python writes them.

    Token i stands at [starts[i], ends[i]) of `source`. `joined` are the tokens parted by spaces, for regular
    expressions. `at` is the token at an index, empty outside the text: rules ask for neighbours at every step, and no
    call of ours is as fast. Most texts have no phrase in them, so that all four are found when the first asks.
    """

    __slots__ = ("_found", "_offsets", "_text", "at", "ends", "joined", "numbers", "source", "starts", "texts")
    at: Callable[[int], str]
    ends: list[int]
    joined: str
    starts: list[int]

    def __init__(self, source: str, *, umlauts: bool = False, decimal_mark: str = "") -> None:
        self.source = source
        lower = source.lower()
        self._text = lower if len(lower) == len(source) else source  # "İ" becomes two characters
        self._found = texts = TOKEN.findall(self._text)
        self.numbers = numbers = [at for at, text in enumerate(texts) if text[0].isdigit()]
        if umlauts or not source.isascii():
            texts = [fold(text, umlauts) or text for text in texts]  # a lone accent folds to nothing
        elif numbers:
            texts = texts.copy()
        for at in numbers:
            texts[at] = plain_number(self._found[at], decimal_mark)
        self.texts: list[str] = texts
        self._offsets: list[int] = []

    def __getattr__(self, name: str) -> Any:
        """Find what nobody has asked for yet; a slot that has a value is not looked for here."""
        if name == "at":
            self.at = defaultdict(str, enumerate(self.texts)).__getitem__
        elif name == "joined":
            self.joined = " ".join(self.texts)
        elif name in ("starts", "ends"):
            self._place()
        else:
            raise AttributeError(name)
        return getattr(self, name)

    def _place(self) -> None:
        """Find where the tokens stand: between them are spaces alone."""
        index, end = self._text.index, 0
        self.ends = [end := index(text, end) + len(text) for text in self._found]
        self.starts = [end - len(text) for end, text in zip(self.ends, self._found, strict=True)]

    def with_texts(self, others: Mapping[int, str]) -> "Words":
        """Return the same tokens, some of which are read as other words."""
        words = Words(self.source)
        words._text, words._found, words.numbers = self._text, self._found, self.numbers
        words.texts = [others.get(at, text) for at, text in enumerate(self.texts)]
        return words

    def touches(self, index: int) -> bool:
        """Tell whether this token and the next one are adjacent."""
        return index + 1 < len(self.texts) and self.ends[index] == self.starts[index + 1]

    def beginnings(self, starts: frozenset[str]) -> list[int]:
        """Return the numbers and the tokens that are one of `starts`, in order: where a phrase may begin."""
        if starts.isdisjoint(self.texts):
            return self.numbers
        found = [at for at, text in enumerate(self.texts) if text in starts]
        return sorted({*found, *self.numbers}) if self.numbers else found

    def span(self, first: int, end: int) -> tuple[int, int]:
        """Return the position of tokens [first, end) in the source; (0, 0) for no tokens."""
        return (self.starts[first], self.ends[end - 1]) if end > first else (0, 0)

    def spans(self, tokens: Iterable[tuple[int, int]]) -> tuple[tuple[int, int], ...]:
        """Return the positions of ranges of tokens in the source, in their order."""
        return tuple([self.span(first, end) for first, end in sorted(tokens)])

    def tokens_in(self, start: int, end: int) -> range:
        """Return the tokens of a span of `joined`."""
        if not self._offsets:
            self._offsets = list(accumulate((len(text) + 1 for text in self.texts), initial=0))
        return range(bisect_left(self._offsets, start), bisect_left(self._offsets, end))


@lru_cache(maxsize=64)
def words_of(source: str, umlauts: bool, decimal_mark: str, /) -> Words:
    """Return the tokens of a text, which is asked for its language first and then read: the same call finds them."""
    return Words(source, umlauts=umlauts, decimal_mark=decimal_mark)


def is_number(text: str) -> bool:
    """Tell whether a token is a number, and not "140x200"."""
    return text.replace(".", "", 1).isdecimal()


def tokens_of(text: str, *, umlauts: bool = False) -> list[str]:
    """Return the tokens of a phrase as they are matched."""
    parts = text.split()
    if all(map(str.isalpha, parts)):  # as nearly all of 144,000 are: letters and spaces have nothing to look for
        return [fold(part, umlauts) for part in parts]
    return Words(text, umlauts=umlauts).texts
