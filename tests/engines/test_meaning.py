"""What a kind head makes of a question survives messages and caches, and nothing else passes for it."""

import base64
import struct

import pytest

from service.engines.meaning import QuestionMeaning

MEANING = QuestionMeaning("00ff00ff00ff00ff", (0.5, -0.25, 2.0), 3.5)


def test_what_was_packed_is_unpacked() -> None:
    told = QuestionMeaning.unpacked(MEANING.packed())
    assert told is not None
    assert (told.space, told.odds) == (MEANING.space, MEANING.odds)
    assert told.direction == pytest.approx(MEANING.direction, abs=2 / 127 / 2)  # half a step
    nothing = QuestionMeaning("a", (0.0, 0.0), 0.0)
    assert QuestionMeaning.unpacked(nothing.packed()) == nothing
    assert QuestionMeaning.unpacked("") is None


def test_numbers_that_are_too_large_for_it_are_cut() -> None:
    told = QuestionMeaning.unpacked(QuestionMeaning("a", (1e9,), -1e9).packed())
    assert told == QuestionMeaning("a", (65504.0,), -65504.0)


@pytest.mark.parametrize(
    "text",
    [
        "nothing",
        "a:",
        "a:!!!!",
        "a:" + base64.b64encode(b"abc").decode(),
        "a:" + base64.b64encode(struct.pack("<ee", 1.0, 1.0)).decode(),  # odds alone
        "a:" + base64.b64encode(struct.pack("<eeb", 1.0, float("nan"), 1)).decode(),
        "a:\ud800",
    ],
)
def test_what_is_no_meaning_is_refused(text: str) -> None:
    with pytest.raises(ValueError, match="not a question's meaning"):
        QuestionMeaning.unpacked(text)
