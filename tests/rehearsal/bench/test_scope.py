"""Tests of the questions of scope, and of what is counted of their plans."""

from pathlib import Path

import pytest

from rehearsal.bench.scope import ScopeQuestion, read_scope_questions, scope_scores
from service.planner.plan import Plan
from service.planner.question import Question
from service.planner.vocabulary import shipped_vocabulary


def _plan(intent: str) -> Plan:
    return Plan(mode="keyword", intent=intent)


def test_the_questions_name_intents_of_the_vocabulary() -> None:
    questions = read_scope_questions()
    assert {asked.group for asked in questions} == {"shop", "out", "support", "chat"}
    assert frozenset().union(*(asked.intents for asked in questions)) <= frozenset(shipped_vocabulary().intents)
    assert len({asked.question.text for asked in questions}) == len(questions)


def test_any_fair_intent_is_right_and_shoppers_turned_away_are_counted() -> None:
    fair = frozenset(("find_product", "advise"))
    shop = [ScopeQuestion("shop", fair, Question.parse(text)) for text in ("one", "two", "three", "four")]
    out = ScopeQuestion("out", frozenset(("out_of_scope",)), Question.parse("five"))
    plans = [_plan("find_product"), _plan("advise"), _plan("out_of_scope"), None, _plan("find_product")]

    assert scope_scores([*shop, out], plans) == {"questions": 5, "shop": 0.5, "out": 0.0, "shop_out_of_scope": 0.25}


def test_a_line_without_three_columns_is_named(tmp_path: Path) -> None:
    (tmp_path / "scope.tsv").write_text("out\tout_of_scope\tyo\nout\tyo\n", encoding="utf-8")
    with pytest.raises(ValueError, match=r"scope\.tsv:2: 2 columns"):
        read_scope_questions(tmp_path / "scope.tsv")
