"""What is measured in a day, and the processes that do: one a part, and the service, started as a host does.

Each part's result is kept, so that a day that was broken off goes on. Knows no torch.
"""

import contextlib
import json
import os
import signal
import socket
import subprocess
import sys
import time
import urllib.request
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import Any

from service.weights.model_card import folder_version

# Rows of a step (0: the tree's own) and plans decoded together; both cost memory and time that only a device tells.
ROWS = (0, 32, 48)
BATCHES = (1, 4, 8)
# In the order in which they are tried: no chain is compiled where a graph of the first kind plans.
KINDS = ("tree", "chain")
Result = dict[str, Any]
_LAST_SECONDS = 30.0  # that the kernel may take to end what was killed
_TAKEN = "not available"  # what libnrt says of NeuronCores that the process before has not given back
_TRY_SECONDS = 1.0
BOOT_SECONDS = 900
_STOP_SECONDS = 60
_POLL_SECONDS = 0.5


@dataclass(frozen=True)
class Graph:
    """One compiled graph: rows of a step (0: as many as the tree has), sequences, and the NeuronCores that it spans.

    `kind` is what a step reads, and `layout` whether the compiler chooses the weights' layout for it.
    """

    rows: int = 0
    batch: int = 1
    cores: int = 1
    kind: str = "tree"
    layout: bool = False

    @property
    def name(self) -> str:
        """Its name in figures and files, such as 48-rows-batch-1-core-1."""
        cores = f"{'core' if self.cores == 1 else 'cores'}-{self.cores}"
        kind = ("" if self.kind == "tree" else f"-{self.kind}") + ("-layout" if self.layout else "")
        return f"{self.rows or 'tree'}-rows-batch-{self.batch}-{cores}{kind}"


@dataclass(frozen=True)
class Day:
    """A day over one model on one chip; `folder` keeps what was compiled and every part's result."""

    model_dir: Path
    cache_dir: Path
    folder: Path
    chip: str
    questions: int
    steps: int = 200
    graphs: tuple[Graph, ...] = ()

    def of_kind(self, kind: str) -> "Day":
        """Return the same day over graphs of another kind."""
        return replace(self, graphs=tuple(replace(graph, kind=kind) for graph in self.graphs))

    def compiled(self, graph: Graph) -> Path:
        """Return where a graph's artifacts are; those of another model are elsewhere."""
        return self.folder / f"{self.chip}-{graph.name}-{folder_version(self.model_dir)}"

    def write(self) -> Path:
        """Write the day for its parts' processes and return the file."""
        file = self.folder / "day.json"
        file.write_text(json.dumps(asdict(self), default=str), encoding="utf-8")
        return file

    @classmethod
    def read(cls, file: Path) -> "Day":
        """Read what `write` wrote."""
        content = json.loads(file.read_text(encoding="utf-8"))
        content |= {name: Path(content[name]) for name in ("model_dir", "cache_dir", "folder")}
        return cls(**content | {"graphs": tuple(Graph(**graph) for graph in content["graphs"])})


def graphs(
    rows: tuple[int, ...] = ROWS,
    batches: tuple[int, ...] = BATCHES,
    cores: tuple[int, ...] = (1,),
    *,
    layout: bool = False,
) -> tuple[Graph, ...]:
    """Return the graphs to compare: every number of rows alone, the tree's own in batches, each over so many cores."""
    alone = [Graph(count, 1, span, layout=layout) for span in cores for count in rows]
    together = [Graph(rows[0], batch, span, layout=layout) for span in cores for batch in batches if batch > 1]
    return tuple(dict.fromkeys(alone + together))


@dataclass(frozen=True)
class Task:
    """One part, of one graph where it has one, in a process of its own that may take so many seconds."""

    part: str
    graph: Graph | None = None
    limit: float = 1800.0

    @property
    def name(self) -> str:
        """Its name, such as steps:tree-rows-batch-1-core-1."""
        return f"{self.part}:{self.graph.name}" if self.graph else self.part


def tasks(day: Day) -> Iterator[Task]:
    """Yield what runs on the device's Python, in order: whatever compiles is compared before it is timed."""
    yield Task("machine", limit=120)
    for part in ("compile", "order", "steps", "plans"):
        for graph in day.graphs[:1] if part == "order" else day.graphs:
            yield Task(part, graph, 7200.0 if part == "compile" else 1800.0)


def result_file(day: Day, name: str) -> Path:
    """Return the file of a part's result."""
    return day.folder / "results" / f"{day.chip}-{name.replace(':', '-')}.json"


def inputs(day: Day) -> dict[str, Any]:
    """Return what a result was measured with; one with other inputs is measured again."""
    return {"model": folder_version(day.model_dir), "chip": day.chip, "questions": day.questions, "steps": day.steps}


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
        ended = f"after {task.limit:.0f} s" if status is None else f"with status {status}"
        found = {"failed": f"its process ended {ended} and left no result ({log}): {last_words(log)}"}
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
    return [str(Path(__file__).parents[3]), *filter(None, os.environ.get("PYTHONPATH", "").split(os.pathsep))]


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
    command = [sys.executable, "-m", "service.container"]
    address = f"http://127.0.0.1:{port}"
    with running(command, environment, day.folder / f"{engine}.log", f"{address}/readyz", limit) as ready:
        plan = _plan(address)
    return {
        "engine": engine,
        "graph": graph.name,
        "replicas": replicas,
        "seconds_to_ready": round(ready, 1),
        "first_plan": {"source": plan["source"], "model_ms": plan["timing_ms"]["model"]},
    }


@contextlib.contextmanager
def running(
    command: Sequence[str], environment: Mapping[str, str], log: Path, ready: str, limit: float
) -> Iterator[float]:
    """Run a server that answers a URL once it is ready, and give the seconds that took.

    It drains on exit, so that its replicas free their cores, and what is left of it is ended. Raises RuntimeError with
    its last words where it is not ready in time.
    """
    started = time.monotonic()
    with log.open("w", encoding="utf-8") as lines:
        server = subprocess.Popen(command, env=environment, stdout=lines, stderr=lines, start_new_session=True)
    try:
        while not _answers(ready):
            taken = time.monotonic() - started
            if server.poll() is not None or taken > limit:
                raise RuntimeError(f"the server was not ready after {taken:.0f} s ({log}): {last_words(log)}")
            time.sleep(_POLL_SECONDS)
        yield time.monotonic() - started
    finally:
        server.terminate()
        with contextlib.suppress(subprocess.TimeoutExpired):
            server.wait(_STOP_SECONDS)
        end_group(server)


def free_port() -> int:
    with socket.socket() as listening:
        listening.bind(("127.0.0.1", 0))
        port: int = listening.getsockname()[1]
    return port


def last_words(log: Path) -> str:
    """Return the last lines of a log."""
    return " / ".join(log.read_text(encoding="utf-8", errors="replace").strip().splitlines()[-3:]) or "it said nothing"


def _answers(url: str) -> bool:
    try:
        with urllib.request.urlopen(url, timeout=5) as answer:
            return bool(answer.status == 200)
    except OSError:
        return False


def _plan(address: str) -> dict[str, Any]:
    request = urllib.request.Request(
        f"{address}/plan",
        json.dumps({"query": "red running shoes under $40", "deadline_ms": 2000}).encode(),
        {"content-type": "application/json"},
    )
    with urllib.request.urlopen(request, timeout=30) as answer:
        plan: dict[str, Any] = json.load(answer)
    return plan
