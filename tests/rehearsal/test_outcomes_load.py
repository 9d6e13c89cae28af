"""The measurement of plans beside events finds every event that was answered for, or says how many it does not."""

import asyncio
from pathlib import Path

import pytest

from rehearsal.outcomes import EVENTS_A_PLAN, measure
from tests.faults.under_load import fake_server

pytestmark = pytest.mark.slow  # a server, and windows of a second


def test_every_second_window_has_ten_events_a_plan_and_none_is_lost(tmp_path: Path) -> None:
    with fake_server(PEAKPLAN_OUTCOMES_DIR=tmp_path, PEAKPLAN_CACHE_ENTRIES=0, FAKE_SECONDS=0.05) as server:
        found = asyncio.run(measure(server.url, tmp_path / "events.jsonl", windows=4, seconds=1.0))
    assert found["plans_alone"]["requests"] > 0
    assert found["plans_beside_events"]["requests"] > 0
    assert found["events_a_second"] == pytest.approx(EVENTS_A_PLAN * found["plans_a_second"], abs=1)
    kept = (tmp_path / "events.jsonl").read_text(encoding="utf-8").count("\n")
    assert kept == found["events"]["requests"] - found["events"]["not_answered"] > 0
    assert (found["answered_for_and_lost"], found["kept_twice"]) == (0, 0)
