"""The service under load as a process of its own: started, polled for readiness, monitored and stopped."""

import contextlib
import json
import os
import signal
import socket
import subprocess
import sys
import time
import urllib.request
from collections.abc import Iterator, Mapping
from pathlib import Path

from service.engines.worker.spawn import replicas_of

START_SECONDS = 600.0
_STOP_SECONDS = 60.0


class ServerError(Exception):
    """Raised when the service did not start, with a message for people."""


class Server:
    """A `python -m service`, or another module that serves like it, on a free loopback port."""

    def __init__(self, environment: Mapping[str, object], module: str = "service") -> None:
        self._port = _free_port()
        self.url = f"http://127.0.0.1:{self._port}"
        variables = {**os.environ, "PEAKPLAN_LOG_LEVEL": "warning"}
        variables |= {name: str(value) for name, value in environment.items()} | {"PORT": str(self._port)}
        self.process = subprocess.Popen([sys.executable, "-m", module], env=variables, stdout=subprocess.DEVNULL)

    def wait_until_ready(self, seconds: float = START_SECONDS) -> None:
        """Return once it would answer a plan. Raises ServerError."""
        end = time.monotonic() + seconds
        while not self.is_ready():
            if self.process.poll() is not None:
                raise ServerError(f"the service ended with code {self.process.returncode}: see what it said above")
            if time.monotonic() > end:
                raise ServerError(f"the service was not ready within {seconds:g} s")
            time.sleep(0.1)

    def is_ready(self) -> bool:
        try:
            with urllib.request.urlopen(f"{self.url}/readyz", timeout=5) as response:
                return bool(response.status == 200)
        except OSError:
            return False

    def metric(self, name: str) -> float:
        """Return a sample of /metrics by its full name, labels included. Raises KeyError."""
        with urllib.request.urlopen(f"{self.url}/metrics", timeout=5) as response:
            for line in response.read().decode().splitlines():
                if line.startswith(f"{name} "):
                    return float(line.rpartition(" ")[2])
        raise KeyError(name)

    def memory_mib(self) -> float:
        """Return the resident memory of the server process alone."""
        pages = int(Path(f"/proc/{self.process.pid}/statm").read_text(encoding="ascii").split()[1])
        return pages * os.sysconf("SC_PAGE_SIZE") / 2**20

    def replicas(self) -> list[int]:
        """Return the process ids of its replicas."""
        return replicas_of(self.process.pid)

    def stop(self) -> int:
        """Send SIGTERM and return the exit code."""
        self.process.send_signal(signal.SIGTERM)
        return self.process.wait(_STOP_SECONDS)


@contextlib.contextmanager
def serving(environment: Mapping[str, object], module: str = "service") -> Iterator[Server]:
    """Run a service until it is ready; stop it on exit, whatever happens."""
    server = Server(environment, module)
    try:
        server.wait_until_ready()
        yield server
    finally:
        if server.process.poll() is None:
            with contextlib.suppress(subprocess.TimeoutExpired):
                server.stop()
        server.process.kill()
        server.process.wait()


def _free_port() -> int:
    with socket.create_server(("127.0.0.1", 0)) as listener:
        return int(listener.getsockname()[1])


def post(url: str, body: Mapping[str, object]) -> dict[str, object]:
    """Send one POST /plan, for warming up. Raises OSError."""
    data = json.dumps(body).encode()
    request = urllib.request.Request(f"{url}/plan", data, {"Content-Type": "application/json"})
    with urllib.request.urlopen(request, timeout=30) as response:
        answer: dict[str, object] = json.loads(response.read())
        return answer
