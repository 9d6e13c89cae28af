"""Faults around the service: clients, the cache server, its log, the clock, its own start and shutdown."""

import asyncio
import contextlib
import os
import signal
import socket
import subprocess
import sys
import time
import urllib.request
from pathlib import Path

import httpx
import pytest

from service.engines.worker.spawn import replicas_of
from tests.api.client import BODY, GET, LAST, PLAN
from tests.faults.under_load import MODULE, Load, assert_full_capacity_again, fake_server, metric
from tests.processes import PATIENCE, eventually
from tests.redis_server import free_port, needs_redis, redis_server
from tests.server_process import REPOSITORY, ServerProcess

pytestmark = pytest.mark.slow
SECONDS = 4.0
JSON = {"content-type": "application/json"}
BUSY = 300  # clients that never pause
FRESH = 50
HEAD = b"POST /plan HTTP/1.1\r\nHost: localhost\r\nContent-Type: application/json\r\nContent-Length: 30\r\n\r\n"
FAKETIME = next(Path("/usr/lib").glob("*/faketime/libfaketime.so.1"), None)
needs_faketime = pytest.mark.skipif(FAKETIME is None, reason="needs libfaketime: apt-get install faketime")


def connect(server: ServerProcess) -> socket.socket:
    return socket.create_connection(("127.0.0.1", int(server.url.rpartition(":")[2])), timeout=60)


def test_clients_that_vanish_cost_the_others_nothing() -> None:
    with fake_server() as server:
        with Load(server.url, SECONDS) as load:
            for number in range(100):
                with connect(server) as client:
                    body = b'{"query": "vanishing %06d"}' % number
                    client.sendall(HEAD.replace(b"30", b"%d" % len(body)) + (body if number % 2 else body[:9]))
                time.sleep(0.01)
        load.assert_nothing_was_lost()
        assert_full_capacity_again(server)


def test_clients_that_send_slowly_hold_nobody_up() -> None:
    with (
        fake_server(PEAKPLAN_HEADER_TIMEOUT_SECONDS=1, PEAKPLAN_BODY_TIMEOUT_SECONDS=1) as server,
        contextlib.ExitStack() as clients,
    ):
        with Load(server.url, SECONDS) as load:
            slow = [clients.enter_context(connect(server)) for _ in range(200)]
            for number, client in enumerate(slow):
                client.sendall(HEAD[: 20 + number % 100] if number % 2 else HEAD + b'{"que')
        load.assert_nothing_was_lost()
        for client in slow:
            answer = client.recv(100)
            assert answer == b"" or answer.startswith(b"HTTP/1.1 408")


@needs_redis
@pytest.mark.parametrize("harm", ["kill", "freeze"])
def test_the_shared_cache_dies_or_hangs(tmp_path: Path, harm: str) -> None:
    with redis_server(tmp_path) as redis, fake_server(PEAKPLAN_CACHE_URL=redis.url) as server:
        with Load(server.url, SECONDS) as load:
            time.sleep(1)
            getattr(redis, harm)()
        load.assert_nothing_was_lost()
        assert_full_capacity_again(server)


@pytest.mark.parametrize("logs_to", ["a full disk", "a pipe that nobody reads"])
def test_nothing_that_happens_to_its_log_holds_it_up(logs_to: str) -> None:
    port = free_port()
    environment = {**os.environ, "PORT": str(port), "PEAKPLAN_REPLICAS": "1", "PEAKPLAN_FLEET": "dev"}
    with contextlib.ExitStack() as stack:
        log = stack.enter_context(open("/dev/full", "wb")) if logs_to == "a full disk" else subprocess.PIPE
        command = [sys.executable, "-m", MODULE]
        process = stack.enter_context(
            subprocess.Popen(command, cwd=REPOSITORY, env=environment, stdout=log, stderr=log)
        )
        stack.callback(process.kill)
        url = f"http://127.0.0.1:{port}"
        eventually(lambda: _is_ready(url), "it did not start")
        with Load(url, SECONDS, rate=10) as load:
            pass
        load.assert_nothing_was_lost()
        with httpx.Client(base_url=url, timeout=30) as client:
            for _ in range(2000):  # a pipe holds the log of some hundred
                assert client.post("/plan", content=BODY, headers=JSON).status_code in (200, 503)
        process.send_signal(signal.SIGTERM)
        assert process.wait(PATIENCE) == 0


def _moved_clock(offset: Path) -> dict[str, object]:
    """Return the environment of a server whose clock is as far off as the file says."""
    offset.write_text("+0s", encoding="ascii")
    return {
        "LD_PRELOAD": FAKETIME,
        "FAKETIME_TIMESTAMP_FILE": offset,
        "FAKETIME_NO_CACHE": 1,
        "FAKETIME_DONT_FAKE_MONOTONIC": 1,
    }


@needs_faketime
@pytest.mark.parametrize("jump", ["+3600s", "-3600s"])
def test_the_clock_jumps(tmp_path: Path, jump: str) -> None:
    offset = tmp_path / "offset"
    with fake_server(**_moved_clock(offset)) as server:
        with Load(server.url, SECONDS) as load:
            time.sleep(1)
            offset.write_text(jump, encoding="ascii")
        load.assert_nothing_was_lost()
        assert "model" in load.sources()
        assert_full_capacity_again(server)


@needs_faketime
@pytest.mark.parametrize("jump", ["+18000s", "-18000s"])
def test_a_purchase_is_kept_although_the_clock_jumped_since_its_plan(tmp_path: Path, jump: str) -> None:
    offset, kept = tmp_path / "offset", tmp_path / "kept"
    with fake_server(**_moved_clock(offset), PEAKPLAN_OUTCOMES_DIR=kept, FAKE_SECONDS=0) as server:
        for before, after in (("+0s", jump), (jump, "+0s")):
            offset.write_text(before, encoding="ascii")
            query_id = server.post("/plan", {"query": f"shoes {before}"}).json()["request_id"]
            offset.write_text(after, encoding="ascii")
            bought = {"action_name": "purchase", "query_id": query_id, "event_id": f"from {before}"}
            answer = server.post("/outcomes", bought)
            assert (answer.status_code, answer.json().get("kept")) == (202, 1), answer.text


@pytest.mark.parametrize("asked_by", ["signal", "request"])
def test_a_drain_loses_no_request_of_a_balancer_that_heeds_readiness(asked_by: str) -> None:
    with fake_server(PEAKPLAN_DRAIN_SECONDS=SECONDS + 2) as server:
        with Load(server.url, SECONDS) as load:
            time.sleep(1)
            if asked_by == "signal":
                server.process.send_signal(signal.SIGTERM)
            else:
                assert server.control("/drain").status_code == 202
            eventually(lambda: server.get("/readyz").status_code == 503, "it still says that it is ready")
            assert metric(server, "peakplan_replicas_in_service") == 2
        load.assert_nothing_was_lost()
        assert server.wait() == 0
        assert server.events()[-1]["event"] == "stopped"


def _is_ready(url: str) -> bool:
    with contextlib.suppress(OSError), urllib.request.urlopen(f"{url}/readyz", timeout=5) as response:
        return bool(response.status == 200)
    return False


async def _ask_without_pause(port: int, answered: list[int]) -> None:
    reader, writer = await asyncio.open_connection("127.0.0.1", port)
    try:
        while True:
            writer.write(PLAN)
            head = await reader.readuntil(b"\r\n\r\n")
            await reader.readexactly(int(head.lower().split(b"content-length:")[1].split(b"\r\n")[0]))
            answered.append(1)
    finally:
        writer.close()


async def _fresh_beside_busy(port: int) -> int:
    """Return how many answers the busy clients got while every fresh one was answered."""
    answered: list[int] = []
    busy = [asyncio.create_task(_ask_without_pause(port, answered)) for _ in range(BUSY)]
    while len(answered) < BUSY:
        await asyncio.sleep(0.01)
    before = len(answered)

    async def ask() -> bytes:
        reader, writer = await asyncio.open_connection("127.0.0.1", port)
        writer.write(GET + LAST)
        answer = await reader.read()
        writer.close()
        return answer

    answers = await asyncio.gather(*(ask() for _ in range(FRESH)))
    during = len(answered) - before
    for task in busy:
        task.cancel()
    await asyncio.gather(*busy, return_exceptions=True)
    assert all(answer.startswith(b"HTTP/1.1 200") for answer in answers)
    return during


def test_fresh_connections_get_through_beside_clients_that_never_pause() -> None:
    """Count turns and not seconds: one new connection a turn would let every busy client be answered in between."""
    with fake_server() as server:
        port = int(server.url.rpartition(":")[2])
        assert asyncio.run(_fresh_beside_busy(port)) < BUSY * FRESH / 4


def test_a_hangup_during_the_start_ends_nothing() -> None:
    server = ServerProcess(MODULE, PEAKPLAN_REPLICAS=1)
    try:
        ended, sent = time.monotonic() + PATIENCE, 0
        while not server.url and time.monotonic() < ended:
            # Before the interpreter has come to our first line, nobody could do anything about it.
            with contextlib.suppress(OSError):
                ignored = Path(f"/proc/{server.process.pid}/status").read_text(encoding="ascii").split("SigIgn:\t")[1]
                if int(ignored[:16], 16) & 1 << (signal.SIGHUP - 1):
                    server.process.send_signal(signal.SIGHUP)
                    sent += 1
            time.sleep(0.01)
        server.wait_until_ready()
        assert sent, "it was ready before anybody could hang up"
        eventually(lambda: len(replicas_of(server.process.pid)) == 1, "no replica is left")
    finally:
        server.process.kill()
        server.wait()
