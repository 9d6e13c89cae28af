"""Runs a part in a process of its own and keeps its result, so that a day that was broken off goes on."""

import contextlib
import json
import os
import signal
import subprocess
import time
from collections.abc import Callable, Sequence
from dataclasses import asdict
from pathlib import Path
from typing import Any

from infra.fleet.parts import REPOSITORY_ROOT
from rehearsal.bench.neuron_day.day import Day, Task, inputs, result_file

Result = dict[str, Any]
_LAST_SECONDS = 30.0  # that the kernel may take to end what was killed
_TAKEN = "not available"  # what libnrt says of NeuronCores that the process before has not given back
_TRY_SECONDS = 1.0


def run_task(day: Day, task: Task, python: Sequence[str], cores_seconds: float = 0) -> Result:
    """Return a part's result: the one that was kept, or that of a new process, or why there is none."""
    if (known := keep(day, task.name)) is not None:
        return known
    found = with_free_cores(lambda: _attempt(day, task, python), cores_seconds)
    return keep(day, task.name, found) or found


def with_free_cores(attempt: Callable[[], Result], cores_seconds: float) -> Result:
    """Return what `attempt` finds; where NeuronCores are still taken, try again for so many seconds.

    `waited_seconds` says how many that took.
    """
    began = time.monotonic()
    found = attempt()
    while _TAKEN in found.get("failed", "") and (waited := time.monotonic() - began) < cores_seconds:
        time.sleep(_TRY_SECONDS)
        found = attempt() | {"waited_seconds": round(waited + _TRY_SECONDS, 1)}
    return found


def _attempt(day: Day, task: Task, python: Sequence[str]) -> Result:
    """Run a part in a new process; return its result, or why there is none."""
    kept = result_file(day, task.name)
    made = kept.with_suffix(".part")
    made.unlink(missing_ok=True)
    words = [*python, "-m", "rehearsal.bench.neuron_day.parts", str(day.write()), task.part, str(made)]
    words += [json.dumps(asdict(task.graph))] if task.graph else []
    log = kept.with_suffix(".log")
    status = _run(words, log, task.limit)
    found = read(made)
    if found is None:
        last = (log.read_text(encoding="utf-8", errors="replace").strip().splitlines() or ["it said nothing"])[-1]
        ended = f"after {task.limit:.0f} s" if status is None else f"with status {status}"
        found = {"failed": f"its process ended {ended} and left no result ({log}): {last}"}
    made.unlink(missing_ok=True)
    return found


def keep(day: Day, name: str, found: Result | None = None) -> Result | None:
    """Write a result that may be kept, or return the one that is; None where there is none of this day's inputs."""
    file = result_file(day, name)
    file.parent.mkdir(parents=True, exist_ok=True)
    if found is not None:
        if not {"failed", "skipped"} & found.keys():  # those are tried again
            file.write_text(json.dumps({"of": inputs(day), "found": found}), encoding="utf-8")
        return found
    content = read(file)
    return content["found"] if content and content.get("of") == inputs(day) else None


def read(file: Path) -> Result | None:
    """Return a file's JSON; None where it is missing or was broken off."""
    try:
        content: Result = json.loads(file.read_text(encoding="utf-8"))
    except (OSError, ValueError):
        return None
    return content


def _run(words: Sequence[str], log: Path, limit: float) -> int | None:
    """Run a command to its end, or to the end of `limit` seconds (None). Nothing of it outlives this call."""
    environment = os.environ | {"PYTHONPATH": os.pathsep.join(_source_path())}
    with log.open("w", encoding="utf-8") as lines:
        process = subprocess.Popen(words, env=environment, stdout=lines, stderr=lines, start_new_session=True)
        try:
            return process.wait(limit)
        except subprocess.TimeoutExpired:
            return None
        finally:
            end_group(process)


def _source_path() -> list[str]:
    return [str(REPOSITORY_ROOT), *filter(None, os.environ.get("PYTHONPATH", "").split(os.pathsep))]


def end_group(process: subprocess.Popen[Any]) -> None:
    """End a process that leads a session, and what it started there; its cores are free when this returns."""
    with contextlib.suppress(ProcessLookupError):
        os.killpg(process.pid, signal.SIGKILL)
    process.wait()
    end = time.monotonic() + _LAST_SECONDS
    while _runs(process.pid) and time.monotonic() < end:
        time.sleep(0.01)


def _runs(group: int) -> bool:
    """Tell whether a process of the group still runs; one that has ended and that nobody has asked after does not."""
    for file in Path("/proc").glob("[0-9]*/stat"):
        with contextlib.suppress(OSError):
            state, _, its_group = file.read_text(encoding="ascii", errors="replace").rpartition(")")[2].split()[:3]
            if int(its_group) == group and state != "Z":
                return True
    return False
