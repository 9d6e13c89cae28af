"""What the report of a shop folder says of a catalogue with known faults."""

import json
from pathlib import Path
from typing import Any

import pytest

from peakplan.shop.run import Done, Task, learn
from tests.peakplan.shop.test_learn import catalogue, write_lines


def faulty() -> list[dict[str, Any]]:
    rows = catalogue()
    rows[3] = rows[3] | {"colour": "Geren"}
    rows[7] = rows[7] | {"colour": "GREEN"}
    rows[11] = rows[11] | {"price": "$99000"}
    rows[12] = rows[12] | {"price": "0"}
    rows[20] = rows[19] | {"sku": "P20"}
    rows[30] = rows[30] | {"brand": None}
    rows[40] = rows[40] | {"category": None}
    rows[50] = rows[50] | {"category": None, "title": "XQ-77", "brand": "Zorvex"}
    return rows


@pytest.fixture(scope="module")
def done(tmp_path_factory: pytest.TempPathFactory) -> Done:
    folder = tmp_path_factory.mktemp("faulty")
    return learn(Task(write_lines(folder / "p.jsonl", faulty()), folder / "mine", {}, quiet=True))


def test_the_faults_are_counted_and_shown(done: Done) -> None:
    found = done.summary["findings"]
    assert found["suspicious price"] == 2
    assert found["duplicate"] == 1
    assert found["no category"] == 2
    assert found["no plan can find"] == 1
    assert found["written otherwise"] == 2
    page = (done.output / "report.html").read_text(encoding="utf-8")
    assert "P50: XQ-77" in page
    assert "Geren" in page
    assert page.count("<meter") > 2
    assert "What to mend first" in page
    assert "<script" not in page
    assert done.summary["score"] < 100


def test_what_is_missing_and_can_be_told_is_written_with_its_confidence(done: Done) -> None:
    rows = [json.loads(line) for line in (done.output / "enriched.jsonl").read_text(encoding="utf-8").splitlines()]
    found = {(row["id"], row["field"]): row for row in rows}
    assert found["P3", "colour"]["value"] == "Green"
    assert (found["P7", "colour"]["was"], found["P7", "colour"]["from"]) == ("GREEN", "spelling")
    brand = found["P30", "brand"]
    assert brand["value"] == faulty()[30]["title"].split()[0]
    assert brand["confidence"] > 0.9
    assert found["P40", "category"]["value"] == "Kitchen > Kettles"
    assert all(0 <= row["confidence"] <= 1 for row in rows)


def test_a_catalogue_without_faults_scores_full(tmp_path: Path) -> None:
    whole = learn(Task(write_lines(tmp_path / "p.jsonl", catalogue()), tmp_path / "mine", {}, quiet=True))
    assert whole.summary["score"] == 100
    assert whole.summary["findings"] == {}
