"""A worker of an event's load: its arrivals, its questions, its line, and that Lambda has everything it needs."""

import json
import os
import random
import subprocess
import sys
import time
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from threading import Thread
from typing import Any

import pytest

from infra.fleet.event_load import WORKERS_NAMESPACE
from infra.fleet.event_load_bundle import HANDLER, bundle
from infra.fleet.event_load_file import CallerNetwork
from rehearsal.load.client import Sample
from rehearsal.load.event_worker import LATE_SECONDS, NAMESPACE, arrivals, counted, shots
from tests.processes import PATIENCE

EVENT = {"worker": 3, "starts_at": 1_800_000_000, "begins": 10.0, "ends": 30.0, "seconds": 60, "deadline_ms": 300}
QUESTIONS = ["red shoes", "blue shoes", "a tent"]


class Planner(ThreadingHTTPServer):
    """Plans every question; one in four by rule."""

    def __init__(self) -> None:
        self.asked: list[dict[str, Any]] = []
        planner = self

        class Handler(BaseHTTPRequestHandler):
            protocol_version = "HTTP/1.1"

            def do_POST(self) -> None:
                planner.asked.append(json.loads(self.rfile.read(int(self.headers["Content-Length"]))))
                body = json.dumps({"plan": {}, "degraded": len(planner.asked) % 4 == 0}).encode()
                self.send_response(200)
                self.send_header("Content-Length", str(len(body)))
                self.end_headers()
                self.wfile.write(body)

            def log_message(self, format: str, *values: object) -> None:
                del format, values

        super().__init__(("127.0.0.1", 0), Handler)


@pytest.fixture
def planner() -> Iterator[Planner]:
    made = Planner()
    thread = Thread(target=made.serve_forever)
    thread.start()
    yield made
    made.shutdown()
    thread.join()
    made.server_close()


def test_arrivals_follow_the_minutes_slope() -> None:
    found = arrivals(10.0, 30.0, 600.0, random.Random(1))

    assert found == sorted(found)
    assert len(found) == pytest.approx(20 * 600, rel=0.05)
    assert sum(at < 300 for at in found) == pytest.approx(15 * 300, rel=0.05)
    assert arrivals(0.0, 0.0, 60.0, random.Random(1)) == []


def test_no_two_workers_and_no_two_minutes_send_the_same_moments() -> None:
    once = shots(EVENT | {"fresh": 0.5}, QUESTIONS)

    assert once == shots(EVENT | {"fresh": 0.5}, QUESTIONS)
    for other in ({"worker": 4}, {"starts_at": EVENT["starts_at"] + 60}):
        assert {shot.at for shot in once}.isdisjoint(
            shot.at for shot in shots(EVENT | {"fresh": 0.5} | other, QUESTIONS)
        )


@pytest.mark.parametrize("fresh", [0.0, 0.5, 1.0])
def test_so_many_questions_are_known_to_no_cache(fresh: float) -> None:
    asked = [json.loads(shot.body)["query"] for shot in shots(EVENT | {"fresh": fresh}, QUESTIONS)]

    known = sum(question in QUESTIONS for question in asked)
    assert len(asked) > 1000
    assert known / len(asked) == pytest.approx(1 - fresh, abs=0.05)


def test_every_answer_is_one_of_five_and_a_late_one_is_counted_from_its_moment() -> None:
    planned, by_rule = b'{"degraded": false}', b'{"degraded": true}'
    said = [(200, planned), (200, by_rule), (429, b""), (503, b""), (500, b""), (0, b""), (200, b"<html>")]
    samples = [Sample(1.0, 1.0, 1.1, 0.3, status, body) for status, body in said]
    samples.append(Sample(1.0, 1.4, 1.45, 0.3, 200, planned))  # 50 ms after it was sent, 450 after it was due

    found = counted(samples)

    assert {name: found[name] for name in ("Sent", "Planned", "ByRule", "Refused", "Failed", "Late")} == {
        "Sent": 8, "Planned": 2, "ByRule": 1, "Refused": 2, "Failed": 3, "Late": 1,
    }  # fmt: skip
    assert found["P50"] == 100.0


def test_what_lambda_gets_runs_alone_and_says_what_came_of_it(tmp_path: Path, planner: Planner) -> None:
    """In a Python without any package: an import of anything else fails."""
    folder = bundle(tmp_path / "program", CallerNetwork("vpc-1", ("subnet-1",)))
    module, _, handler = HANDLER.rpartition(".")
    due = EVENT | {"starts_at": time.time(), "seconds": 1, "fresh": 0.5}
    program = f"import sys; sys.path.insert(0, {str(folder)!r}); import time, {module} as worker; "
    program += f"worker.{handler}({due!r} | {{'starts_at': time.time() + 0.2}}, None)"
    variables = {"URL": f"http://127.0.0.1:{planner.server_port}", "FLEET": "dev", "PATH": os.environ["PATH"]}

    done = subprocess.run(
        [sys.executable, "-I", "-S", "-c", program],
        env=variables, capture_output=True, text=True, check=False, timeout=PATIENCE,
    )  # fmt: skip

    assert done.returncode == 0, done.stderr
    line = json.loads(done.stdout)
    (described,) = line["_aws"]["CloudWatchMetrics"]
    assert described["Namespace"] == NAMESPACE == WORKERS_NAMESPACE
    assert described["Dimensions"] == [["Fleet"]]
    assert {metric["Name"] for metric in described["Metrics"]} <= set(line)
    assert line["Fleet"] == "dev"
    assert line["Sent"] == line["Planned"] + line["ByRule"] == len(planner.asked) > 5
    assert line["ByRule"] == line["Sent"] // 4
    known = set(json.loads((folder / "rehearsal" / "load" / "questions.json").read_text(encoding="utf-8")))
    assert len(known) > 500
    assert any(asked["query"] in known for asked in planner.asked)


def test_a_worker_that_comes_after_its_minute_sends_nothing(monkeypatch: pytest.MonkeyPatch) -> None:
    from rehearsal.load import event_worker

    monkeypatch.setattr(event_worker, "_questions", lambda: pytest.fail("it prepares a load"))
    late = EVENT | {"starts_at": time.time() - LATE_SECONDS - 1, "fresh": 0.5}
    assert event_worker.handler(late, None) == {"Sent": 0}
