"""Tests of the bound on what the reader may plan by choice."""

import hashlib
import json
import random
import shutil
from dataclasses import replace
from pathlib import Path

import pytest
from scipy.stats import binom

from service.planner.completion import plan_from_draft
from service.planner.plan_text import PlanDraft
from service.planner.reader.reading import CARD, FILES, Choices, Reader
from service.planner.vocabulary import shipped_vocabulary
from service.settings.choices import SHIPPED_MODEL
from training import worth as worth_module
from training.data import conversations
from training.data.examples import Example
from training.worth import FEWEST, Compared, bounded, is_bounded, is_right, rebound, write

CHOICES = Reader.load(SHIPPED_MODEL).choices.model_copy(update={"bound": None, "differs": ()})


def compared(count: int, seed: int = 0) -> list[Compared]:
    """Draw questions whose plans by the reader are the more often wrong, the more the model's are worth."""
    rng = random.Random(seed)
    found = []
    for _ in range(count):
        worth = rng.random()
        lost = rng.random() < 0.9 * (worth > 0.6)
        found.append(Compared(worth, by_model=True, by_reader=not lost, differs=lost or rng.random() < 0.1))
    return found


def test_the_folders_record_of_parts_follows(tmp_path: Path) -> None:
    record = {"seed": 7, "parts": {"adapter": "a", CARD: "the one before"}}
    (tmp_path / "training.json").write_text(json.dumps(record), encoding="utf-8")
    write(bounded(CHOICES, compared(300)), tmp_path)
    parts = json.loads((tmp_path / "training.json").read_text(encoding="utf-8"))["parts"]
    assert parts == {"adapter": "a", CARD: hashlib.sha256((tmp_path / CARD).read_bytes()).hexdigest()}


def test_the_bound_holds_for_questions_that_nobody_saw() -> None:
    broken = 0
    for seed in range(1, 41):
        bound = bounded(CHOICES, compared(400, seed), lost=0.03, risk=0.1).bound
        assert bound is not None
        unseen = compared(4000, seed + 1000)
        broken += sum(one.loss for one in unseen if one.worth < bound.worth) / len(unseen) > 0.03
        assert bound.by_reader > 0.4  # most questions lose nothing here
    assert broken <= binom.ppf(0.999, 40, 0.1)


@pytest.mark.parametrize(("lost", "won"), [(0.02, 0.0), (0.05, 0.03), (0.1, 0.08)])
def test_a_bet_is_seldom_won_where_more_is_lost(lost: float, won: float) -> None:
    """At a mean loss of exactly what is promised, or more, the test may hold for one draw in ten."""
    rng = random.Random(11)
    draws = [rng.choices([1, -1, 0], [lost, won, 1 - lost - won], k=1000) for _ in range(200)]
    assert sum(is_bounded(draw, 0.02, 0.1) for draw in draws) <= binom.ppf(0.999, 200, 0.1)


def test_what_the_reader_alone_plans_well_makes_up_for_what_it_loses() -> None:
    """Losses of 1.5% that as many gains balance are within a bound of 1%; the same losses alone are not."""
    losses = [1] * 30 + [-1] * 30 + [0] * 1940
    random.Random(1).shuffle(losses)
    assert is_bounded(losses, 0.01, 0.1)
    assert not is_bounded([max(loss, 0) for loss in losses], 0.01, 0.1)
    assert not is_bounded(losses[:100], 0.01, 0.1)  # which are too few to tell


def test_where_too_few_are_asked_to_tell_the_reader_plans_nothing() -> None:
    bound = bounded(CHOICES, compared(20, seed=1), lost=0.02, risk=0.1).bound
    assert bound is not None
    assert (bound.worth, bound.by_reader) == (0.0, 0.0)


def test_a_model_that_is_never_worth_its_time_keeps_the_questions_that_no_test_allowed() -> None:
    """A young model's reader thinks alike of all questions, by less than the card's digits tell apart."""
    found = [Compared(0.2000006 + 1e-9 * n, by_model=False, by_reader=False, differs=True) for n in range(400)]
    bound = bounded(CHOICES, found).bound
    assert bound is not None
    assert (bound.by_reader, bound.work) == (0.0, 1.0)


def test_how_often_texts_differ_is_known_for_every_worth() -> None:
    choices = bounded(CHOICES, compared(1000))
    assert choices.differs[-1][0] == 1.0
    shares = [share for _, share in choices.differs]
    assert max(shares[:5]) < 0.3 < min(shares[7:])


def test_a_plan_is_right_where_all_is_that_a_shop_would_notice() -> None:
    turns = (turn for dialogue in conversations.examples("dev") for turn in dialogue)
    example = next(one for one in turns if not one.history and any(span.refused for span in one.draft.spans))
    plan = plan_from_draft(example.draft, example.question(), shipped_vocabulary())
    assert is_right(plan, example)
    assert is_right(plan.model_copy(update={"vertical": "software"}), example)
    assert not is_right(plan.model_copy(update={"exclude": {}}), example)
    assert not is_right(plan.model_copy(update={"sort": "newest"}), example)
    assert not is_right(plan.model_copy(update={"queries": ["something else"]}), example)
    assert not is_right(plan.model_copy(update={"intent": "small_talk"}), example)


def shop_rows(count: int) -> list[Example]:
    """Questions whose intent is known, as rows of a shop's own have it."""
    draft = PlanDraft("keyword", "find_product", ["catalog"])
    return [Example(f"red shoes size {number}", draft, origin="own") for number in range(count)]


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    """A model folder whose bound lets the reader plan nothing."""
    for name in ("vocabulary.json", *FILES):
        shutil.copyfile(SHIPPED_MODEL / name, tmp_path / name)
    write(bounded(CHOICES, compared(20)), tmp_path)
    return tmp_path


@pytest.mark.parametrize("lost", [0, 120])
def test_a_shops_held_out_rows_bound_what_the_reader_may_plan(
    folder: Path, monkeypatch: pytest.MonkeyPatch, lost: int
) -> None:
    by_worth = sorted(compared(600, seed=1), key=lambda one: one.worth)
    outcomes = [replace(one, by_reader=index < 600 - lost) for index, one in enumerate(by_worth)]
    monkeypatch.setattr(worth_module, "compared", lambda *_: outcomes)
    said = rebound(folder, shop_rows(600), folder, folder, 1)
    bound = Choices.model_validate_json((folder / CARD).read_text(encoding="utf-8")).bound
    assert bound is not None
    assert bound.questions == 600
    assert 0.9 - lost / 600 < bound.by_reader <= 1 - (lost - 6) / 600
    assert f"{bound.by_reader:.0%} of questions like your 600" in said


def test_too_few_rows_and_rows_that_tell_nothing_keep_the_bound(folder: Path) -> None:
    before = (folder / CARD).read_bytes()
    silent = [replace(row, knows_intent=False, knows_facets=False) for row in shop_rows(FEWEST)]
    for rows, told in ((shop_rows(FEWEST - 1), FEWEST - 1), (silent, 0)):
        said = rebound(folder, rows, folder, folder, 1)
        assert said.startswith(f"{told} held-out rows are too few to say")
    assert (folder / CARD).read_bytes() == before
    assert f"{FEWEST} held-out rows" in Path("docs/own-data.md").read_text(encoding="utf-8")
