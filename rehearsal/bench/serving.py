"""The real server over HTTP: latency of POST /plan, with one and two requests at a time, and a replica's memory."""

import asyncio
import json
import os
import signal
import statistics
import subprocess
import sys
import time
import urllib.request
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from rehearsal.bench.series import quantile
from service.engines.worker.spawn import replicas_of
from service.planner.question import Question
from service.settings import Settings

PORT = 18080
_START_SECONDS = 300
_HEAD = "POST /plan HTTP/1.1\r\nHost: localhost\r\nContent-Type: application/json\r\nContent-Length: {length}\r\n\r\n"


def measure_service(settings: Settings, questions: Sequence[Question]) -> dict[str, Any]:
    """Start a server with the default settings, ask every question at concurrency 1 and 2, and stop it."""
    with running_service(settings) as server:
        asyncio.run(_ask_all(PORT, questions[:20], 2))  # warm-up
        measured = {
            f"concurrency_{concurrency}": _summary(asyncio.run(_ask_all(PORT, questions, concurrency)))
            for concurrency in (1, 2)
        }
        return {**measured, "replica_rss_mb": max(_replica_memory(server))}


@contextmanager
def running_service(settings: Settings) -> Iterator[int]:
    """Run a server that listens on `PORT` and decodes every plan; yield its process id once it is ready."""
    environment = {**os.environ, "PORT": str(PORT), "PEAKPLAN_MODEL_DIR": str(settings.model_dir.resolve())}
    environment |= {"PEAKPLAN_LOG_LEVEL": "warning", "PEAKPLAN_CACHE_ENTRIES": "0"}
    server = subprocess.Popen([sys.executable, "-m", "service"], env=environment)
    try:
        _wait_until_ready(server, PORT)
        yield server.pid
    finally:
        server.send_signal(signal.SIGTERM)
        server.wait(timeout=30)


def _wait_until_ready(server: subprocess.Popen[bytes], port: int) -> None:
    deadline = time.monotonic() + _START_SECONDS
    while time.monotonic() < deadline:
        if server.poll() is not None:
            raise RuntimeError(f"the server ended with code {server.returncode} before it was ready")
        try:
            with urllib.request.urlopen(f"http://127.0.0.1:{port}/readyz", timeout=5) as response:
                if response.status == 200:
                    return
        except OSError:
            time.sleep(0.2)
    raise RuntimeError(f"the server was not ready within {_START_SECONDS} s")


async def _ask_all(port: int, questions: Sequence[Question], concurrency: int) -> list[tuple[float, str]]:
    """Return (milliseconds, source of the plan) of every question, over keep-alive connections."""
    remaining = iter(questions)
    answers: list[tuple[float, str]] = []

    async def client() -> None:
        reader, writer = await asyncio.open_connection("127.0.0.1", port)
        for question in remaining:
            body = json.dumps(
                {"query": question.text, "history": question.utterances[:-1], "deadline_ms": 2000}
            ).encode()
            head = _HEAD.format(length=len(body))
            started = time.perf_counter()
            writer.write(head.encode() + body)
            answer = await _read_answer(reader)
            answers.append(((time.perf_counter() - started) * 1000, answer["source"]))
        writer.close()

    await asyncio.gather(*(client() for _ in range(concurrency)))
    return answers


async def _read_answer(reader: asyncio.StreamReader) -> dict[str, Any]:
    head = (await reader.readuntil(b"\r\n\r\n")).decode("ascii").lower()
    length = int(head.split("content-length:")[1].split("\r\n")[0])
    answer: dict[str, Any] = json.loads(await reader.readexactly(length))
    if not head.startswith("http/1.1 200"):
        raise RuntimeError(f"the server answered {head.splitlines()[0]}: {answer}")
    return answer


def _summary(answers: Sequence[tuple[float, str]]) -> dict[str, Any]:
    times = [milliseconds for milliseconds, _ in answers]
    return {
        "p50_ms": round(statistics.median(times), 1),
        "p99_ms": round(quantile(times, 0.99), 1),
        "max_ms": round(max(times), 1),
        "answered_by_model": round(sum(source == "model" for _, source in answers) / len(answers), 4),
    }


def _replica_memory(server: int) -> list[int]:
    """Return the resident megabytes of each replica, shared pages included."""
    page = os.sysconf("SC_PAGE_SIZE")
    return [
        int(Path(f"/proc/{pid}/statm").read_text(encoding="ascii").split()[1]) * page // 2**20
        for pid in replicas_of(server)
    ]
