"""A vLLM server on loopback, with the arguments that `infra/fleet/vllm.py` makes, for as long as a block lasts."""

import os
import subprocess
import sys
import time
import urllib.request
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Literal

from infra.fleet.vllm import on_processors
from rehearsal.bench.neuron_day.processes import end_group

PYTHON = Path(".venv-peers/bin/python")
NAME = "planner"
READY_SECONDS = 3600.0  # on a busy machine it is slow to load; a server that dies is seen at once
_POLL_SECONDS = 0.5


class VllmError(RuntimeError):
    """Raised where vLLM does not start; the message has its last words."""


@contextmanager
def serving(
    export: Path,
    python: Path,
    log: Path,
    *,
    port: int,
    length: int,
    sequences: int = 1,
    threads: int = 1,
    dtype: Literal["bfloat16", "float32"] = "float32",
    speculation: Mapping[str, object] | None = None,
    eager: bool = True,
) -> Iterator[str]:
    """Give the address of a server of an export, once it answers. Raises VllmError.

    `eager` leaves out torch.compile, which takes minutes and changes sums' order.
    """
    cores = (0, threads - 1)
    server = on_processors(
        str(export), NAME, port, cores=cores, length=length, sequences=sequences, dtype=dtype, speculation=speculation
    )
    program = [str(python.with_name("vllm")), *server.arguments[1:], *(["--enforce-eager"] if eager else [])]
    environment = os.environ | server.environment | {"VLLM_CPU_OMP_THREADS_BIND": "nobind"}
    with log.open("w", encoding="utf-8") as lines:
        running = subprocess.Popen(program, env=environment, stdout=lines, stderr=lines, start_new_session=True)
    try:
        _await_ready(running, port, log)
        yield f"http://127.0.0.1:{port}/v1"
    finally:
        running.terminate()
        try:
            running.wait(30)
        except subprocess.TimeoutExpired:
            print(f"vLLM did not end within 30 s; it is killed ({log})", file=sys.stderr)
        end_group(running)


def _await_ready(running: "subprocess.Popen[bytes]", port: int, log: Path) -> None:
    ends = time.monotonic() + READY_SECONDS
    while not _answers(port):
        if running.poll() is not None or time.monotonic() > ends:
            words = log.read_text(encoding="utf-8", errors="replace").strip().splitlines()[-3:]
            raise VllmError(f"vLLM did not start ({log} has its words): {' / '.join(words) or 'it said nothing'}")
        time.sleep(_POLL_SECONDS)


def _answers(port: int) -> bool:
    try:
        with urllib.request.urlopen(f"http://127.0.0.1:{port}/health", timeout=5) as answer:
            return bool(answer.status == 200)
    except OSError:
        return False
