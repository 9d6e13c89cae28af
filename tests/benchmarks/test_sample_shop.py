"""The sample shop's mapping is what the command learns, and finds as much as the one that a person wrote."""

from pathlib import Path

import pytest
from peakplan_client import catalogue
from peakplan_client.shop import MAPPING

from benchmarks.sample_shop import compare, learnt

pytestmark = pytest.mark.skipif(
    not catalogue.NEARBY.is_file(), reason="the sample catalogue is not beside the checkout"
)


def test_it_is_what_the_command_learns() -> None:
    text = learnt(list(catalogue.read(catalogue.NEARBY)))
    assert MAPPING.read_text(encoding="utf-8") == text, "python -m benchmarks.sample_shop writes it anew"


def test_it_finds_as_much_as_the_one_by_hand(tmp_path: Path) -> None:
    found = compare(tmp_path, catalogue.NEARBY)
    for half in ("dev", "test"):
        assert found["learnt"][half] >= found["by hand"][half] - 0.01
