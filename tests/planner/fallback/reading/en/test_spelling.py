"""Tests of spelling by rule, and of the word list that it reads."""

import os
import string
import subprocess
import sys

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from service.planner.spelling import (
    CORRECTED,
    WORDS_PATH,
    begin_conversation,
    correct,
    correct_word,
    distance,
    is_known,
    words,
)
from training.data.rows import held_out
from training.words import misspellings


@pytest.mark.parametrize(
    ("wrong", "right"),
    [
        ("hedphones", "headphones"),  # a letter left out
        ("keyborad", "keyboard"),  # two letters transposed
        ("bluetoooth", "bluetooth"),  # a letter doubled
        ("choclate", "chocolate"),
        ("kamera bag", "camera bag"),  # what sounds alike
        ("vaccum", "vacuum"),
        ("samsng galxy s22 case", "samsung galaxy s22 case"),
        ("outdoor chrismas lites", "outdoor christmas lights"),
        ("grey joggrs", "grey joggers"),  # a plural whose singular is on the list
        ("paracetmol", "paracetamol"),  # a word that names none of our products
    ],
)
def test_misspelt_words_are_corrected(wrong: str, right: str) -> None:
    assert correct(wrong) == right


@pytest.mark.parametrize(
    "text",
    [
        "wireless headphones",
        "nike shoes",
        "dcd771c2 drill",
        "wf-1000xm5",
        "2tb ssd",
        "men's socks",
        "zqxjkv",
        "café mug",
        "tumble dryer 5 litre",  # no word of American products; their "litres" is
        "a pressie for my nan",
        "",
    ],
)
def test_known_words_models_and_what_nothing_is_near_stay(text: str) -> None:
    assert correct(text) == text


def test_misspellings_that_no_table_lists_are_mostly_corrected(monkeypatch: pytest.MonkeyPatch) -> None:
    dev = [(wrong, right) for wrong, right in misspellings() if held_out(f"spelling: {wrong}") and wrong.isalpha()]
    known = {right for _, right in dev if right in words().counts}
    without_table = words()._replace(slips={})
    monkeypatch.setattr("service.planner.spelling.words", lambda: without_table)
    CORRECTED.clear()
    found = [correct_word(wrong) == right for wrong, right in dev if right in known and not is_known(wrong)]
    CORRECTED.clear()
    assert len(found) > 20
    assert sum(found) >= 0.8 * len(found)


@given(st.text(max_size=300))
@example("Sneekers")
def test_any_text_keeps_its_number_of_words(text: str) -> None:
    assert len(correct(text).split()) == len(text.split())


@given(
    st.text(string.ascii_lowercase, min_size=1, max_size=12), st.text(string.ascii_lowercase, min_size=1, max_size=12)
)
def test_the_distance_is_zero_for_equal_words_alone(wrong: str, right: str) -> None:
    assert (distance(wrong, right) == 0) == (wrong == right)


def test_the_list_is_small_and_says_where_it_comes_from() -> None:
    text = WORDS_PATH.read_text(encoding="ascii")
    assert text.startswith("# Written by `python -m training.words`")
    assert len(text) < 500_000
    found = words()
    assert not found.slips.keys() & (found.counts.keys() | found.known)
    assert found.facets["nike"] == "brand"
    assert found.facets["boots"] == "type"
    assert ("salt", "pepper") in found.joined


def test_of_equally_near_words_every_process_takes_the_same() -> None:
    program = "from service.planner.spelling import correct_word; print(correct_word('aller'))"
    taken = {
        subprocess.run(
            [sys.executable, "-c", program], env=os.environ | {"PYTHONHASHSEED": seed}, capture_output=True, check=True
        ).stdout
        for seed in ("0", "4")
    }
    assert len(taken) == 1


def test_a_conversation_has_few_misspelt_words_looked_up_and_the_next_one_as_many() -> None:
    """Eighty words that nobody had misspelt before once took 2.4 million operations of the interpreter."""
    misspelt = ("snekers", "hedphones", "blendr", "nessesary", "jaket")
    for _ in range(2):
        CORRECTED.clear()
        begin_conversation()
        assert [correct_word(word) for word in misspelt][:3] == ["sneakers", "headphones", "blender"]
        assert correct_word("jaket") == "jaket"  # so many letters had been looked up
        assert correct_word("snekers") == "sneakers"
    begin_conversation()
    assert correct_word("jaket") == "jacket"
