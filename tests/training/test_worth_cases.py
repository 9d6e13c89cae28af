"""The cases from which the worth of questions is learnt: sound, and none of those that the planner is judged by."""

import json

import pytest

from service.planner.question import Question
from tests.training.judged import CASES, is_near
from training.data.cases import WORTH_CASES, checker, read_cases


def test_every_case_has_a_name_a_question_and_assertions_that_mean_something() -> None:
    rows = [json.loads(line) for line in WORTH_CASES.read_text(encoding="utf-8").splitlines()]
    assert len({row["id"] for row in rows}) == len(rows) > 3000
    assert all(row["expect"] and row["query"].strip() for row in rows)
    assert all(isinstance(case.question, Question) for case in read_cases(WORTH_CASES))


@pytest.mark.skipif(not CASES.is_file(), reason="the cases that judge lie beside the checkout, in ../shared")
def test_an_assertion_that_check_does_not_know_is_in_none() -> None:
    holds = checker(CASES)
    empty = {"intent": "find_product", "queries": [], "facets": {}, "exclude": {}, "parts": []}
    empty |= {"price": {"min": None, "max": None, "currency": None}, "rating": {"min": None}, "sort": "relevance"}
    empty |= {"offers": [], "sources": [], "mode": "keyword", "vertical": None}
    for case in read_cases(WORTH_CASES):
        for wanted in case.assertions:
            assert holds(empty, wanted) in (True, False), (case.question.text, wanted)


@pytest.mark.skipif(not CASES.is_file(), reason="the cases that judge lie beside the checkout, in ../shared")
def test_none_is_nearly_a_text_that_judges_the_planner() -> None:
    texts = {
        text for case in read_cases(WORTH_CASES) for text in (case.question.text, " ".join(case.question.utterances))
    }
    assert [text for text in sorted(texts) if is_near(text)] == []
