"""Documents show what commands wrote: figures, the first answer and the gallery; `make check` sees what is stale."""

import dataclasses
import json
from pathlib import Path
from typing import Any

import pytest

from rehearsal.tools import first_answer, gallery
from rehearsal.tools.gallery import PARTLY, USABLE, WRONG, Judgement, digest, judgements, remark
from rehearsal.tools.readme import FIGURES, README, rewrite
from service.api.models import PlanAnswer
from service.planner.plan import Plan
from service.planner.vocabulary import shipped_vocabulary
from tests.server_process import serving


def test_the_readme_is_not_stale() -> None:
    text = README.read_text(encoding="utf-8")

    assert rewrite(text) == text


def test_a_changed_figure_makes_the_readme_stale(tmp_path: Path) -> None:
    for path in FIGURES.glob("*.json"):
        name, figure = path.stem, json.loads(path.read_text(encoding="utf-8"))
        if name == "quality":
            figure["model"]["span_f1"]["queryner"] = 0.123
        (tmp_path / f"{name}.json").write_text(json.dumps(figure))
    text = README.read_text(encoding="utf-8")

    assert "0.123" in rewrite(text, tmp_path)
    assert rewrite(text, tmp_path) != text


def test_a_block_without_its_figure_is_an_error(tmp_path: Path) -> None:
    with pytest.raises(FileNotFoundError):
        rewrite("<!-- figure: decoding -->\n<!-- end of figure -->", tmp_path)


@pytest.fixture
def answered() -> dict[str, Any]:
    recorded: dict[str, Any] = json.loads(first_answer.FIGURE.read_text(encoding="utf-8"))
    return recorded


@pytest.fixture
def shown() -> dict[str, Any]:
    recorded: dict[str, Any] = json.loads(gallery.FIGURE.read_text(encoding="utf-8"))
    return recorded


@pytest.mark.slow
def test_the_shipped_model_gives_the_first_answer_and_the_gallery(
    answered: dict[str, Any], shown: dict[str, Any]
) -> None:
    asked = [{"query": row["query"], "history": row.get("history", []), "deadline_ms": 30000} for row in shown["rows"]]
    with serving(PEAKPLAN_REPLICAS=1) as server:
        answer = server.post("/plan", {"query": answered["query"], "deadline_ms": 2000}).json()
        answers = server.post("/plans", {"requests": asked}).json()["answers"]
    recorded = answered["answer"]
    for name in ("plan", "source", "model"):
        assert answer[name] == recorded[name]
    steps = answer["usage"]["steps"]  # what a row costs, and so how many a step drafts, is the processor's
    assert 1 <= steps <= recorded["usage"]["plan_tokens"]
    assert answer["usage"] == recorded["usage"] | {"steps": steps}
    assert {each["answer"]["source"] for each in answers} == {"model"}
    for row, each in zip(shown["rows"], answers, strict=True):
        assert each["answer"]["plan"] == row["plan"], row["query"]


def test_the_first_answer_is_whole_and_of_today(answered: dict[str, Any]) -> None:
    answer = answered["answer"]
    assert list(answer) == [field.name for field in dataclasses.fields(PlanAnswer)]
    assert Plan.model_validate(answer["plan"]).model_dump(mode="json") == answer["plan"]
    assert first_answer.what_is_stale(answered) is None


def test_other_weights_another_question_or_another_plan_make_it_stale(answered: dict[str, Any]) -> None:
    assert first_answer.what_is_stale({**answered, "weights": "0" * 64}) == "the model has changed since"
    assert first_answer.what_is_stale({**answered, "query": "red shoes"}) == "it answers another question"
    answered["answer"]["plan"]["sort"] = "rating"
    assert "another plan" in str(first_answer.what_is_stale(answered))


def test_another_model_question_or_plan_makes_it_stale(shown: dict[str, Any]) -> None:
    shown["rows"] = shown["rows"][:3]
    asked = gallery.questions()[:3]
    vocabulary = shipped_vocabulary()
    assert gallery.what_is_stale(shown, asked, vocabulary) is None
    assert gallery.what_is_stale({**shown, "weights": "0"}, asked, vocabulary) == "the model has changed since"
    assert gallery.what_is_stale(shown, gallery.questions(), vocabulary) == "it answers other questions"
    shown["rows"][1]["plan"]["sort"] = "rating"
    assert "another plan" in str(gallery.what_is_stale(shown, asked, vocabulary))
    shown["rows"][1]["key"] = "0"
    assert "another prompt" in str(gallery.what_is_stale(shown, asked, vocabulary))


def test_every_plan_was_judged_by_three_and_a_plan_that_changed_has_no_verdict(shown: dict[str, Any]) -> None:
    plans, judged = [row["plan"] for row in shown["rows"]], judgements()
    assert {digest(plan) for plan in plans} <= set(judged)
    assert all(len(each.verdicts) == 3 and set(each.verdicts) <= {USABLE, PARTLY, WRONG} for each in judged.values())
    majorities = [Judgement("", given, "").majority for given in ((USABLE, USABLE, WRONG), (USABLE, PARTLY, WRONG))]
    assert majorities == [USABLE, PARTLY]
    faulty = next(plan for plan in plans if judged[digest(plan)].majority == WRONG)
    assert remark(faulty, judged).startswith("*Judged wrong:*")
    assert remark({**faulty, "sort": "rating"}, judged) == ""
