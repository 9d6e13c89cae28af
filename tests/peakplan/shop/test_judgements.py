"""Judgements as other tools export them: Quepid's CSV, OpenSearch's JSON, fractions and words for grades."""

import json
from pathlib import Path

import pytest

from peakplan.shop.judgements import read_judgements
from peakplan.shop.sources import SourceError


@pytest.mark.parametrize(
    ("name", "text", "grades"),
    [
        ("quepid.csv", "query,docid,rating\n\"lamp, red\",P1,3\nlamp,P2,\nlamp,P3,0\nlamp,P4,1\n",
         {"lamp, red": {"P1": 3}, "lamp": {"P3": 0, "P4": 1}}),
        ("esci.tsv", "query\tproduct_id\tesci_label\nlamp\tP1\tE\nlamp\tP2\tI\n", {"lamp": {"P1": 3, "P2": 0}}),
        ("floats.tsv", "lamp\tP1\t0.75\nlamp\tP2\t1.0\n", {"lamp": {"P1": 75, "P2": 100}}),
        ("whole.tsv", "lamp\tP1\t2.0\n", {"lamp": {"P1": 2}}),
        ("workbench.json",
         json.dumps({"name": "x", "judgmentRatings": [
             {"query": "lamp", "ratings": [{"docId": "P1", "rating": "3.0"}, {"docId": "P2", "rating": "0.0"}]}]}),
         {"lamp": {"P1": 3, "P2": 0}}),
    ],
)  # fmt: skip
def test_what_other_tools_export_is_read(
    tmp_path: Path, name: str, text: str, grades: dict[str, dict[str, int]]
) -> None:
    (tmp_path / name).write_text(text)
    assert read_judgements([tmp_path / name]).grades == grades


def test_a_grade_that_is_none_is_named(tmp_path: Path) -> None:
    (tmp_path / "j.tsv").write_text("lamp\tP1\tmaybe\n")
    with pytest.raises(SourceError, match=r"j\.tsv:1: the grade 'maybe' is neither a number nor e, s"):
        read_judgements([tmp_path / "j.tsv"])
