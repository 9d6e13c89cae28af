"""The measurement of plans beside events finds what is taken from plans, and every event that was answered for."""

import asyncio
import json
from pathlib import Path
from random import Random

import pytest

from benchmarks.outcomes_table import render_outcomes
from rehearsal.load.client import Sample
from rehearsal.load.sink import sink
from rehearsal.outcomes import EVENTS_A_PLAN, FIGURE, WINDOWS, difference, measure
from tests.faults.under_load import fake_server


@pytest.mark.slow  # a server, and windows of a second
def test_windows_of_a_block_differ_in_events_alone_and_none_is_lost(tmp_path: Path) -> None:
    with (
        fake_server(PEAKPLAN_OUTCOMES_DIR=tmp_path, PEAKPLAN_CACHE_ENTRIES=0, FAKE_SECONDS=0.05) as server,
        sink() as elsewhere,
    ):
        kept = tmp_path / "events.jsonl"
        found = asyncio.run(measure(server.url, server.process.pid, elsewhere, kept, blocks=3, seconds=1.0))
    assert found["windows"] == 9
    assert len({found[name]["requests"] for name in WINDOWS}) == 1, "every window of a block has the same questions"
    assert found["plans_alone"]["requests"] > 0
    assert found["events_a_second"] == pytest.approx(EVENTS_A_PLAN * found["plans_a_second"], abs=1)
    assert kept.read_text(encoding="utf-8").count("\n") == found["events"]["requests"] - found["events"]["not_answered"]
    assert (found["answered_for_and_lost"], found["kept_twice"]) == (0, 0)
    assert found["processor_ms_an_event"] > 0
    told = render_outcomes({**json.loads(FIGURE.read_text(encoding="utf-8")), **found})
    assert "that another server gets" in told
    assert "at p99: beside events" in told


def test_what_is_taken_from_plans_is_found_with_an_interval_and_nothing_where_nothing_is() -> None:
    def blocks(seed: int, more: float) -> list[list[Sample]]:
        times = Random(seed)
        return [
            [Sample(at=0, sent=0, ended=times.expovariate(20) + more, deadline=0.3) for _ in range(150)]
            for _ in range(12)
        ]

    taken = difference(blocks(1, 0.02), blocks(2, 0.0))
    for part in ("p50", "p99"):
        middle, low, high = taken[part]
        assert low <= middle <= high
        assert low <= 20 <= high
    assert taken["p50"][1] > 0, "more is taken than chance"
    assert difference(blocks(1, 0.0), blocks(1, 0.0))["p99"] == [0, 0, 0]
    nothing = difference(blocks(1, 0.0), blocks(2, 0.0))
    assert all(low <= 0 <= high for _, low, high in nothing.values())
