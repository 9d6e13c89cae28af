"""The real service as a process of its own, on a free port of the loopback."""

import json
import os
import signal
import subprocess
import sys
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import httpx

from tests.processes import PATIENCE

REPOSITORY = Path(__file__).parents[1]

# How to decode: `PEAKPLAN_DTYPE=float32 make test` runs every test on the slow path of a machine without kernels.
FORCED = ("PEAKPLAN_DTYPE", "PEAKPLAN_KERNEL")
CONTROL_TOKEN = "of-the-operator"


def _is_setting(name: str) -> bool:
    return name.startswith("PEAKPLAN_")


class ServerProcess:
    """A `python -m service` (or a similar module), its log so far, and its address once it is ready."""

    def __init__(self, module: str = "service", **environment: object) -> None:
        variables = {name: value for name, value in os.environ.items() if name in FORCED or not _is_setting(name)}
        variables |= {"HOST": "127.0.0.1", "PORT": "0", "PEAKPLAN_CONTROL_TOKEN": CONTROL_TOKEN}
        variables |= {name: str(value) for name, value in environment.items()}
        command = [sys.executable, "-m", module]
        self.process = subprocess.Popen(command, cwd=REPOSITORY, env=variables, stderr=subprocess.PIPE, text=True)
        self.lines: list[str] = []
        self.url = ""
        self._ready_or_ended = threading.Event()
        self._reader = threading.Thread(target=self._read, daemon=True)
        self._reader.start()

    def _read(self) -> None:
        assert self.process.stderr is not None
        for line in self.process.stderr:
            self.lines.append(line.rstrip("\n"))
            if line.startswith("{") and (event := json.loads(line))["event"] == "ready":
                self.url = event["url"]
                self._ready_or_ended.set()
        self._ready_or_ended.set()

    def wait_until_ready(self) -> "ServerProcess":
        assert self._ready_or_ended.wait(PATIENCE), "the server neither started nor ended"
        assert self.url, "the server ended:\n" + "\n".join(self.lines)
        return self

    def events(self) -> list[dict[str, Any]]:
        """Return its log so far; every line must be JSON."""
        return [json.loads(line) for line in self.lines]

    def post(self, path: str, body: object, **more: Any) -> httpx.Response:
        return httpx.post(self.url + path, json=body, timeout=60, **more)

    def control(self, path: str) -> httpx.Response:
        """Post to an address that is the operator's."""
        return self.post(path, {}, headers={"authorization": f"Bearer {CONTROL_TOKEN}"})

    def get(self, path: str) -> httpx.Response:
        return httpx.get(self.url + path, timeout=60)

    def stop(self, number: signal.Signals = signal.SIGTERM) -> int:
        """Signal it and wait for its end; return the exit code."""
        self.process.send_signal(number)
        return self.wait()

    def wait(self) -> int:
        """Wait for its end and last log lines; return the exit code."""
        code = self.process.wait(PATIENCE)
        self._reader.join()
        if self.process.stderr is not None:
            self.process.stderr.close()
        return code


@contextmanager
def serving(module: str = "service", **environment: object) -> Iterator[ServerProcess]:
    """Run a server that is ready; stop it at the end whatever happens."""
    server = ServerProcess(module, **environment)
    try:
        yield server.wait_until_ready()
    finally:
        server.process.kill()
        server.wait()
