import json
from collections import Counter
from pathlib import Path

import pytest

from rehearsal.load.mix import body, draw, questions
from service.planner.question import Question

NO_DATA = Path("/nowhere")


def test_the_head_is_asked_far_more_often_than_the_tail() -> None:
    ranked = [Question.parse(f"question {number}") for number in range(1000)]
    counts = Counter(question.text for question in draw(ranked, 20_000, zipf=1.0))
    assert counts["question 0"] / counts["question 9"] == pytest.approx(10, rel=0.3)
    assert counts["question 0"] / 20_000 == pytest.approx(1 / 7.485, rel=0.1)  # of the thousandth harmonic number


def test_without_a_head_all_are_asked_alike() -> None:
    ranked = [Question.parse(f"question {number}") for number in range(10)]
    counts = Counter(question.text for question in draw(ranked, 10_000, zipf=0.0))
    assert max(counts.values()) < 1.2 * min(counts.values())


def test_questions_are_different_and_in_the_same_order_each_time() -> None:
    one, again = questions(30, NO_DATA), questions(30, NO_DATA)
    assert [q.text for q in one] == [q.text for q in again]
    assert len({q.utterances for q in one}) == len(one) == 30


def test_a_body_is_what_the_service_takes() -> None:
    assert json.loads(body(Question.parse("in red?", ["shoes"]), 200)) == {
        "query": "in red?",
        "history": ["shoes"],
        "deadline_ms": 200,
    }
    assert "history" not in json.loads(body(Question.parse("shoes"), 200))
