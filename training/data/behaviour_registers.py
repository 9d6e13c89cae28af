"""How people type: one sentence in many registers, with capitals, greetings, marks and slips; and misspelt words."""

import random
from collections import defaultdict
from dataclasses import replace
from functools import cache
from typing import Final

from training.data.behaviour_plans import SEARCHLESS, mode_of
from training.data.behaviour_text import Piece, sections, text_of, with_tail
from training.data.phrases import misspell

_GREETINGS: Final = ("hi", "hello", "hey", "hi there,", "good morning,", "ok so", "hi!", "hello,", "um", "excuse me,")
_COURTESY: Final = ("please", "pls", "thanks", "thank you", "please and thank you", "thx")


def in_register(pieces: list[Piece], rng: random.Random, intent: str, *, may_slip: bool = True) -> list[Piece]:
    """Rephrase: with capitals, a greeting, a courtesy, punctuation, or a typo in a word of no facet."""
    roll = rng.random()
    is_sentence = mode_of(text_of(pieces)) == "conversational"
    is_shopping = intent not in SEARCHLESS
    if roll < 0.42:
        return pieces
    if roll < 0.5:
        return [replace(pieces[0], text=pieces[0].text[:1].upper() + pieces[0].text[1:]), *pieces[1:]]
    if roll < 0.53:
        return [replace(piece, text=piece.text.upper()) for piece in pieces]
    if roll < 0.64 and not pieces[-1].tail:
        return with_tail(pieces, rng.choice(("?", "??", "?", "!", ".") if is_sentence else (".", "!")))
    if roll < 0.74 and is_sentence and is_shopping:
        return [Piece(rng.choice(_GREETINGS)), *pieces]
    if roll < 0.82 and is_shopping and not pieces[-1].tail:
        return [*pieces, Piece(rng.choice(_COURTESY))]
    if roll < 0.9:
        return [replace(piece, text=_without_apostrophe(piece, may_slip=may_slip)) for piece in pieces]
    return _with_slip(pieces, rng) if may_slip else pieces


def _without_apostrophe(piece: Piece, *, may_slip: bool) -> str:
    return piece.text.replace("'", "") if may_slip and not piece.facet else piece.text


def _with_slip(pieces: list[Piece], rng: random.Random) -> list[Piece]:
    free = [
        at for at, piece in enumerate(pieces) if not piece.is_queried and len(piece.text) > 5 and piece.text.isalpha()
    ]
    if not free or len(pieces) < 3:
        return pieces
    at = rng.choice(free)
    return [replace(p, text=misspell(p.text, rng)) if index == at else p for index, p in enumerate(pieces)]


@cache
def misspellings() -> dict[str, list[str]]:
    """Return the misspellings of each word."""
    found: dict[str, list[str]] = defaultdict(list)
    for _, line, where in sections("spelling.txt"):
        wrong, *right = line.split()
        if len(right) != 1 or wrong == right[0]:
            raise ValueError(f"{where}: {line!r} is not a wrong word and the right one")
        found[right[0]].append(wrong)
    return found


def misspelt(piece: Piece, slips: dict[str, str]) -> Piece:
    """Return a piece with the slips in its words, and what it would be without them."""
    words = piece.text.split()
    text = " ".join(slips.get(word, word) for word in words)
    return replace(piece, text=text, correct=piece.text) if text != piece.text else piece
