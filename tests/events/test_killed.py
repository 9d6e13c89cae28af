"""A process that is killed loses no event that it answered for, and the next one brings it to PostgreSQL."""

import json
from pathlib import Path

import httpx
import pytest
from peakplan_client import EventSender
from peakplan_client.events import MOST_OF_A_REQUEST

from tests.faults.under_load import MODULE, fake_server
from tests.postgresql_server import postgresql
from tests.processes import PATIENCE, eventually
from tests.server_process import ServerProcess

pytestmark = pytest.mark.slow


def test_events_that_were_answered_for_survive_a_kill_and_reach_the_database(tmp_path: Path) -> None:
    import psycopg

    settings = {"PEAKPLAN_OUTCOMES_DIR": tmp_path, "PEAKPLAN_OUTCOMES_KEY": "shared", "FAKE_SECONDS": 0}
    kept = {"PEAKPLAN_REPLICAS": 1, "PEAKPLAN_OVERSUBSCRIBE": 1} | settings
    server = ServerProcess(MODULE, **kept, PEAKPLAN_OUTCOMES_POSTGRES="host=/nowhere dbname=x").wait_until_ready()
    answered: list[str] = []
    try:
        with httpx.Client(base_url=server.url) as client:
            query_id = client.post("/plan", json={"query": "nike running shoes"}).json()["request_id"]
            for first in range(0, 80, 8):
                events = [
                    {"action_name": "click", "query_id": query_id, "event_id": f"event-{number:02}"}
                    for number in range(first, first + 8)
                ]
                for sent in (*events[:3], events[3:]):  # alone, and in a list
                    assert client.post("/outcomes", json=sent).status_code == 202
                answered += [event["event_id"] for event in events]
            server.process.kill()
    finally:
        server.process.kill()
        server.wait()
    lines = (tmp_path / "events.jsonl").read_text("utf-8").splitlines()
    assert [json.loads(line)["event_id"] for line in lines] == answered
    with (
        postgresql() as url,
        fake_server(**settings, PEAKPLAN_OUTCOMES_POSTGRES=url) as again,
        psycopg.connect(url, autocommit=True) as database,
    ):

        def found() -> list[str]:
            exists = database.execute("SELECT to_regclass('peakplan_events')").fetchone()
            if not exists or exists[0] is None:
                return []
            return [row[0] for row in database.execute("SELECT event_id FROM peakplan_events ORDER BY event_id")]

        eventually(lambda: found() == answered, f"the database never got what was kept: {again.lines}")


def test_a_shop_s_sender_loses_nothing_through_a_kill_and_sends_at_most_one_list_twice(tmp_path: Path) -> None:
    hosts = [tmp_path / "first", tmp_path / "second"]
    common = {"PEAKPLAN_OUTCOMES_KEY": "shared", "PEAKPLAN_CACHE_ENTRIES": 0, "FAKE_SECONDS": 0}
    with (
        fake_server(**common, PEAKPLAN_OUTCOMES_DIR=hosts[0]) as first,
        fake_server(**common, PEAKPLAN_OUTCOMES_DIR=hosts[1]) as second,
    ):
        ids = [first.post("/plan", {"query": f"shoes {number}"}).json()["request_id"] for number in range(8)]
        sender = EventSender([first.url, second.url], linger_ms=5)
        put: list[str] = []

        def put_more(count: int) -> None:
            for _ in range(count):
                put.append(f"event-{len(put):03}")
                assert sender.put({"action_name": "view", "query_id": ids[len(put) % 8], "event_id": put[-1]})

        put_more(3 * MOST_OF_A_REQUEST)
        eventually(lambda: sender.sent > 0, "nothing arrives at the first host")
        put_more(MOST_OF_A_REQUEST)
        first.process.kill()
        put_more(2 * MOST_OF_A_REQUEST)
        sender.close(timeout=PATIENCE)
        first.wait()
    kept = [
        json.loads(line)["event_id"]
        for host in hosts
        for line in (host / "events.jsonl").read_text("utf-8").splitlines()
    ]
    assert sorted(set(kept)) == put
    assert list(dict.fromkeys(kept)) == put, "in their order"
    assert len(kept) - len(put) <= MOST_OF_A_REQUEST
    assert (sender.sent, sender.dropped, sender.refused) == (len(put), 0, 0)
