"""A process that is killed loses no event that it answered for, and the next one brings it to PostgreSQL."""

import json
from pathlib import Path

import httpx
import pytest

from tests.faults.under_load import MODULE, fake_server
from tests.postgresql_server import postgresql
from tests.processes import eventually
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
            for number in range(40):
                event = {"action_name": "click", "query_id": query_id, "event_id": f"event-{number:02}"}
                assert client.post("/outcomes", json=event).status_code == 202
                answered.append(event["event_id"])
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
