"""The matrix of architectures says what tests take, and notices a test that is gone."""

import pytest

from rehearsal.tools.architectures_table import COLUMNS, Column, architectures, seen, table
from tests.bases import ARCHITECTURES


def test_every_architecture_has_a_row_that_says_what_is_not_seen() -> None:
    assert architectures() == list(ARCHITECTURES)
    _, _, *rows = [line.strip("|").split("|") for line in table().splitlines() if line.startswith("|")]
    found = {name.strip(): [cell.strip() for cell in cells] for name, *cells in rows}
    assert list(found) == list(ARCHITECTURES)
    for column, title in enumerate(each.title for each in COLUMNS):
        assert {cells[column] for cells in found.values()} <= {"yes", "not seen"}
        assert any(cells[column] == "yes" for cells in found.values()), title


def test_a_test_of_some_is_seen_with_those() -> None:
    some = Column("compiled", "conformance/neuron/test_bases.py", "test_every_one_is_compiled_for_its_chip")
    assert seen(some) == ["llama-2", "qwen2", "qwen3", "smollm3"]


@pytest.mark.parametrize("test", ["test_that_is_gone", "test_an_import_that_is_broken_off_leaves_nothing"])
def test_a_test_that_is_gone_or_takes_no_architecture_is_named(test: str) -> None:
    with pytest.raises(LookupError, match=test):
        seen(Column("gone", "weights/test_bases.py", test))
