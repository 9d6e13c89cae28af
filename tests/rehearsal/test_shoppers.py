"""Seeded shoppers behave as their models say, and the report on a real service's outcomes counts what they did."""

import asyncio
import random
from pathlib import Path

import pytest

from rehearsal.shoppers import (
    ARMS,
    EXPERIMENT,
    ClickModel,
    Effects,
    Shopping,
    Visit,
    arm_of,
    planted,
    shop,
    visit,
)
from tests.faults.under_load import fake_server

RIGHT = [False, True, False, True, True, False]
PLAIN = Effects()
SHOPPERS = 40


def visits(model: ClickModel, effects: Effects = PLAIN, first_ms: float = 0.0, number: int = 4000) -> list[Visit]:
    return [visit(RIGHT, first_ms, random.Random(seed), model, effects) for seed in range(number)]


def share(seen: list[Visit], name: str) -> float:
    return sum(bool(getattr(each, name)) for each in seen) / len(seen)


@pytest.mark.parametrize("model", ["cascade", "position"])
def test_the_same_seed_is_the_same_shopper(model: ClickModel) -> None:
    assert visits(model, number=20) == visits(model, number=20)
    assert all(set(each.bought) <= set(each.added) <= set(each.clicked) for each in visits(model))
    assert all(RIGHT[rank] for each in visits(model) for rank in each.added)


def test_a_cascade_ends_and_a_position_does_not() -> None:
    last = len(RIGHT) - 2
    after = {
        model: sum(last in each.clicked for each in visits(model) if 1 in each.clicked)
        for model in ("cascade", "position")
    }  # fmt: skip
    assert after["cascade"] < after["position"] / 2, "a satisfied shopper goes no further down"


def test_patience_falls_with_the_time_to_the_first_answer() -> None:
    left = [sum(each.left_ms is not None for each in visits("cascade", first_ms=ms)) for ms in (0, 300, 3000)]
    assert left == sorted(left)
    assert left[0] == 0
    assert left[2] > 4 * left[1]


@pytest.mark.parametrize("model", ["cascade", "position"])
def test_a_planted_effect_is_there(model: ClickModel) -> None:
    plain = visits(model)
    assert share(visits(model, Effects(buy=1.5)), "bought") > 1.3 * share(plain, "bought")
    assert share(visits(model, Effects(click=0.5)), "clicked") < 0.75 * share(plain, "clicked")
    assert share(visits(model, Effects(delay_ms=2000)), "clicked") < 0.75 * share(plain, "clicked")
    assert share(visits(model, Effects(buy=1.5)), "comes_back") > share(plain, "comes_back")


def test_arms_are_halves_and_effects_are_read() -> None:
    arms = [arm_of(7, shopper) for shopper in range(2000)]
    assert 900 < arms.count(ARMS[0]) < 1100
    assert planted(["buy=1.1", "delay_ms=200"]) == Effects(buy=1.1, delay_ms=200)
    with pytest.raises(ValueError, match="no effect 'price'; there are click, buy, delay_ms"):
        planted(["price=2"])


@pytest.mark.slow
def test_the_report_counts_what_shoppers_did(tmp_path: Path) -> None:
    pytest.importorskip("duckdb", reason="DuckDB is not installed: pip install -e .[value]")
    from peakplan.value.reading import sums
    from peakplan.value.report import report

    how = Shopping(1, "position", Effects(buy=1.5, click=1.2))
    with fake_server(PEAKPLAN_OUTCOMES_DIR=tmp_path, FAKE_SECONDS=0, FAKE_ANSWER="fixed") as server:
        did = asyncio.run(shop(server.url, SHOPPERS, 2, how))
        server.stop()
    assert sum(arm["shoppers"] for arm in did.values()) == SHOPPERS
    assert sum(arm["clicks"] for arm in did.values()) > 0
    told = report(sums(sorted(tmp_path.glob("*.jsonl"))))
    (experiment,) = told["experiments"]
    assert experiment["name"] == EXPERIMENT
    rows = {row["name"]: row for row in told["arms"] if row["name"] != "-"}
    assert len(rows) == 2
    for arm, counts in did.items():
        (row,) = [each for name, each in rows.items() if name.endswith(arm)]
        assert (row["plans_shown"], row["shoppers"]) == (counts["shown"], counts["shoppers"])
        assert row["without_result"] == pytest.approx(counts["empty"] / counts["shown"], abs=1e-4)
