"""README's first answer is what the shipped model answers, and `make check` sees when it no longer is."""

import dataclasses
import json
from typing import Any

import pytest

from rehearsal.tools import first_answer
from service.api.models import PlanAnswer
from service.planner.plan import Plan
from tests.server_process import serving


@pytest.fixture
def figure() -> dict[str, Any]:
    recorded: dict[str, Any] = json.loads(first_answer.FIGURE.read_text(encoding="utf-8"))
    return recorded


def test_it_is_whole_and_of_today(figure: dict[str, Any]) -> None:
    answer = figure["answer"]
    assert list(answer) == [field.name for field in dataclasses.fields(PlanAnswer)]
    assert Plan.model_validate(answer["plan"]).model_dump(mode="json") == answer["plan"]
    assert first_answer.what_is_stale(figure) is None


def test_other_weights_another_question_or_another_plan_make_it_stale(figure: dict[str, Any]) -> None:
    assert first_answer.what_is_stale({**figure, "weights": "0" * 64}) == "the model has changed since"
    assert first_answer.what_is_stale({**figure, "query": "red shoes"}) == "it answers another question"
    figure["answer"]["plan"]["sort"] = "rating"
    assert "another plan" in str(first_answer.what_is_stale(figure))


def test_line_breaks_are_all_that_is_added(figure: dict[str, Any]) -> None:
    block = first_answer.render(figure)
    shown = block[block.index('{"request_id"') : block.rindex("```")]
    assert json.loads(shown) == figure["answer"]
    assert max(map(len, block.splitlines())) <= 120


@pytest.mark.slow
def test_the_shipped_model_gives_it(figure: dict[str, Any]) -> None:
    with serving(PEAKPLAN_REPLICAS=1) as server:
        answer = server.post("/plan", {"query": figure["query"], "deadline_ms": 2000}).json()
    for name in ("plan", "source", "model"):
        assert answer[name] == figure["answer"][name]
    usage = dict(figure["answer"]["usage"])
    assert 1 <= answer["usage"]["steps"] <= usage["plan_tokens"]
    usage["steps"] = answer["usage"]["steps"]  # what a row costs, and so how many a step drafts, is the processor's
    assert answer["usage"] == usage
