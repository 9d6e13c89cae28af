"""Tests of what is learnt about the worth of questions."""

import hashlib
import json
import random
import shutil
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
from scipy.stats import binom
from sklearn.ensemble import ExtraTreesClassifier

from service.planner.completion import plan_from_draft
from service.planner.fallback.reading.conversation import Conversation
from service.planner.fallback.rules.draft import draft_by_rule
from service.planner.question import Question
from service.planner.vocabulary import shipped_vocabulary
from service.planner.worth.features import NAMES
from service.planner.worth.scorer import FILE_NAME, Scorer
from service.settings.choices import SHIPPED_MODEL
from training import worth as worth_module
from training.data.examples import Example
from training.worth import fit, is_right, recalibrate, turns
from training.worth_bound import FEWEST, Compared, bounded, calibrated, is_bounded, write
from training.worth_network import LEAST_IN_A_LEAF, NUMBERS_TRIED, SEED, TREES


def compared(count: int, seed: int = 0) -> list[Compared]:
    """Draw questions that the model alone gets right the more often, the larger their first two numbers."""
    rng = random.Random(seed)
    found = []
    for _ in range(count):
        numbers = tuple(rng.randrange(10) for _ in NAMES)
        lost = rng.random() < 0.9 * (numbers[0] > 6) * (numbers[1] > 3)
        found.append(Compared(numbers, by_model=True, by_rule=not lost, differs=lost or rng.random() < 0.1))
    return found


def test_the_network_that_serves_answers_as_the_forest_that_it_learnt_from() -> None:
    rows, others = compared(1500), [one.numbers for one in compared(3000, seed=3)]
    table = np.array([one.numbers for one in rows], dtype=np.float64)
    forest = ExtraTreesClassifier(
        TREES, min_samples_leaf=LEAST_IN_A_LEAF, max_features=NUMBERS_TRIED, random_state=SEED
    ).fit(table, [one.lost for one in rows])
    unseen = compared(800, seed=9)
    expected = forest.predict_proba(np.array([one.numbers for one in unseen], dtype=np.float64))[:, 1]
    scorer = Scorer(fit(rows, others=others))
    answered = np.array([scorer.of_numbers(one.numbers) for one in unseen])
    assert np.corrcoef(answered, expected)[0, 1] > 0.8
    assert abs(answered - expected).mean() < 0.06


def test_a_question_that_the_model_learnt_from_counts_less_than_a_case() -> None:
    cases, own = compared(300), [replace(one, by_rule=True) for one in compared(600, seed=4)]
    often = [one.numbers for one in compared(300, seed=5) if one.lost]

    def worth(**known: Sequence[Compared]) -> float:
        scorer = Scorer(fit(known["cases"], known.get("own", ())))
        return float(np.mean([scorer.of_numbers(numbers) for numbers in often]))

    assert worth(cases=[*cases, *own]) < worth(cases=cases, own=own)


def test_the_same_rows_give_the_same_bytes(tmp_path: Path) -> None:
    for name in ("one", "other"):
        (tmp_path / name).mkdir()
        write(bounded(fit(compared(400)), compared(300, seed=1)), tmp_path / name)
    assert (tmp_path / "one" / FILE_NAME).read_bytes() == (tmp_path / "other" / FILE_NAME).read_bytes()
    assert (tmp_path / "one" / FILE_NAME).stat().st_size < 32_000


def test_the_folders_record_of_parts_follows(tmp_path: Path) -> None:
    record = {"seed": 7, "parts": {"adapter": "a", FILE_NAME: "the one before"}}
    (tmp_path / "training.json").write_text(json.dumps(record), encoding="utf-8")
    write(fit(compared(50)), tmp_path)
    parts = json.loads((tmp_path / "training.json").read_text(encoding="utf-8"))["parts"]
    assert parts == {"adapter": "a", FILE_NAME: hashlib.sha256((tmp_path / FILE_NAME).read_bytes()).hexdigest()}


def test_the_bound_holds_for_questions_that_nobody_saw() -> None:
    worth = fit(compared(3000))
    broken = 0
    for seed in range(1, 41):
        bound = bounded(worth, compared(400, seed), lost=0.03, risk=0.1).bound
        scorer = Scorer(worth.model_copy(update={"bound": bound}))
        unseen = compared(4000, seed + 1000)
        lost = [one.lost and scorer.is_for_rules(scorer.of_numbers(one.numbers)) for one in unseen]
        broken += sum(lost) / len(lost) > 0.03
        assert bound.by_rule > 0.4  # most questions lose nothing here
    assert broken <= binom.ppf(0.999, 40, 0.1)


def test_questions_after_others_are_shifted_by_themselves_and_the_bound_by_the_rest() -> None:
    history = NAMES.index("history")
    rows = [
        replace(one, numbers=tuple(int(at // 4 % 2) if n == history else v for n, v in enumerate(one.numbers)))
        for at, one in enumerate(compared(6800, seed=5))
    ]
    rng = random.Random(0)
    harder = [replace(one, by_rule=one.by_rule and (not one.numbers[history] or rng.random() < 0.7)) for one in rows]
    learnt = fit(rows[:2000])
    same, shifted = calibrated(learnt, rows[2000:]), calibrated(learnt, harder[2000:])
    assert abs(same.shift[0]) < 0.7
    assert abs(same.shift[1]) < 0.7
    assert shifted.shift[0] == same.shift[0]
    assert shifted.shift[1] > same.shift[1] + 1
    assert shifted.bound.questions == 3600
    for is_later in (0, 1):
        group = [one for one in harder[2000:] if one.numbers[history] == is_later]
        expected = sum(Scorer(shifted).of_numbers(one.numbers) for one in group)
        assert expected == pytest.approx(sum(one.lost for one in group), rel=0.2)


@pytest.mark.parametrize(("lost", "won"), [(0.02, 0.0), (0.05, 0.03), (0.1, 0.08)])
def test_a_bet_is_seldom_won_where_more_is_lost(lost: float, won: float) -> None:
    """At a mean loss of exactly what is promised, or more, the test may hold for one draw in ten."""
    rng = random.Random(11)
    draws = [rng.choices([1, -1, 0], [lost, won, 1 - lost - won], k=1000) for _ in range(200)]
    assert sum(is_bounded(draw, 0.02, 0.1) for draw in draws) <= binom.ppf(0.999, 200, 0.1)


def test_what_rules_alone_plan_well_makes_up_for_what_they_lose() -> None:
    """Losses of 1.5% that as many gains balance are within a bound of 1%; the same losses alone are not."""
    losses = [1] * 30 + [-1] * 30 + [0] * 1940
    random.Random(1).shuffle(losses)
    assert is_bounded(losses, 0.01, 0.1)
    assert not is_bounded([max(loss, 0) for loss in losses], 0.01, 0.1)
    assert not is_bounded(losses[:100], 0.01, 0.1)  # which are too few to tell


def test_where_too_few_are_asked_to_tell_rules_plan_nothing() -> None:
    bound = bounded(fit(compared(600)), compared(20, seed=1), lost=0.02, risk=0.1).bound
    assert (bound.worth, bound.by_rule) == (0.0, 0.0)


def test_a_model_that_is_never_better_is_worth_the_same_for_every_question() -> None:
    rows = [replace(one, by_rule=True) for one in compared(300)]
    scorer = Scorer(bounded(fit(rows), rows, lost=0.02, risk=0.1))
    (worth,) = {scorer.of_numbers(one.numbers) for one in rows}
    assert worth == pytest.approx(0.5 / 301, abs=1e-6)


def test_a_plan_is_right_where_all_is_that_a_shop_would_notice() -> None:
    first = [one for one in turns("dev") if not one.history and any(span.refused for span in one.draft.spans)]
    example = first[0]
    plan = plan_from_draft(example.draft, example.question(), shipped_vocabulary())
    assert is_right(plan, example)
    assert is_right(plan.model_copy(update={"vertical": "software"}), example)
    assert not is_right(plan.model_copy(update={"exclude": {}}), example)
    assert not is_right(plan.model_copy(update={"sort": "newest"}), example)
    assert not is_right(plan.model_copy(update={"queries": ["something else"]}), example)
    assert not is_right(plan.model_copy(update={"intent": "small_talk"}), example)


def shop_rows(count: int) -> list[Example]:
    """Questions whose intent is known, as rows of a shop's own have it."""
    draft = draft_by_rule(Conversation(Question.parse("red shoes")), shipped_vocabulary())
    return [Example(f"red shoes size {number}", draft, origin="own") for number in range(count)]


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    """A model folder whose network holds that every second question matters, and whose bound lets rules plan none."""
    shutil.copyfile(SHIPPED_MODEL / "vocabulary.json", tmp_path / "vocabulary.json")
    write(fit(compared(300)), tmp_path)
    return tmp_path


@pytest.mark.parametrize("lost", [0, 120])
def test_a_shops_held_out_rows_bound_what_rules_may_plan(
    folder: Path, monkeypatch: pytest.MonkeyPatch, lost: int
) -> None:
    rows = shop_rows(600)
    before = Scorer.load(folder)
    assert before is not None
    by_worth = sorted(compared(600, seed=1), key=lambda one: before.of_numbers(one.numbers))
    outcomes = [replace(one, by_rule=index < 600 - lost) for index, one in enumerate(by_worth)]
    monkeypatch.setattr(worth_module, "model_texts", lambda *_: {})
    monkeypatch.setattr(worth_module, "compare", lambda *_: outcomes)
    said = recalibrate(folder, rows, folder, folder, 1)
    after = Scorer.load(folder)
    assert after is not None
    assert after.worth.network == before.worth.network
    assert after.worth.bound.questions == 450
    assert 0.9 - lost / 600 < after.worth.bound.by_rule <= 1 - (lost - 6) / 600
    assert f"{after.worth.bound.by_rule:.0%} of questions like your 600" in said


def test_too_few_rows_and_rows_that_tell_nothing_keep_the_bound(folder: Path) -> None:
    before = (folder / FILE_NAME).read_bytes()
    silent = [replace(row, knows_intent=False, knows_facets=False) for row in shop_rows(FEWEST)]
    for rows, told in ((shop_rows(FEWEST - 1), FEWEST - 1), (silent, 0)):
        said = recalibrate(folder, rows, folder, folder, 1)
        assert said.startswith(f"{told} held-out rows are too few to say")
    assert (folder / FILE_NAME).read_bytes() == before
    assert f"{FEWEST} held-out rows" in Path("docs/own-data.md").read_text(encoding="utf-8")
