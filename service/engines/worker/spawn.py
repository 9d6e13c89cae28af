"""Starts replica processes, and finds them."""

import ctypes
import logging
import os
import socket
import subprocess
import sys
from pathlib import Path

import service
from service.engines.protocol import EngineUnavailableError

REPLICA = "plan-replica"
FORK_SERVER = "plan-forkserver"
_PR_SET_NAME = 15  # linux/prctl.h
_SOURCE_ROOT = Path(service.__file__).parents[1]


def spawn(stream: socket.socket, threads: int, python: str = "") -> subprocess.Popen[bytes]:
    """Start an interpreter that serves on `stream`, in a process group that Ctrl-C does not reach.

    Another `python` than this one gets no packages of ours but the service: its own are the model's. Raises
    EngineUnavailableError.
    """
    level = logging.getLevelName(logging.getLogger().getEffectiveLevel())
    command = [python or sys.executable, "-P", "-m", "service.engines.worker.process", str(stream.fileno()), level]
    packages = [] if python else filter(None, sys.path)
    environment = {
        **os.environ,
        "PYTHONPATH": os.pathsep.join([str(_SOURCE_ROOT), *packages]),
        "OMP_NUM_THREADS": str(threads),
        "MKL_NUM_THREADS": str(threads),
        "TOKENIZERS_PARALLELISM": "false",
    }
    try:
        return subprocess.Popen(
            command, stdin=subprocess.DEVNULL, pass_fds=[stream.fileno()], env=environment, process_group=0
        )
    except OSError as error:
        raise EngineUnavailableError(f"no process for the replica: {error}") from error


def take_name(name: str) -> None:
    """Show this process as `name` in ps and top, where the system supports it; at most 15 characters."""
    if sys.platform == "linux":
        ctypes.CDLL(None).prctl(_PR_SET_NAME, name.encode(), 0, 0, 0)


def replicas_of(server: int) -> list[int]:
    """Return the process ids of a server's replicas (Linux only). Raises OSError when the server is gone."""
    found: list[int] = []
    for pid in _children(server):
        name = _name(pid)
        found += [pid] if name == REPLICA else []
        found += [child for child in _children(pid) if _name(child) == REPLICA] if name == FORK_SERVER else []
    return found


def _children(pid: int) -> list[int]:
    found: list[int] = []
    for task in Path(f"/proc/{pid}/task").iterdir():
        found += map(int, (task / "children").read_text(encoding="ascii").split())
    return found


def _name(pid: int) -> str:
    try:
        return Path(f"/proc/{pid}/comm").read_text(encoding="utf-8").strip()
    except OSError:  # it has just ended
        return ""
