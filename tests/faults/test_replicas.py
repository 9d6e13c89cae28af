"""Replicas, ours and Triton's, that die, stop, lag or lie under load: nothing is lost or wrong, and all recover."""

import os
import signal
import threading
import time
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import httpx
import pytest

from service.engines.worker.spawn import replicas_of
from tests.faults.under_load import GENERATION_SECONDS, Load, assert_full_capacity_again, fake_server, metric
from tests.processes import eventually
from tests.server_process import ServerProcess, serving
from tests.triton_server import TritonServer, needs_triton, triton_server

pytestmark = pytest.mark.slow
SECONDS = 4.0


@pytest.fixture(scope="module")
def triton(tmp_path_factory: pytest.TempPathFactory) -> Iterator[TritonServer]:
    folder = tmp_path_factory.mktemp("triton")
    with triton_server(folder, "tests.fake_models:fake_source", name="echo", seconds=GENERATION_SECONDS) as server:
        yield server


@pytest.fixture
def on_triton(triton: TritonServer) -> Iterator[ServerProcess]:
    # A machine that is busy with something else may hold up the gateway, too: that is no fault of Triton's.
    with fake_server(PEAKPLAN_ENGINE="triton", PEAKPLAN_TRITON_URL=triton.url, PEAKPLAN_BACKLOG_MS=2000) as server:
        yield server


Hosted = tuple[ServerProcess, Callable[[], list[int]]]


@pytest.fixture(params=["ours", pytest.param("triton", marks=needs_triton)])
def hosted(request: pytest.FixtureRequest) -> Iterator[Hosted]:
    """Run a service whose replicas are processes of its own, or a real tritonserver's, and tell their ids."""
    if request.param == "triton":
        yield request.getfixturevalue("on_triton"), request.getfixturevalue("triton").stubs
    else:
        with fake_server() as server:
            yield server, lambda: replicas_of(server.process.pid)


@pytest.mark.parametrize("number", [signal.SIGKILL, signal.SIGSTOP])
def test_one_replica_is_killed_or_stopped(hosted: Hosted, number: signal.Signals) -> None:
    server, replicas = hosted
    with Load(server.url, SECONDS) as load:
        time.sleep(1)
        victim = replicas()[0]
        os.kill(victim, number)
    load.assert_nothing_was_lost()
    assert "model" in load.sources()
    eventually(lambda: victim not in replicas(), "the dead replica is still there")
    assert_full_capacity_again(server)


def test_a_reload_under_load_drops_nothing(hosted: Hosted) -> None:
    server, _ = hosted
    before = replicas_of(server.process.pid)
    with Load(server.url, SECONDS) as load:
        time.sleep(0.5)
        assert server.control("/reload").json()["status"] == "reloaded"
    load.assert_nothing_was_lost()
    assert not set(before) & set(replicas_of(server.process.pid))
    assert_full_capacity_again(server)


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


def test_a_reload_can_be_asked_for_by_signal() -> None:
    with fake_server() as server:
        before = replicas_of(server.process.pid)
        server.process.send_signal(signal.SIGHUP)
        eventually(lambda: not set(before) & set(replicas_of(server.process.pid)), "it did not reload")
        eventually(lambda: len(replicas_of(server.process.pid)) == len(before), "an old replica stayed")
        assert_full_capacity_again(server)


def test_the_whole_server_is_killed_and_comes_back(triton: TritonServer, on_triton: ServerProcess) -> None:
    with Load(on_triton.url, SECONDS) as load:
        time.sleep(1)
        triton.kill()
        eventually(lambda: metric(on_triton, "peakplan_replicas_in_service") == 0, "the gateway did not notice")
        triton.start()
    load.assert_nothing_was_lost()
    assert_full_capacity_again(on_triton)


def test_the_gateway_is_not_ready_without_triton(triton: TritonServer, on_triton: ServerProcess) -> None:
    assert on_triton.get("/readyz").status_code == 200
    triton.kill()
    eventually(lambda: on_triton.get("/readyz").status_code == 503, "it still says that it is ready")
    assert on_triton.post("/plan", {"query": "red shoes"}).json()["degraded"]
    triton.start()
    assert_full_capacity_again(on_triton)
