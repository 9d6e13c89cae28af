"""Sentences with labelled words, and the lines of `behaviour/` that define them.

A line is words as queries.txt writes them: `phone_case/t` is a span of two words, `red/c1` belongs to the first of
several things, `nike/-b` is refused, `quiet/w` belongs into a search query and no facet, `hedphones~headphones/t` is
misspelled, and `{thing}` is a slot to fill.
"""

import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from pathlib import Path

from training.data.rows import VERTICAL_CODES
from training.data.written import FACET_LETTERS

FOLDER = Path(__file__).with_name("behaviour")
_WITHOUT_VERTICALS = ("support.txt", "talk.txt", "followups.txt")
_WHOLE = ("whole", "feature", "traps")  # sections whose lines are search queries, to the last word
_MARK = re.compile(r"(?P<text>.+)/(?P<refused>-?)(?P<letter>[a-z])(?P<part>[1-4]?)(?P<tail>[,.?!:;]*)")
_SLOT = re.compile(r"\{(?P<name>-?[a-z]+)(?P<part>[1-4]?)\}(?P<tail>[,.?!:;]*)")


@dataclass(frozen=True, slots=True)
class Piece:
    """Some words of a sentence: a facet's value, words of a query, an unfilled slot, or words that only join others."""

    text: str
    facet: str | None = None
    part: int = 0  # 1.. of several things; 0 belongs to all
    is_refused: bool = False
    is_queried: bool = False
    correct: str | None = None
    tail: str = ""  # punctuation after it
    slot: str | None = None


@dataclass(frozen=True, slots=True)
class Line:
    """A sentence or skeleton of a section, e.g. `multi find_product whole`; `family` is what splits train from dev."""

    section: tuple[str, ...]
    vertical: str | None
    pieces: tuple[Piece, ...]
    family: str
    where: str


def read_lines(name: str) -> Iterator[Line]:
    """Yield the lines of a file of `behaviour/`. Raises ValueError that names the line."""
    for section, text, where in sections(name):
        has_vertical = name not in _WITHOUT_VERTICALS or "find_product" in section
        vertical: str | None = None
        words = text.split()
        if has_vertical:
            code, *words = words
            if code not in (*VERTICAL_CODES, "--") or not words:
                raise ValueError(f"{where}: {text!r} does not begin with a vertical or --, and go on with words")
            vertical = VERTICAL_CODES.get(code)
        pieces = tuple(_piece(word, where) for word in words)
        if section.split()[:1] not in (["multi"], ["compare"]):  # elsewhere "{sum2}" is only a second sum
            pieces = tuple(replace(piece, part=0) for piece in pieces)
        if section.split()[-1] in _WHOLE:
            pieces = tuple(replace(piece, is_queried=True) for piece in pieces)
        yield Line(tuple(section.split()), vertical, pieces, f"{section}: {text}", where)


def sections(name: str) -> Iterator[tuple[str, str, str]]:
    """Yield (section, line, position) of every line that is not empty."""
    section = ""
    for number, line in enumerate((FOLDER / name).read_text(encoding="utf-8").splitlines(), 1):
        if line.startswith("[") and line.endswith("]"):
            section = line[1:-1]
        elif line.strip() and not line.startswith("#"):
            if not section and name != "spelling.txt" and name != "vague.txt":
                raise ValueError(f"{name}:{number}: a line before the first section")
            yield section, line.strip(), f"{name}:{number}"


def _piece(word: str, where: str) -> Piece:
    if slot := _SLOT.fullmatch(word):
        return Piece("", part=int(slot["part"] or 0), tail=slot["tail"], slot=slot["name"])
    mark = _MARK.fullmatch(word)
    if mark is None:
        return Piece(word)
    letter = mark["letter"]
    if letter != "w" and letter not in FACET_LETTERS:
        raise ValueError(f"{where}: {word!r} names no facet; the letters are w {' '.join(FACET_LETTERS)}")
    text, _, correct = mark["text"].replace("_", " ").partition("~")
    facet = FACET_LETTERS.get(letter)
    part = int(mark["part"] or 0)
    return Piece(text, facet, part, bool(mark["refused"]), True, correct or None, mark["tail"])


def text_of(pieces: Sequence[Piece]) -> str:
    """Return the sentence of the pieces."""
    return " ".join(" ".join(piece.text + piece.tail for piece in pieces).split())


def places(pieces: Sequence[Piece]) -> list[tuple[int, int]]:
    """Return [start, end) of each piece in its `text_of`, punctuation aside."""
    found, at = [], 0
    for piece in pieces:
        found.append((at, at + len(piece.text)))
        at += len(piece.text) + len(piece.tail) + bool(piece.text + piece.tail)
    return found


def with_tail(pieces: Sequence[Piece], tail: str) -> list[Piece]:
    """Return the pieces with punctuation after the last."""
    if not pieces or not tail:
        return list(pieces)
    return [*pieces[:-1], replace(pieces[-1], tail=pieces[-1].tail + tail)]
