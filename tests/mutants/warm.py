"""Test runs in a copy of the repository, each in a process forked from one that has imported the libraries already.

A run costs what its tests cost, not the seconds that PyTorch and pytest take to start; the sources that somebody edits
meanwhile stay as they are; and what a mutant leaves behind, processes too, ends with it.
"""

import contextlib
import importlib
import io
import json
import math
import os
import resource
import shutil
import signal
import subprocess
import sys
import threading
import time
import traceback
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from enum import Enum, auto
from pathlib import Path
from types import FrameType

import pytest
from hypothesis import settings

from tests.mutants.areas import REPOSITORY

_OURS = ("tests", "service", "infra", "peakplan", "peakplan_client", "rehearsal", "benchmarks", "training")
_MEMORY = 12 << 30  # bytes of addresses: a mutant that collects for ever fails before the machine does
IMPORTED = ""  # instead of a test's name: what is computed before any test runs
_POLL_SECONDS = 0.02
_LONGEST_POLL_SECONDS = 1.0  # a longer one says that the whole machine stood still, the tests too
_BUSY = 20  # times the seconds of the processor that a run without changes may take, by the clock on the wall
_CONTROLS = 40
_MOST_EXAMPLES = 15
# pytest's own plugins were imported before it starts, on purpose.
_QUIETLY = ["-q", "-p", "no:cacheprovider", "-W", "ignore::pytest.PytestAssertRewriteWarning"]
_BROKEN = 70  # how a fork ends that did not come to run its tests: no mutant's doing


class Outcome(Enum):
    PASSED = auto()
    FAILED = auto()
    STOPPED = auto()  # by the clock on the wall: it hangs, or the machine has no time for it


@dataclass
class Baseline:
    """What a run without any change told: which tests enter which function, and how long each test takes."""

    entered: dict[tuple[str, int], set[str]] = field(default_factory=dict)  # by file and first line
    seconds: dict[str, float] = field(default_factory=dict)
    processor: dict[str, float] = field(default_factory=dict)  # seconds of it, which no other work makes more
    passed: bool = False


class Recorder:
    """Notes which test runs while a function of the judged files is entered, in any thread of this process."""

    def __init__(self, root: Path, files: Sequence[str]) -> None:
        self._names = {str(root / file): file for file in files}
        self._entered: dict[tuple[str, int], set[str]] = {}
        self._seconds: dict[str, float] = {}
        self._processor: dict[str, float] = {}
        self._test = IMPORTED

    @pytest.hookimpl(wrapper=True)
    def pytest_collection(self) -> Iterator[None]:
        """Notice what tests compute as they are imported, which is no one's: IMPORTED enters it."""
        sys.settrace(self._on_call)
        try:
            return (yield)
        finally:
            sys.settrace(None)

    @pytest.hookimpl(wrapper=True)
    def pytest_runtest_protocol(self, item: pytest.Item) -> Iterator[None]:
        self._test = item.nodeid.partition("[")[0]
        started, used = time.monotonic(), time.process_time()
        threading.settrace(self._on_call)
        sys.settrace(self._on_call)
        try:
            return (yield)
        finally:
            sys.settrace(None)
            self._seconds[self._test] = self._seconds.get(self._test, 0) + time.monotonic() - started
            self._processor[self._test] = self._processor.get(self._test, 0) + time.process_time() - used

    def _on_call(self, frame: FrameType, _event: str, _argument: object) -> None:
        file = self._names.get(frame.f_code.co_filename)
        if file is not None:
            self._entered.setdefault((file, frame.f_code.co_firstlineno), set()).add(self._test)

    def write(self, path: Path) -> None:
        libraries = [name for name, module in sys.modules.items() if module and name.partition(".")[0] not in _OURS]
        entered = [[*at, sorted(tests)] for at, tests in self._entered.items()]
        times = {"seconds": self._seconds, "processor": self._processor}
        path.write_text(json.dumps({"entered": entered, **times, "libraries": libraries}), "utf-8")


class Follower:
    """Keeps the name of the test that began last: where a run stops at the first failure, the one that failed."""

    def __init__(self, path: Path) -> None:
        self._path = path

    def pytest_runtest_logstart(self, nodeid: str) -> None:
        self._path.write_text(nodeid, "utf-8")


class Workshop:
    """A copy of the repository in which tests run."""

    def __init__(self, folder: Path) -> None:
        self.root = folder / "repository"
        self._told = folder / "told.json"
        self._began = folder / "began.txt"
        self.output = folder / "output.txt"  # of the last run
        done = subprocess.run(
            ["git", "ls-files", "-z", "--cached", "--others", "--exclude-standard"],
            cwd=REPOSITORY, capture_output=True, check=True,
        )  # fmt: skip
        for name in done.stdout.decode().split("\0"):
            if name and (REPOSITORY / name).is_file():
                (self.root / name).parent.mkdir(parents=True, exist_ok=True)
                shutil.copy2(REPOSITORY / name, self.root / name)

    def baseline(self, arguments: Sequence[str], files: Sequence[str], limit: float) -> Baseline:
        """Run tests with nothing changed, then import here what they imported of libraries.

        They have `limit` seconds of the processor, of which a busy machine gives them a tenth: decoding's were once
        stopped by the clock on the wall, and said to fail.
        """
        recorder = Recorder(self.root, files)
        baseline = Baseline(passed=self.run(arguments, _BUSY * limit, recorder, processor=limit) is Outcome.PASSED)
        if baseline.passed:
            told = json.loads(self._told.read_text("utf-8"))
            baseline.entered = {(file, line): set(tests) for file, line, tests in told["entered"]}
            baseline.seconds, baseline.processor = told["seconds"], told["processor"]
            for name in told["libraries"]:
                with contextlib.suppress(Exception), contextlib.redirect_stderr(io.StringIO()):
                    importlib.import_module(name)
            quickest = sorted(baseline.seconds, key=lambda name: baseline.seconds[name])[:_CONTROLS]
            # As the mutants will run: a fork of what is imported now.
            baseline.passed = self.run(quickest, _BUSY * limit, processor=limit) is Outcome.PASSED
        return baseline

    @contextlib.contextmanager
    def changed(self, file: str, source: str) -> Iterator[None]:
        """Change a file of the copy for a while."""
        path = self.root / file
        before, stat = path.read_bytes(), path.stat()
        try:
            path.write_text(source, encoding="utf-8")
            # Python takes a compiled file for this one's where size and second agree: no two mutants share a second.
            os.utime(path, (stat.st_atime, _next_second()))
            yield
        finally:
            path.write_bytes(before)
            os.utime(path, ns=(stat.st_atime_ns, stat.st_mtime_ns))

    @property
    def last_begun(self) -> str:
        """The test that the last run began last; "" where it came to none."""
        return self._began.read_text("utf-8") if self._began.exists() else ""

    def run(
        self, arguments: Sequence[str], limit: float, recorder: Recorder | None = None, processor: float | None = None
    ) -> Outcome:
        """Run pytest in a fork, for at most `limit` seconds, `processor` of its own; what it started ends with it."""
        self._began.unlink(missing_ok=True)
        shutil.rmtree(self.root / ".hypothesis", ignore_errors=True)  # what one mutant taught is not for the next
        pid = os.fork()
        if pid == 0:
            self._run(arguments, recorder, processor)
        waited, looked = 0.0, time.monotonic()
        while waited < limit:
            ended, status = os.waitpid(pid, os.WNOHANG)
            if ended:
                break
            time.sleep(_POLL_SECONDS)
            now = time.monotonic()
            waited, looked = waited + min(now - looked, _LONGEST_POLL_SECONDS), now
        else:
            os.killpg(pid, signal.SIGKILL)
            os.waitpid(pid, 0)
            return Outcome.STOPPED
        with contextlib.suppress(ProcessLookupError):
            os.killpg(pid, signal.SIGKILL)
        code = os.waitstatus_to_exitcode(status)
        if code == _BROKEN:
            raise RuntimeError(f"the tests could not start:\n{self.output.read_text('utf-8')}")
        return Outcome.FAILED if code else Outcome.PASSED

    def _run(self, arguments: Sequence[str], recorder: Recorder | None, processor: float | None) -> None:
        """Be the fork: never return."""
        code = _BROKEN
        try:
            os.setsid()
            signal.signal(signal.SIGTERM, signal.SIG_DFL)
            written = os.open(self.output, os.O_WRONLY | os.O_CREAT | os.O_TRUNC)
            for descriptor in (1, 2):
                os.dup2(written, descriptor)
            os.dup2(os.open(os.devnull, os.O_RDONLY), 0)
            resource.setrlimit(resource.RLIMIT_AS, (_MEMORY, _MEMORY))
            if processor is not None:  # a fork's clock begins at zero
                resource.setrlimit(resource.RLIMIT_CPU, (math.ceil(processor), math.ceil(processor) + 1))
            os.chdir(self.root)
            paths = [str(self.root), str(self.root / "clients")]
            sys.path[:] = [
                *paths,
                *(path for path in sys.path if not path.startswith(str(REPOSITORY)) or ".venv" in path),
            ]
            os.environ["PYTHONPATH"] = os.pathsep.join(paths)
            for name in [name for name in sys.modules if name.partition(".")[0] in _OURS]:
                del sys.modules[name]
            sys.dont_write_bytecode = recorder is None
            _hold_to_few_examples()
            code = int(pytest.main([*_QUIETLY, *arguments], [Follower(self._began), *([recorder] if recorder else [])]))
            if recorder and code == 0:
                recorder.write(self._told)
        except BaseException:
            traceback.print_exc()
        finally:
            sys.stdout.flush()
            sys.stderr.flush()
            os._exit(code)


def _hold_to_few_examples() -> None:
    """Try every property on a few examples: a mutant that one of hundreds shows may pass for a survivor.

    Tests say how many they want, which hypothesis lets no profile overrule.
    """
    own = settings.__dict__["max_examples"].fget
    type.__setattr__(settings, "max_examples", property(lambda each: min(own(each), _MOST_EXAMPLES)))


_second = int(time.time())


def _next_second() -> int:
    global _second
    _second += 1
    return _second
