"""The container's first process, and its HEALTHCHECK."""

import os
import signal
import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from urllib.parse import urlsplit

import pytest

from infra.fleet.parts import REPOSITORY_ROOT
from tests.processes import eventually

# A program that records its signals, takes a moment to end when asked, and exits with a code of its own.
PROGRAM = """
import os, signal, sys, time
name, code, log = sys.argv[1], int(sys.argv[2]), sys.argv[3]
def note(word):
    with open(log, "a") as file:
        file.write(f"{name} {word}\\n")
def end(number, frame):
    note("told to end")
    time.sleep(0.2)
    note("ended")
    os._exit(code)
signal.signal(signal.SIGTERM, end)
signal.signal(signal.SIGHUP, lambda number, frame: note("hung up"))
note("started")
note(f"blocks {sorted(signal.pthread_sigmask(signal.SIG_BLOCK, ()))}")
time.sleep(60)
"""
SUPERVISE = """
import sys
from service.container.__main__ import Process, Supervisor
gateway, *helpers = [Process(word.split()[1], [sys.executable, *word.split()]) for word in sys.argv[1:]]
sys.exit(Supervisor(gateway, helpers, helper_stop_seconds=1).run())
"""


class Container:
    """A supervisor in a process of its own, and the records of its programs."""

    def __init__(self, folder: Path) -> None:
        self.log = folder / "log"
        self._program = folder / "program.py"
        self._program.write_text(PROGRAM, encoding="utf-8")
        self.process: subprocess.Popen[bytes] | None = None

    def start(self, *programs: tuple[str, int]) -> None:
        words = [f"{self._program} {name} {code} {self.log}" for name, code in programs]
        self.process = subprocess.Popen([sys.executable, "-c", SUPERVISE, *words], cwd=REPOSITORY_ROOT)
        self.until(lambda: self.noted("started") == len(programs))

    def lines(self) -> list[str]:
        return self.log.read_text(encoding="utf-8").splitlines() if self.log.exists() else []

    def noted(self, word: str) -> int:
        return sum(line.endswith(f" {word}") for line in self.lines())

    def send(self, number: int) -> None:
        assert self.process is not None
        self.process.send_signal(number)

    def code(self) -> int:
        assert self.process is not None
        return self.process.wait(30)

    def until(self, holds: Callable[[], bool]) -> None:
        eventually(holds, "waited in vain")

    def pid_of(self, name: str) -> int:
        assert self.process is not None
        children = Path(f"/proc/{self.process.pid}/task/{self.process.pid}/children").read_text(encoding="ascii")
        for pid in map(int, children.split()):
            if f"program.py\0{name}\0" in Path(f"/proc/{pid}/cmdline").read_text(encoding="utf-8"):
                return pid
        return 0


@pytest.fixture
def container(tmp_path: Path) -> Iterator[Container]:
    container = Container(tmp_path)
    yield container
    if container.process is not None and container.process.poll() is None:
        container.send(signal.SIGTERM)
        container.process.wait(30)


def test_the_gateway_ends_before_what_it_leans_on_and_its_code_is_the_container_s(container: Container) -> None:
    container.start(("gateway", 3), ("triton", 0), ("second", 0))
    container.send(signal.SIGTERM)
    assert container.code() == 3
    ends = [line for line in container.lines() if "end" in line]
    assert ends == [f"{name} {word}" for name in ("gateway", "second", "triton") for word in ("told to end", "ended")]


def test_a_gateway_that_dies_ends_the_container(container: Container) -> None:
    container.start(("gateway", 0), ("triton", 0))
    os.kill(container.pid_of("gateway"), signal.SIGKILL)
    assert container.code() == 128 + signal.SIGKILL
    assert container.lines()[-1] == "triton ended"


def test_a_helper_that_dies_is_started_again(container: Container) -> None:
    container.start(("gateway", 0), ("triton", 0))
    os.kill(container.pid_of("triton"), signal.SIGKILL)
    container.until(lambda: container.lines().count("triton started") == 2)
    container.send(signal.SIGTERM)
    assert container.code() == 0
    assert container.lines()[-1] == "triton ended"


def test_a_helper_that_will_not_end_is_killed(container: Container) -> None:
    container.start(("gateway", 0), ("triton", 0))
    os.kill(container.pid_of("triton"), signal.SIGSTOP)
    container.send(signal.SIGTERM)
    assert container.code() == 0
    assert "triton told to end" not in container.lines()


def test_programs_start_with_no_signal_blocked_and_a_hang_up_reaches_the_gateway_alone(container: Container) -> None:
    container.start(("gateway", 0), ("triton", 0))
    container.until(lambda: container.noted("blocks []") == 2)
    container.send(signal.SIGHUP)
    container.until(lambda: container.noted("hung up") == 1)
    assert "gateway hung up" in container.lines()


def test_a_program_that_is_not_there_is_an_error_in_words() -> None:
    script = SUPERVISE.replace("sys.executable", "'/nowhere/at-all'")
    done = subprocess.run(
        [sys.executable, "-c", script, "x gateway"], cwd=REPOSITORY_ROOT, capture_output=True, text=True, check=False
    )
    assert done.returncode != 0
    assert "/nowhere/at-all" in done.stderr


def asks(port: int | str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [sys.executable, "-m", "service.container.health"],
        env={"PORT": str(port), "HOST": "0.0.0.0"},
        cwd=REPOSITORY_ROOT,
        capture_output=True,
        text=True,
        check=False,
    )


def test_a_service_that_answers_is_healthy(service_url: str) -> None:
    assert asks(urlsplit(service_url).port or 0).returncode == 0


def test_nobody_there_is_unhealthy_in_words() -> None:
    done = asks(1)
    assert done.returncode == 1
    assert "refused" in done.stderr
