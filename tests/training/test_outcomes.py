"""Plans and what came of them become rows to train on: choices confirm labels, and disagreement leaves them open."""

import json
from pathlib import Path
from typing import Any

import pytest

from tests.training.tiny_data import VOCABULARY, made, written
from training.data import outcomes
from training.data.outcomes import convert, read_records, write_rows
from training.data.own_rows import RowsError, read_own_rows


def served(request: str = "a", **changed: Any) -> dict[str, Any]:
    plan = {
        "record": "plan", "request_id": request, "mode": "keyword", "intent": "find_product",
        "vertical": "sporting-goods", "question": "nike running shoes not white", "history": [],
        "facets": {"brand": ["nike"], "type": ["running shoes"]}, "exclude": {"color": ["white"]},
        "parts": [], "sources": ["catalog"],
    }  # fmt: skip
    return plan | changed


def chose(
    request: str = "a", outcome: str = "click", vertical: str = "apparel-accessories", **facets: list[str]
) -> Any:
    own = {"brand": ["Nike"], "type": ["Men's Running Shoe"], "color": ["Black"]} | facets
    product = {"id": "1", "vertical": vertical, "facets": own}
    return {"record": "outcome", "request_id": request, "outcome": outcome, "product": product}


def test_a_choice_confirms_the_facets_that_the_product_has_and_its_own_vertical() -> None:
    [row] = convert([served(), chose()], VOCABULARY).rows

    assert row == {
        "question": "nike running shoes not white", "history": [], "intent": "find_product", "mode": "keyword",
        "vertical": "apparel-accessories", "facets": {"brand": ["nike"], "type": ["running shoes"]},
        "exclude": {"color": ["white"]},
    }  # fmt: skip
    assert made(row).knows_facets


@pytest.mark.parametrize("unlike", [{"brand": ["Asics"]}, {"color": ["White"]}, {"type": []}])
def test_what_a_chosen_product_does_not_have_is_left_open(unlike: dict[str, list[str]]) -> None:
    [row] = convert([served(), chose(), chose(**unlike)], VOCABULARY).rows

    assert "facets" not in row
    assert row["vertical"] == "apparel-accessories"


def test_verticals_that_disagree_are_weighed() -> None:
    clicks = [chose(vertical="furniture"), chose(vertical="furniture")]
    [row] = convert([served(), *clicks, chose(outcome="purchase")], VOCABULARY).rows
    assert row["vertical"] == "apparel-accessories", "a purchase weighs more than two clicks"

    [row] = convert([served(), chose(), chose(vertical="furniture")], VOCABULARY).rows
    assert "vertical" not in row


def test_plans_that_give_no_row_are_counted_with_the_reason() -> None:
    without_words = {key: value for key, value in served("b").items() if key not in ("question", "history")}
    records = [
        served(), {"record": "outcome", "request_id": "a", "outcome": "nothing"},
        without_words | {"facets": ["brand"], "exclude": []}, chose("b"),
        served("c", intent="order_status"), chose("c"),
    ]  # fmt: skip
    found = convert(records, VOCABULARY)

    assert found.rows == []
    assert sorted(reason.split()[0] for reason in found.left_out) == ["a", "its", "nothing"]
    elsewhere = {"b": {"request_id": "b", "question": "nike shoes", "history": ["hi"]}}
    [row] = convert(records, VOCABULARY, questions=elsewhere).rows
    assert (row["question"], row["history"], "facets" in row) == ("nike shoes", ["hi"], False)
    assert convert([served(), chose()], VOCABULARY, least=5).rows == []


def test_words_with_another_end_of_line_inside_are_one_record(tmp_path: Path) -> None:
    record = served(question="red\u2028boots\x85")
    path = tmp_path / "outcomes.jsonl"
    path.write_text(json.dumps(record, ensure_ascii=False) + "\n", encoding="utf-8")

    assert list(read_records(path)) == [record]


def test_the_command_writes_rows_that_the_checker_takes_and_overwrites_nothing(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    log, output = written(tmp_path, served(), chose()), tmp_path / "rows.jsonl"
    monkeypatch.setattr("sys.argv", ["outcomes-to-rows", str(log), "--output", str(output)])
    outcomes.main()

    rows = read_own_rows(output, VOCABULARY)
    assert len(rows.train + rows.dev) == 1
    with pytest.raises(SystemExit, match="exists already"):
        outcomes.main()
    with pytest.raises(RowsError, match=r"my\.jsonl:2"):
        list(read_records(written(tmp_path, served(), "{")))
    assert not list(tmp_path.glob(".*")), "nothing half-written"
    write_rows([], tmp_path / "other.jsonl")
