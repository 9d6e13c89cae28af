"""Replicas that die, stop, lag or lie under load: nothing is lost, nothing is wrong, and all recover."""

import os
import signal
import threading
import time
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import httpx
import pytest

from service.engines.worker.spawn import replicas_of
from tests.faults.under_load import Load, assert_full_capacity_again, fake_server, metric
from tests.processes import eventually
from tests.server_process import serving

pytestmark = pytest.mark.slow
SECONDS = 4.0


@pytest.mark.parametrize("number", [signal.SIGKILL, signal.SIGSTOP])
def test_one_replica_is_killed_or_stopped(number: signal.Signals) -> None:
    with fake_server() as server:
        with Load(server.url, SECONDS) as load:
            time.sleep(1)
            victim = replicas_of(server.process.pid)[0]
            os.kill(victim, number)
        load.assert_nothing_was_lost()
        assert "model" in load.sources()
        assert_full_capacity_again(server)
        assert victim not in replicas_of(server.process.pid)


def test_all_replicas_are_killed() -> None:
    with fake_server() as server:
        with Load(server.url, SECONDS) as load:
            time.sleep(1)
            for replica in replicas_of(server.process.pid):
                os.kill(replica, signal.SIGKILL)
        load.assert_nothing_was_lost()
        assert_full_capacity_again(server)
        assert metric(server, "peakplan_replica_restarts_total") >= 2


@pytest.mark.parametrize("fault", ["slow", "corrupt"])
def test_one_replica_becomes_slow_or_corrupt(tmp_path: Path, fault: str) -> None:
    with fake_server(FAKE_FAULTS=tmp_path) as server:
        with Load(server.url, SECONDS) as load:
            time.sleep(1)
            (tmp_path / fault).touch()
        load.assert_nothing_was_lost()
        if fault == "corrupt":  # one wrong answer is enough; how slow is too slow depends on the machine
            eventually(lambda: metric(server, "peakplan_replica_restarts_total") >= 1, "it was not taken out")
        assert_full_capacity_again(server)


def test_deadlines_too_short_for_long_questions_cost_no_replica(tiny_model_dir: Path) -> None:
    """Ask a real model, which writes long plans; a cancelled forward has to end before its replica's grace does."""
    settings = {"PEAKPLAN_MODEL_DIR": tiny_model_dir, "PEAKPLAN_CACHE_DIR": tiny_model_dir, "PEAKPLAN_REPLICAS": 2}
    with serving("service", **settings, PEAKPLAN_OVERSUBSCRIBE=1, PEAKPLAN_DTYPE="float32") as server:
        ended = threading.Event()

        def press(number: int) -> None:
            with httpx.Client(base_url=server.url, timeout=30) as client:
                while not ended.is_set():
                    query = f"{number} " + " ".join(f"word{time.monotonic_ns() % 1000}" for _ in range(40))
                    assert client.post("/plan", json={"query": query, "deadline_ms": 10}).status_code == 200

        with ThreadPoolExecutor() as pool:
            pressing = [pool.submit(press, number) for number in range(2)]
            try:
                answers = [server.post("/plan", {"query": f"shoes {n}", "deadline_ms": 2000}) for n in range(40)]
            finally:
                ended.set()
            for each in pressing:
                each.result()
        sources = [answer.json()["source"] for answer in answers]
        assert sources.count("model") > len(sources) / 2
        assert metric(server, "peakplan_replica_restarts_total") == 0


def test_a_reload_under_load_drops_nothing() -> None:
    with fake_server() as server:
        before = replicas_of(server.process.pid)
        with Load(server.url, SECONDS) as load:
            time.sleep(0.5)
            assert server.control("/reload").json()["status"] == "reloaded"
        load.assert_nothing_was_lost()
        assert not set(before) & set(replicas_of(server.process.pid))
        assert_full_capacity_again(server)


def test_a_reload_can_be_asked_for_by_signal() -> None:
    with fake_server() as server:
        before = replicas_of(server.process.pid)
        server.process.send_signal(signal.SIGHUP)
        eventually(lambda: not set(before) & set(replicas_of(server.process.pid)), "it did not reload")
        eventually(lambda: len(replicas_of(server.process.pid)) == len(before), "an old replica stayed")
        assert_full_capacity_again(server)
