"""What a shopper does not mind and so names nothing: "any colour", "not fussed about the brand", "size is fine"."""

from typing import Final

from service.planner.reading.en.data import PHRASES
from service.planner.reading.tokens import Words

ATTRIBUTES: Final = PHRASES.words("indifferent.attributes")
_AFTER = PHRASES.trie("indifferent.after")
_BETWEEN: Final = frozenset(("the", "a", "its", "their", "which", "what", "particular", "specific"))
_JOINS: Final = frozenset(("and", "or", "/", "&", ","))
_BEFORE: Final = frozenset(("i", "i'm", "im", "am", "we", "we're", "really", "and", "but", "also", "honestly", "just"))
_DENIES: Final = frozenset(("of", "new"))  # "any kind of rice", "brand new"


def after_cue(words: Words, first: int, end: int) -> tuple[int, int] | None:
    """Return the tokens of a phrase whose cue is [first, end); None where no attribute follows it."""
    while words.at(end) in _BETWEEN:
        end += 1
    reached = _attributes(words, end)
    if reached is None:
        return None
    tail = _AFTER.match(words, reached)
    return _lead_in(words, first), reached + (tail[0] if tail else 0)


def before_cue(words: Words, at: int) -> tuple[int, int] | None:
    """Return the tokens of a phrase that begins with an attribute at `at`: "the colour isn't important"."""
    reached = _attributes(words, at)
    tail = _AFTER.match(words, reached) if reached is not None else None
    if reached is None or tail is None:
        return None
    return _lead_in(words, at - (words.at(at - 1) == "the")), reached + tail[0]


def _attributes(words: Words, at: int) -> int | None:
    """Return the end of the attributes that begin at `at`: "brand", "colour or size"."""
    if words.at(at) not in ATTRIBUTES or words.at(at + 1) in _DENIES:
        return None
    while words.at(at + 1) in _JOINS and words.at(at + 2) in ATTRIBUTES:
        at += 2
    return at + 1


def _lead_in(words: Words, first: int) -> int:
    while words.at(first - 1) in _BEFORE:
        first -= 1
    return first
