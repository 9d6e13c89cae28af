"""Test helpers that look at processes and wait for conditions."""

import contextlib
import time
from collections.abc import Callable
from pathlib import Path

PATIENCE = 300.0  # seconds that a test waits for what has to happen: no machine is so busy that it takes longer


def is_alive(pid: int) -> bool:
    """Tell whether the process runs; a zombie does not."""
    try:
        status = Path(f"/proc/{pid}/stat").read_text(encoding="ascii", errors="replace")
    except (FileNotFoundError, ProcessLookupError):
        return False
    return status.rpartition(")")[2].split()[0] != "Z"


def children_of(pid: int) -> list[int]:
    """Return the process ids of the direct children."""
    found: list[int] = []
    for task in Path(f"/proc/{pid}/task").iterdir():
        with contextlib.suppress(FileNotFoundError, ProcessLookupError):  # a thread that has just ended
            found += map(int, (task / "children").read_text(encoding="ascii").split())
    return found


def eventually(holds: Callable[[], bool], complaint: str) -> None:
    """Wait until a condition holds; only a failure reaches the limit."""
    end = time.monotonic() + PATIENCE
    while not holds():
        assert time.monotonic() < end, complaint
        time.sleep(0.01)
