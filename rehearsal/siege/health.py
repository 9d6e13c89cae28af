"""A process that asks for a service's health while it is besieged.

A module of its own: a spawned process cannot find a function of a package's `__main__`.
"""

import socket
import sys
import time
from datetime import UTC, datetime
from multiprocessing.connection import Connection

_HEALTH_PAUSE = 0.1
MOST_SECONDS = 0.1  # for an answer


def watch_health(port: int, answers: Connection) -> None:
    """Ask for liveness and readiness in turn until told to end; send back the seconds of each and what failed."""
    seconds: dict[str, list[float]] = {"/healthz": [], "/readyz": []}
    failed: dict[str, int] = {}
    while not answers.poll(_HEALTH_PAUSE):
        for path, taken in seconds.items():
            started = time.monotonic()
            try:
                with socket.create_connection(("127.0.0.1", port), timeout=20) as client:
                    client.sendall(f"GET {path} HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\n\r\n".encode())
                    answer = client.recv(1024)
                status = answer.split()[1].decode() if answer else "nothing"
            except OSError as error:
                status = type(error).__name__
            taken.append(time.monotonic() - started)
            if taken[-1] > MOST_SECONDS:
                print(f"{datetime.now(UTC):%H:%M:%S.%f} {path} took {taken[-1]:.3f} s", file=sys.stderr, flush=True)
            if status != "200" and not (path == "/readyz" and status == "503"):
                failed[f"{path}: {status}"] = failed.get(f"{path}: {status}", 0) + 1
    answers.send((seconds, failed))
