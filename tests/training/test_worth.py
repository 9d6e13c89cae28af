"""Tests of what is learnt about the worth of questions."""

import random
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
from scipy.stats import binom
from sklearn.ensemble import GradientBoostingClassifier

from service.planner.making.plans import plan_by_rule
from service.planner.plan import Plan
from service.planner.question import Question
from service.planner.reading.conversation import Conversation
from service.planner.vocabulary import shipped_vocabulary
from service.planner.worth.features import NAMES
from service.planner.worth.scorer import FILE_NAME, Scorer
from training.data import behaviour_examples
from training.worth import RATE, ROUNDS, SEED, Compared, bounded, fit, is_right, write


def compared(count: int, seed: int = 0) -> list[Compared]:
    """Draw questions that the model alone gets right the more often, the larger their first two numbers."""
    rng = random.Random(seed)
    found = []
    for _ in range(count):
        numbers = tuple(rng.randrange(10) for _ in NAMES)
        lost = rng.random() < 0.9 * (numbers[0] > 6) * (numbers[1] > 3)
        found.append(Compared(numbers, by_model=True, by_rule=not lost, differs=lost or rng.random() < 0.1))
    return found


def test_the_numbers_that_serve_are_those_of_scikit_learn() -> None:
    rows = compared(400)
    table = np.array([one.numbers for one in rows], dtype=np.float32)
    trees = GradientBoostingClassifier(
        n_estimators=ROUNDS, max_depth=3, learning_rate=RATE, subsample=0.7, min_samples_leaf=10, random_state=SEED
    ).fit(table, [one.lost for one in rows])
    expected = trees.predict_proba(table)[:, 1]
    scorer = Scorer(fit(rows))
    assert [scorer.of_numbers(one.numbers) for one in rows] == pytest.approx(expected.tolist(), abs=2e-3)


def test_the_same_rows_give_the_same_bytes(tmp_path: Path) -> None:
    for name in ("one", "other"):
        (tmp_path / name).mkdir()
        write(bounded(fit(compared(400)), compared(300, seed=1)), tmp_path / name)
    assert (tmp_path / "one" / FILE_NAME).read_bytes() == (tmp_path / "other" / FILE_NAME).read_bytes()
    assert (tmp_path / "one" / FILE_NAME).stat().st_size < 16_000


def test_the_bound_holds_for_questions_that_nobody_saw() -> None:
    worth = fit(compared(600))
    broken = 0
    for seed in range(1, 41):
        bound = bounded(worth, compared(400, seed), lost=0.03, risk=0.1).bound
        scorer = Scorer(worth.model_copy(update={"bound": bound}))
        unseen = compared(4000, seed + 1000)
        lost = [one.lost and scorer.is_for_rules(scorer.of_numbers(one.numbers)) for one in unseen]
        broken += sum(lost) / len(lost) > 0.03
        assert bound.by_rule > 0.4  # most questions lose nothing here
    assert broken <= binom.ppf(0.999, 40, 0.1)


def test_where_too_few_are_asked_to_tell_rules_plan_nothing() -> None:
    bound = bounded(fit(compared(600)), compared(20, seed=1), lost=0.02, risk=0.1).bound
    assert (bound.worth, bound.by_rule) == (0.0, 0.0)


def test_a_model_that_is_never_better_is_worth_the_same_for_every_question() -> None:
    rows = [replace(one, by_rule=True) for one in compared(300)]
    scorer = Scorer(bounded(fit(rows), rows, lost=0.02, risk=0.1))
    (worth,) = {scorer.of_numbers(one.numbers) for one in rows}
    assert worth == pytest.approx(0.5 / 301, abs=1e-6)


def by_rule(text: str) -> Plan:
    return plan_by_rule(Conversation(Question.parse(text)), shipped_vocabulary())


def test_a_plan_is_right_where_all_is_that_a_shop_would_notice() -> None:
    examples = (one for one in behaviour_examples.examples("dev") if one.expected is not None and not one.history)
    refusing = (one for one in examples if one.expected and one.expected["exclude"] and not one.expected["parts"])
    example = next(one for one in refusing if is_right(by_rule(one.query), one))
    plan = by_rule(example.query)
    assert is_right(plan.model_copy(update={"vertical": "software"}), example)
    assert not is_right(plan.model_copy(update={"exclude": {}}), example)
    assert not is_right(plan.model_copy(update={"sort": "newest"}), example)
    assert not is_right(plan.model_copy(update={"queries": ["something else"]}), example)
    assert not is_right(plan.model_copy(update={"intent": "small_talk"}), example)
