"""The service's files go into OpenSearch's UBI indexes: its names, its dates, each document once, and nobody's name."""

import gzip
import json
import re
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from service.settings.groups import ExperimentSettings, OutcomeSettings
from tests.api.client import talking_to
from tests.api.test_outcomes import OWN_ACTIONS, SHOES, SHOPPER, click, planned, ubi_page_exit

# What OpenSearch's events-mapping.json and queries-mapping.json name at their top.
OF_EVENTS = {"application", "action_name", "client_id", "query_id", "message", "message_type", "user_query",
             "timestamp", "event_attributes", "session_id"}  # fmt: skip
OF_QUERIES = {"timestamp", "query_id", "query", "query_response_id", "query_response_hit_ids", "user_query",
              "query_attributes", "client_id", "application"}  # fmt: skip
STRICT_DATE_TIME = re.compile(r"\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d\.\d{3}Z")


@pytest.mark.anyio
async def test_plans_and_events_are_documents_of_ubi(tmp_path: Path) -> None:
    trial = ExperimentSettings(name="autumn", arms="control=1")
    kept = OutcomeSettings(dir=tmp_path / "kept", actions=OWN_ACTIONS)
    async with talking_to(SHOES, outcomes=kept, experiment=trial, release="ami-1") as client:
        await client.post("/plan", json={"query": "red shoes"}, headers={"x-experiment-unit": SHOPPER})
        query_id, other_id = await planned(client), await planned(client)
        clicks = [click(query_id, event_id="1"), click(other_id, event_id="1")]
        for event in (click(query_id, timestamp="2026-11-23T20:20:39"), ubi_page_exit(query_id), *clicks):
            assert (await client.post("/outcomes", json=event)).json()["kept"] == 1
    plans, events = tmp_path / "kept/plans.jsonl", tmp_path / "kept/events.jsonl"
    packed = tmp_path / "events.gz"  # as Firehose's bucket has them
    packed.write_bytes(gzip.compress(events.read_bytes()))
    files = [str(plans), str(events), str(packed)]
    words = [sys.executable, "-m", "peakplan.value", *files, "--ubi", str(tmp_path / "bulk.ndjson")]
    done = subprocess.run(words, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    text = (tmp_path / "bulk.ndjson").read_text("utf-8")
    assert SHOPPER not in text
    lines = [json.loads(line) for line in text.splitlines()]
    found: dict[str, dict[str, Any]] = {"ubi_queries": {}, "ubi_events": {}}
    for action, document in zip(lines[::2], lines[1::2], strict=True):
        found[action["index"]["_index"]][action["index"]["_id"]] = document
        assert STRICT_DATE_TIME.fullmatch(document["timestamp"])
    first, second, _ = found["ubi_queries"].values()
    assert first["query_attributes"]["arm"] == "control"
    assert (second["query_id"], second["query_attributes"]["release"]) == (query_id, "ami-1")
    assert set(first) <= OF_QUERIES
    assert len(found["ubi_events"]) == 4, "an event that two files have is one document"
    for event in found["ubi_events"].values():
        assert set(event) <= OF_EVENTS
        assert event["query_id"] in (query_id, other_id)
    assert {event["action_name"] for event in found["ubi_events"].values()} == {"click", "page_exit"}
    assert "2026-11-23T20:20:39.000Z" in {event["timestamp"] for event in found["ubi_events"].values()}
