"""The measurement of plans beside events finds what is taken from plans, and every event that was answered for."""

import asyncio
import json
from itertools import count
from pathlib import Path
from random import Random

import pytest
from peakplan_client.events import LINGER_MS, MOST_BYTES, MOST_OF_A_REQUEST

from rehearsal.load.client import Sample
from rehearsal.load.sink import sink
from rehearsal.outcomes import (
    ELSEWHERE,
    EVENTS_A_PLAN,
    FIGURE,
    HERE,
    LISTS,
    ONE_BY_ONE,
    SENDERS,
    WAYS,
    difference,
    events_of,
    lists_of,
    measure,
)
from rehearsal.tools.outcomes_table import render_outcomes
from tests.faults.under_load import fake_server


@pytest.mark.slow  # a server, and windows of a second
def test_windows_of_a_block_differ_in_events_alone_and_none_is_lost(tmp_path: Path) -> None:
    with (
        fake_server(PEAKPLAN_OUTCOMES_DIR=tmp_path, PEAKPLAN_CACHE_ENTRIES=0, FAKE_SECONDS=0.05) as server,
        sink() as elsewhere,
    ):
        kept = tmp_path / "events.jsonl"
        found = asyncio.run(measure(server.url, server.process.pid, elsewhere, kept, blocks=3, seconds=1.0))
    assert found["windows"] == 15
    plans = [found["plans_alone"], *(found[way][where] for way in WAYS for where in (ELSEWHERE, HERE))]
    assert len({each["requests"] for each in plans}) == 1, "every window of a block has the same questions"
    assert found["plans_alone"]["requests"] > 0
    assert found["events_a_second"] == pytest.approx(EVENTS_A_PLAN * found["plans_a_second"], abs=1)
    lists, alone = found[LISTS], found[ONE_BY_ONE]
    assert lists["events"] == alone["events"] == alone["requests"]["requests"] > lists["requests"]["requests"]
    assert lists["requests"]["not_answered"] == alone["requests"]["not_answered"] == 0
    assert kept.read_text(encoding="utf-8").count("\n") == lists["events"] + alone["events"]
    assert (found["answered_for_and_lost"], found["kept_twice"]) == (0, 0)
    assert alone["processor_ms_an_event"] > 0
    told = render_outcomes({**json.loads(FIGURE.read_text(encoding="utf-8")), **found})
    assert "in lists, that another server gets" in told
    assert "each a request of its own, beside the same elsewhere" in told


def test_events_go_in_the_lists_in_which_senders_would_send_them() -> None:
    at = [place * 0.001 for place in range(1000)] + [5.0]
    events = events_of(["0" * 32], at, count())
    lists = lists_of(events)
    assert [each.at for each in lists] == sorted(each.at for each in lists)
    sent = [event["event_id"] for each in lists for event in json.loads(each.body)]
    assert sorted(sent) == sorted(json.loads(event.body)["event_id"] for event in events)
    due = {json.loads(event.body)["event_id"]: event.at for event in events}
    for each in lists:
        inside = [due[event["event_id"]] for event in json.loads(each.body)]
        assert inside == sorted(inside)
        assert len(each.body) <= MOST_BYTES
        assert len(inside) == MOST_OF_A_REQUEST or each.at in (inside[0] + LINGER_MS / 1000, inside[-1])
        assert each.at <= inside[0] + LINGER_MS / 1000
    assert len(lists) == SENDERS * 4 + 1


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
