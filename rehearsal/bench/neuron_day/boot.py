"""Starts the service on a compiled graph as a host does, with the gateway's Python, until it has planned once."""

import json
import os
import socket
import subprocess
import sys
import time
import urllib.request
from pathlib import Path
from typing import Any

from rehearsal.bench.neuron_day.day import Day, Graph
from rehearsal.bench.neuron_day.processes import end_group

BOOT_SECONDS = 900
_STOP_SECONDS = 60
_POLL_SECONDS = 0.5


def boot(day: Day, graph: Graph, engine: str, replicas: int, limit: float) -> dict[str, Any]:
    """Start the service on so many replicas and ask it for a plan. Raises RuntimeError with its last words."""
    port = free_port()
    environment = os.environ | {
        "PEAKPLAN_ENGINE": engine,
        "PEAKPLAN_TRITON_HOSTS": "neuron",
        "PEAKPLAN_MODEL_DIR": str(day.model_dir),
        "PEAKPLAN_CACHE_DIR": str(day.cache_dir),
        "PEAKPLAN_COMPILED_DIR": str(day.compiled(graph)),
        "PEAKPLAN_TENSOR_PARALLEL": str(graph.cores),
        "PEAKPLAN_BATCH_SIZE": str(graph.batch),
        "PEAKPLAN_REPLICAS": str(replicas),
        "HOST": "127.0.0.1",
        "PORT": str(port),
    }
    log = day.folder / f"{engine}.log"
    started = time.monotonic()
    with log.open("w", encoding="utf-8") as lines:
        command = [sys.executable, "-m", "service.container"]
        service = subprocess.Popen(command, env=environment, stdout=lines, stderr=lines, start_new_session=True)
    try:
        while not _is_ready(port):
            if service.poll() is not None or time.monotonic() - started > limit:
                raise RuntimeError(
                    f"the service was not ready after {time.monotonic() - started:.0f} s ({log}): {_last_words(log)}"
                )
            time.sleep(_POLL_SECONDS)
        ready = time.monotonic() - started
        plan = _plan(port)
        return {
            "engine": engine,
            "graph": graph.name,
            "replicas": replicas,
            "seconds_to_ready": round(ready, 1),
            "first_plan": {"source": plan["source"], "model_ms": plan["timing_ms"]["model"]},
        }
    finally:
        _stop(service)


def _stop(service: "subprocess.Popen[bytes]") -> None:
    """Let it drain, so that its replicas free their cores, and end what is left."""
    service.terminate()
    try:
        service.wait(_STOP_SECONDS)
    except subprocess.TimeoutExpired:
        pass
    finally:
        end_group(service)


def free_port() -> int:
    with socket.socket() as listening:
        listening.bind(("127.0.0.1", 0))
        port: int = listening.getsockname()[1]
    return port


def _last_words(log: Path) -> str:
    lines = log.read_text(encoding="utf-8", errors="replace").strip().splitlines()
    return lines[-1] if lines else "it said nothing"


def _is_ready(port: int) -> bool:
    try:
        with urllib.request.urlopen(f"http://127.0.0.1:{port}/readyz", timeout=5) as answer:
            return bool(answer.status == 200)
    except OSError:
        return False


def _plan(port: int) -> dict[str, Any]:
    request = urllib.request.Request(
        f"http://127.0.0.1:{port}/plan",
        json.dumps({"query": "red running shoes under $40", "deadline_ms": 2000}).encode(),
        {"content-type": "application/json"},
    )
    with urllib.request.urlopen(request, timeout=30) as answer:
        plan: dict[str, Any] = json.load(answer)
    return plan
