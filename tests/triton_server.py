"""A real tritonserver on free ports of the loopback, for tests and benchmarks."""

import contextlib
import os
import signal
import subprocess
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import grpc
import pytest

from service.engines.triton.client import SERVICE, message
from service.engines.triton.installation import Installation, NoTritonError
from service.engines.triton.wire import Replica, write_repository
from tests.processes import PATIENCE, children_of, is_alive
from tests.redis_server import free_port


def installation() -> Installation | None:
    """Return the installation in PEAKPLAN_TRITON_HOME, or that of `peakplan tools install triton`."""
    home = os.environ.get("PEAKPLAN_TRITON_HOME")
    try:
        return Installation.find(Path(home) if home else None)
    except NoTritonError:
        return None


needs_triton = pytest.mark.skipif(
    installation() is None,
    reason="tritonserver is not installed (Linux on x86-64): peakplan tools install triton",
)


class TritonServer:
    """A server that starts, kills and freezes, with its stubs; always on the same port."""

    def __init__(self, folder: Path, make_source: str, arguments: dict[str, Any], replicas: int = 2) -> None:
        found = installation()
        assert found is not None, "tests that want it are marked needs_triton"
        self.url = f"127.0.0.1:{free_port()}"
        self.repository = folder / "repository"
        write_repository(self.repository, Replica(make_source, arguments, {}), replicas=replicas, cores=2)
        backends = found.link_backends(folder / "backends")
        self._command = found.command(self.repository, backends, self.url, replicas=replicas, stop_seconds=5)
        self._environment = found.environment(os.environ)
        self._process: subprocess.Popen[bytes] | None = None

    @property
    def pid(self) -> int:
        assert self._process is not None
        return self._process.pid

    def start(self) -> None:
        self._process = subprocess.Popen(self._command, env=self._environment, stdin=subprocess.DEVNULL)
        with grpc.insecure_channel(self.url) as channel:
            live = channel.unary_unary(
                f"{SERVICE}ServerLive",
                message("ServerLiveRequest").SerializeToString,
                message("ServerLiveResponse").FromString,
            )
            assert live(message("ServerLiveRequest")(), timeout=PATIENCE, wait_for_ready=True).live

    def stubs(self) -> list[int]:
        """Return the process ids of the replicas."""
        return [pid for pid in children_of(self.pid) if is_alive(pid)]

    def kill(self) -> None:
        """Kill the server; its stubs notice and end a moment later."""
        self._end(signal.SIGKILL)

    def stop(self) -> None:
        self._end(signal.SIGTERM)

    def _end(self, number: signal.Signals) -> None:
        if self._process is None:
            return
        stubs = self.stubs()
        for pid in stubs:
            with contextlib.suppress(ProcessLookupError):
                os.kill(pid, signal.SIGCONT)  # a test may have frozen it
        self._process.send_signal(number)
        self._process.wait(PATIENCE)
        self._process = None
        end = time.monotonic() + PATIENCE
        while any(map(is_alive, stubs)):
            assert time.monotonic() < end, "a stub outlived its server"
            time.sleep(0.02)


@contextlib.contextmanager
def triton_server(folder: Path, make_source: str, replicas: int = 2, **arguments: Any) -> Iterator[TritonServer]:
    """Run a server over replicas of a source, none of them loaded yet."""
    server = TritonServer(folder, make_source, arguments, replicas)
    try:
        server.start()
        yield server
    finally:
        server.stop()
