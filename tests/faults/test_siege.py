"""Attacks that once gave way, on the service as it runs: `make siege` tries many more, for minutes."""

import asyncio
import contextlib
import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest

from service.engines.worker.spawn import replicas_of
from tests.faults.under_load import MODULE, fake_server
from tests.processes import PATIENCE, eventually
from tests.redis_server import free_port
from tests.server_process import REPOSITORY, ServerProcess

pytestmark = pytest.mark.slow
BODY = b'{"query": "red shoes"}'
HEAD = b"POST /plan HTTP/1.1\r\nHost: localhost\r\nContent-Type: application/json\r\n"
PLAN = HEAD + b"Content-Length: %d\r\n\r\n" % len(BODY)
HEALTH = b"GET /healthz HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\n\r\n"
BUSY = 300  # clients that never pause
FRESH = 50


async def _ask_without_pause(port: int, answered: list[int]) -> None:
    reader, writer = await asyncio.open_connection("127.0.0.1", port)
    try:
        while True:
            writer.write(PLAN + BODY)
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
        writer.write(HEALTH)
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


def test_nobody_reads_the_log_or_the_metrics() -> None:
    port = free_port()
    environment = {**os.environ, "PORT": str(port), "PEAKPLAN_REPLICAS": "1", "PEAKPLAN_FLEET": "dev"}
    command = [sys.executable, "-m", MODULE]
    pipes = {"stdout": subprocess.PIPE, "stderr": subprocess.PIPE}
    with subprocess.Popen(command, cwd=REPOSITORY, env=environment, **pipes) as process:
        try:
            eventually(lambda: _answers(port), "it did not start")
            for _ in range(2000):  # a pipe holds the log of some hundred
                assert _answers(port), "it waits for a reader of its log"
            process.send_signal(signal.SIGTERM)
            assert process.wait(PATIENCE) == 0
        finally:
            process.kill()


def _answers(port: int) -> bool:
    import http.client

    connection = http.client.HTTPConnection("127.0.0.1", port, timeout=30)
    try:
        connection.request("POST", "/plan", BODY, {"content-type": "application/json"})
        return connection.getresponse().status in (200, 503)
    except ConnectionRefusedError:
        return False
    finally:
        connection.close()


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
