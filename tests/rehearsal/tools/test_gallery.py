"""The gallery's plans are the shipped model's, and `make check` sees when they no longer are."""

import json
from typing import Any

import pytest

from rehearsal.tools import gallery
from rehearsal.tools.gallery import PARTLY, USABLE, WRONG, Judgement, digest, judgements, remark, summary
from service.planner.vocabulary import shipped_vocabulary
from tests.server_process import serving


@pytest.fixture
def figure() -> dict[str, Any]:
    recorded: dict[str, Any] = json.loads(gallery.FIGURE.read_text(encoding="utf-8"))
    return recorded


def test_sixty_questions_of_every_kind() -> None:
    asked = gallery.questions()
    assert len({json.dumps(each) for each in asked}) == 60
    assert sum("history" in each for each in asked) >= 5


def test_another_model_question_or_plan_makes_it_stale(figure: dict[str, Any]) -> None:
    figure["rows"] = figure["rows"][:3]
    asked = gallery.questions()[:3]
    vocabulary = shipped_vocabulary()
    assert gallery.what_is_stale(figure, asked, vocabulary) is None
    assert gallery.what_is_stale({**figure, "weights": "0"}, asked, vocabulary) == "the model has changed since"
    assert gallery.what_is_stale(figure, gallery.questions(), vocabulary) == "it answers other questions"
    figure["rows"][1]["plan"]["sort"] = "rating"
    assert "another plan" in str(gallery.what_is_stale(figure, asked, vocabulary))
    figure["rows"][1]["key"] = "0"
    assert "another prompt" in str(gallery.what_is_stale(figure, asked, vocabulary))


def test_a_plan_is_shown_without_what_it_leaves_open(figure: dict[str, Any]) -> None:
    row = {**figure["rows"][0], "query": "red shoes", "history": ["nike"]}
    row["plan"] |= {"price": {"min": None, "max": None, "currency": None}, "exclude": {}, "sort": "rating"}
    shown = gallery.render({"rows": [row]})
    assert "\n\n**1. red shoes**\n(after: nike)\n" in shown
    plan = json.loads(shown[shown.index("{") : shown.rindex("```")])
    assert plan["sort"] == "rating"
    assert plan["queries"] == row["plan"]["queries"]
    assert not {"price", "exclude", "rating", "offers"} & set(plan)


def test_every_plan_was_judged_by_three_and_a_plan_that_changed_has_no_verdict(figure: dict[str, Any]) -> None:
    plans, judged = [row["plan"] for row in figure["rows"]], judgements()
    assert {digest(plan) for plan in plans} <= set(judged)
    assert all(len(each.verdicts) == 3 and set(each.verdicts) <= {USABLE, PARTLY, WRONG} for each in judged.values())
    faulty = next(plan for plan in plans if judged[digest(plan)].majority == WRONG)
    assert remark(faulty, judged).startswith("*Judged wrong:*")
    assert remark({**faulty, "sort": "rating"}, judged) == ""
    assert summary([{**faulty, "sort": "rating"}, faulty], judged).endswith(
        "1 are other plans than those that were judged."
    )


@pytest.mark.parametrize(
    ("verdicts", "majority"),
    [((USABLE, USABLE, WRONG), USABLE), ((USABLE, PARTLY, WRONG), PARTLY), ((WRONG,) * 3, WRONG)],
)
def test_most_judges_decide_and_where_none_agree_it_is_partly(verdicts: tuple[str, ...], majority: str) -> None:
    assert Judgement("", verdicts, "").majority == majority


@pytest.mark.slow
def test_the_service_gives_them(figure: dict[str, Any]) -> None:
    asked = [{"query": row["query"], "history": row.get("history", []), "deadline_ms": 30000} for row in figure["rows"]]
    with serving(PEAKPLAN_REPLICAS=1) as server:
        answers = server.post("/plans", {"requests": asked}).json()["answers"]
    assert {each["answer"]["source"] for each in answers} == {"model"}
    for row, each in zip(figure["rows"], answers, strict=True):
        assert each["answer"]["plan"] == row["plan"], row["query"]
