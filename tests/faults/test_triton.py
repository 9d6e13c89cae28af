"""Replicas hosted by a real tritonserver, under load: nothing is lost, and all recover."""

import os
import signal
import time
from collections.abc import Iterator

import pytest

from tests.faults.under_load import Load, assert_full_capacity_again, fake_server, metric
from tests.processes import eventually
from tests.server_process import ServerProcess
from tests.triton_server import TritonServer, needs_triton, triton_server

pytestmark = [pytest.mark.slow, needs_triton]
SECONDS = 4.0
GENERATION_SECONDS = 0.03


@pytest.fixture(scope="module")
def triton(tmp_path_factory: pytest.TempPathFactory) -> Iterator[TritonServer]:
    folder = tmp_path_factory.mktemp("triton")
    with triton_server(folder, "tests.fake_models:fake_source", name="echo", seconds=GENERATION_SECONDS) as server:
        yield server


@pytest.fixture
def server(triton: TritonServer) -> Iterator[ServerProcess]:
    # A machine that is busy with something else may hold up the gateway, too: that is no fault of Triton's.
    with fake_server(PEAKPLAN_ENGINE="triton", PEAKPLAN_TRITON_URL=triton.url, PEAKPLAN_BACKLOG_MS=2000) as server:
        yield server


@pytest.mark.parametrize("number", [signal.SIGKILL, signal.SIGSTOP])
def test_one_stub_is_killed_or_stopped(triton: TritonServer, server: ServerProcess, number: signal.Signals) -> None:
    with Load(server.url, SECONDS) as load:
        time.sleep(1)
        victim = triton.stubs()[0]
        os.kill(victim, number)
    load.assert_nothing_was_lost()
    assert "model" in load.sources()
    eventually(lambda: victim not in triton.stubs(), "the dead stub is still there")
    assert_full_capacity_again(server)


def test_the_whole_server_is_killed_and_comes_back(triton: TritonServer, server: ServerProcess) -> None:
    with Load(server.url, SECONDS) as load:
        time.sleep(1)
        triton.kill()
        eventually(lambda: metric(server, "peakplan_replicas_in_service") == 0, "the gateway did not notice")
        triton.start()
    load.assert_nothing_was_lost()
    assert_full_capacity_again(server)


def test_the_gateway_is_not_ready_without_triton(triton: TritonServer, server: ServerProcess) -> None:
    assert server.get("/readyz").status_code == 200
    triton.kill()
    eventually(lambda: server.get("/readyz").status_code == 503, "it still says that it is ready")
    assert server.post("/plan", {"query": "red shoes"}).json()["degraded"]
    triton.start()
    assert_full_capacity_again(server)


def test_a_reload_under_load_drops_nothing(server: ServerProcess) -> None:
    with Load(server.url, SECONDS) as load:
        time.sleep(0.5)
        assert server.control("/reload").json()["status"] == "reloaded"
    load.assert_nothing_was_lost()
    assert_full_capacity_again(server)
