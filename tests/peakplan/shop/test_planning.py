"""The model's plans with and without a shop's words: a question that is read in another way is drafted anew."""

from pathlib import Path
from typing import Any

import pytest

from peakplan.shop import planning
from service.planner.planner import Planner
from service.planner.prompt import PlanTask
from service.planner.question import Question
from service.planner.shop import current
from service.planner.shop.folder import ShopFolder
from service.settings.choices import SHIPPED_MODEL
from tests.fake_models import fake_source
from tests.peakplan.shop.test_learn import catalogue, learn, write_lines


class ReadsInShop(Planner):
    """Leaves a remark out where a shop's words are read, as reading does where the shop has what stands beside it."""

    def task(self, question: Question, *given: Any, **named: Any) -> PlanTask:
        text = question.text.removesuffix(", my sister saw it") if current.lexicon() else question.text
        return super().task(Question.parse(text), *given, **named)


def test_a_question_is_drafted_once_where_a_shop_reads_it_alike_and_again_where_it_does_not(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    assert learn(write_lines(tmp_path / "products.jsonl", catalogue()), tmp_path / "mine").returncode == 0
    lexicon = ShopFolder.load(tmp_path / "mine").lexicon
    drafted: list[str] = []

    async def no_draft(_: object, task: PlanTask) -> None:
        drafted.append(task.prompt.strip(" |"))

    monkeypatch.setattr(planning, "_draft", no_draft)
    monkeypatch.setattr(planning, "Planner", ReadsInShop)
    monkeypatch.setattr(planning, "model_source", lambda _: fake_source())
    questions = [Question.parse("red shoes"), Question.parse("glorp, my sister saw it")]
    made = planning.plans_by_model(questions, SHIPPED_MODEL, (None, lexicon))

    assert drafted == ["red shoes", "glorp, my sister saw it", "glorp"]
    assert [len(plans) for plans in made.plans] == [2, 2]
    assert made.by_reader == 2
