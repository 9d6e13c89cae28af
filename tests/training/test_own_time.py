"""How long a fine-tuning is said to take: by its work, by the cores, by the pace of this machine."""

from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace

import pytest

from tests.training.own_rows import made
from training import own_time
from training.own_data import plan_seconds
from training.own_time import PLAN_SECONDS, RECORDED_CORES, Work, told
from training.settings import HeadSettings, TrainingSettings

# What `peakplan finetune` does with 300 rows, unless options say otherwise.
WORK = Work(rows=270, held_out=30, epochs=3, rehearsal=1.0, questions=4000, measured=300)


def test_three_hundred_rows_take_less_than_twenty_minutes() -> None:
    assert 5 < WORK.minutes(2) < 20
    assert WORK.rehearsed == 1000


@pytest.mark.parametrize(
    "more", [{"rows": 3000}, {"epochs": 6}, {"rehearsal": 4.0}, {"questions": 8000}, {"measured": 600}]
)
def test_more_work_takes_longer(more: dict[str, float]) -> None:
    assert replace(WORK, **more).minutes(2) > WORK.minutes(2)


def test_what_cores_share_takes_half_as_long_on_twice_as_many() -> None:
    both = WORK.minutes(2) - WORK.minutes(4)
    assert both == pytest.approx(2 * (WORK.minutes(4) - WORK.minutes(8)))
    assert WORK.minutes(2) / 2 < WORK.minutes(4) < WORK.minutes(2), "the tree is timed on one core alone"


def test_a_slow_or_busy_machine_is_known_by_its_plans(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(own_time, "cores", lambda: 2)
    assert WORK.minutes(2, 3 * PLAN_SECONDS) == pytest.approx(3 * WORK.minutes(2))
    assert told(WORK) == (
        f"time: some {WORK.minutes(2):.0f} minutes on 2 cores like those that made the shipped model, "
        "with nothing else to do"
    )
    assert told(WORK, 10 * PLAN_SECONDS).startswith(f"time: some {10 * WORK.minutes(2):.0f} minutes on 2 cores of this")


def test_a_plan_s_time_is_the_mean_of_some(monkeypatch: pytest.MonkeyPatch) -> None:
    clock, asked = [0.0], []

    def greedy(question: object) -> None:
        asked.append(question)
        clock[0] += 0.2 if len(asked) > 1 else 9.0

    monkeypatch.setattr("time.monotonic", lambda: clock[0])
    rows = [made({"question": f"lamp {number}", "intent": "find_product"}) for number in range(40)]
    assert plan_seconds(rows, SimpleNamespace(greedy=greedy)) == pytest.approx(0.2)  # type: ignore[arg-type]
    assert len(asked) == 13


def test_the_recorded_minutes_are_of_the_recipe_s_own_numbers(tmp_path: Path) -> None:
    recipe = TrainingSettings(data=tmp_path, cache=tmp_path, work=tmp_path, output=tmp_path)
    assert (HeadSettings().questions, recipe.processes) == (own_time.RECORDED_QUESTIONS, RECORDED_CORES)
