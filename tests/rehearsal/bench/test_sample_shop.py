"""The sample shop's mapping is what the command learns, and finds as much as the one that a person wrote."""

from pathlib import Path

from peakplan_client import catalogue
from peakplan_client.shop import MAPPING

from rehearsal.bench.sample_shop import compare, learnt


def test_it_is_what_the_command_learns() -> None:
    text = learnt(list(catalogue.read()))
    assert MAPPING.read_text(encoding="utf-8") == text, "python -m rehearsal.bench.sample_shop writes it anew"


def test_it_finds_as_much_as_the_one_by_hand(tmp_path: Path) -> None:
    found = compare(tmp_path)
    for half in ("dev", "test"):
        assert found["learnt"][half] >= found["by hand"][half] - 0.01
