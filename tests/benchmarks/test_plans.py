"""Tests that the comparison of plans tells what changed, and asks the model only what it has not been asked."""

from pathlib import Path

import pytest

from benchmarks.model_texts import text_key
from benchmarks.plans import Asked, differences, main, read_rows, rows
from service.planner.prompt import PlanTask
from service.planner.question import Question
from service.planner.vocabulary import shipped_vocabulary

ASKED: list[Asked] = [("red shoes", [], ""), ("what about blue?", ["red shoes"], "en-GB")]


def _rows(text: str = " find Any", known: dict[str, str] | None = None) -> list[dict[str, object]]:
    return list(rows(ASKED, shipped_vocabulary(), lambda _task: text, known or {}))


def test_the_same_plans_do_not_differ() -> None:
    assert not any(differences(_rows(), _rows()).values())


def test_another_plan_of_the_same_text_is_told() -> None:
    before, after = _rows(), _rows()
    after[1]["rules"] = {"intent": "compare_products"}

    found = differences(before, after)

    assert [(one["query"], other["rules"]) for one, other in found["rules"]] == [
        ("what about blue?", {"intent": "compare_products"})
    ]
    assert not found["model"]


def test_a_question_that_is_gone_is_told() -> None:
    assert [one["query"] for one, _ in differences(_rows(), _rows()[1:])["questions"]] == ["red shoes"]


def test_a_known_text_is_not_asked_of_the_model_again() -> None:
    key = text_key(PlanTask(Question.parse("red shoes"), shipped_vocabulary()))
    first, second = _rows(known={key: " find Color red Type shoes Fashion"})

    assert first["model"]["facets"] == {"color": ["red"], "type": ["shoes"]}  # type: ignore[index]
    assert second["text"] == " find Any"


def test_a_text_cut_short_is_a_row_all_the_same() -> None:
    assert "error" in _rows(" find Color")[0]["model"]  # type: ignore[operator]


def test_the_command_compares_files(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    files = [tmp_path / "before.jsonl", tmp_path / "after.jsonl"]
    monkeypatch.setattr("benchmarks.plans.questions", lambda _data, _most: ASKED)
    monkeypatch.setattr("benchmarks.plans.generator", lambda _model: lambda _task: " find Any")
    for file in files:
        monkeypatch.setattr("sys.argv", ["plans", "--write", str(file)])
        main()
    monkeypatch.setattr("sys.argv", ["plans", "--compare", *map(str, files)])

    with pytest.raises(SystemExit) as same:
        main()
    assert same.value.code == 0
    assert len(read_rows(files[1])) == len(ASKED)

    files[1].write_text(files[1].read_text().replace(" find Any", " find None"))
    with pytest.raises(SystemExit) as other:
        main()
    assert other.value.code == 1
