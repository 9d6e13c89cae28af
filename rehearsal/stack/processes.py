"""Starts a stack's programs, each with its log in the folder, waits until they answer, and stops them all."""

from __future__ import annotations

import contextlib
import os
import re
import signal
import ssl
import subprocess
import sys
import threading
import time
import urllib.request
from collections.abc import Callable, Iterator, Mapping
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path

from rehearsal.stack.folder import (
    ADMIN_PORT,
    ALERTMANAGER,
    BALANCER,
    CACHE_PORT,
    CELLS,
    HOST_PORT,
    PROMETHEUS,
    ROOT,
    Folder,
    StackError,
    clock_library,
    found,
)
from rehearsal.stack.shop_database import ShopDatabase

START_SECONDS = 300.0
_STOP_SECONDS = 20.0
_POLL_SECONDS = 0.1
_LOG_TAIL = 800
EXPORTER_PORT = 9121
# `gateways` are the threads of their event loops, `replicas` those that plan, `hosts` the other threads of both.
KINDS = ("gateways", "replicas", "hosts", "envoy", "rest", "harness")
Thread = tuple[str, int, int]  # its kind, its process and its own id


class StoppedError(Exception):
    """Raised where a stack is asked to stop before it is ready."""


class Programs:
    """The processes of one stack, by name: `cell-1/127.20.1.11`, `envoy`, `cell-1/cache` and so on."""

    def __init__(self, folder: Folder, environment: Mapping[str, str], *, light: bool) -> None:
        """Take the variables of every planner host, and whether they take recorded times."""
        self.folder, self._environment, self._light = folder, dict(environment), light
        self._running: dict[str, subprocess.Popen[bytes]] = {}
        # Envoy asks to end with its parent (PR_SET_PDEATHSIG), which to the kernel is the thread that started it: one
        # that lives as long as all programs starts them, and not a scenario's, which ends when it has acted.
        self._starter = ThreadPoolExecutor(1)

    def start(
        self, name: str, command: list[str], environment: Mapping[str, str] | None = None, user: str | None = None
    ) -> None:
        """Start a program whose output goes to its log, as another user where one is named."""
        with (self.folder.path / "logs" / f"{name.replace('/', '-')}.log").open("ab") as log:
            variables = {**os.environ, **(environment or {})}
            # A session of its own: Ctrl-C is ours alone, and what a host starts is found by its group.
            self._running[name] = self._starter.submit(
                subprocess.Popen,
                command,
                cwd=ROOT if user is None else "/",
                user=user,
                group=user,
                extra_groups=[] if user else None,
                env=variables,
                stdout=log,
                stderr=log,
                stdin=subprocess.DEVNULL,
                start_new_session=True,
            ).result()

    def start_host(self, cell: str, address: str, **more: str) -> None:
        """Start one planner host; `more` are variables of its own."""
        module = "rehearsal.light_host" if self._light else "service"
        name = f"{cell}/{address}"
        variables = {
            **self._environment,
            "HOST": address,
            "PORT": str(HOST_PORT),
            "PEAKPLAN_CELL": cell,
            "PEAKPLAN_CACHE_URL": f"redis://{self.folder.cache(cell)}:{CACHE_PORT}/0",
            "PEAKPLAN_CALLER_FROM": "forwarded",
            "PEAKPLAN_ALLOWED_HOSTS": "planner.internal",
            "LIGHT_SLOWDOWN": str(self.folder.path / "slow" / address),
            **self.clock_of(address),
            **more,
        }
        self.start(name, [sys.executable, "-m", module], variables)

    def clock_of(self, address: str) -> dict[str, str]:
        """Return the variables of a host whose clock can be set; its timers go on as they do. README of libfaketime."""
        file = self.folder.path / "clocks" / address
        if not file.is_file():
            return {}
        return {
            "LD_PRELOAD": clock_library(),
            "FAKETIME_TIMESTAMP_FILE": str(file),
            "FAKETIME_CACHE_DURATION": "1",
            "FAKETIME_DONT_FAKE_MONOTONIC": "1",
            "DONT_FAKE_MONOTONIC": "1",
        }

    def start_cache(self, cell: str) -> None:
        """Start a cell's shared cache, which keeps nothing on disk."""
        address = self.folder.cache(cell)
        words = ["--port", str(CACHE_PORT), "--bind", address, "--save", "", "--maxmemory", "64mb"]
        words += [
            "--maxmemory-policy",
            "allkeys-lru",
            "--protected-mode",
            "no",
            "--dir",
            str(self.folder.path / "data"),
        ]
        self.start(f"{cell}/cache", [found("cache"), *words])

    def start_rest(self) -> None:
        """Start Envoy, Prometheus, Alertmanager and what reads the caches' state."""
        path, data = self.folder.path, self.folder.path / "data"
        for cell in CELLS:
            listen = f"{self.folder.cache(cell)}:{EXPORTER_PORT}"
            words = [f"--web.listen-address={listen}", f"--redis.addr=redis://{self.folder.cache(cell)}:{CACHE_PORT}"]
            self.start(f"{cell}/cache-exporter", [found("cache-exporter"), *words])
        self.start_envoy()
        alertmanager = [f"--web.listen-address={self.folder.address(ALERTMANAGER)}:9093", "--cluster.listen-address="]
        alertmanager += [f"--config.file={path / 'alertmanager.yml'}", f"--storage.path={data / 'alertmanager'}"]
        self.start("alertmanager", [found("alertmanager"), *alertmanager])
        prometheus = [f"--web.listen-address={self.folder.address(PROMETHEUS)}:9090", "--web.enable-lifecycle"]
        prometheus += [f"--config.file={path / 'prometheus.yml'}", f"--storage.tsdb.path={data / 'prometheus'}"]
        self.start("prometheus", [found("prometheus"), *prometheus, "--storage.tsdb.retention.time=1d"])

    def start_envoy(self, epoch: int = 0) -> None:
        """Start Envoy, or a successor (`epoch` 1 and up) that takes over its listeners and lets it finish."""
        base = str(int(self.folder.network.split(".")[1]))  # so that stacks beside each other share no memory
        words = ["-c", str(self.folder.path / "envoy.yaml"), "--log-level", "warning", "--concurrency", "1"]
        words += [
            "--base-id",
            base,
            "--restart-epoch",
            str(epoch),
            "--drain-time-s",
            "5",
            "--parent-shutdown-time-s",
            "8",
        ]
        self.start(f"envoy-{epoch}" if epoch else "envoy", [found("envoy"), *words])

    def signal(self, name: str, number: signal.Signals) -> None:
        """Send a signal to a program and, where it kills or freezes, to what it started."""
        process = self._running[name]
        if number in (signal.SIGKILL, signal.SIGSTOP, signal.SIGCONT):
            os.killpg(process.pid, number)
        else:
            process.send_signal(number)

    def wait(self, name: str, seconds: float = _STOP_SECONDS) -> int:
        """Wait until a program has ended; return its exit code. Raises subprocess.TimeoutExpired."""
        code = self._running[name].wait(seconds)
        del self._running[name]
        return code

    def ended(self) -> str:
        """Return the name of a program that has ended by itself; "" where all run."""
        return next((name for name, process in self._running.items() if process.poll() is not None), "")

    def scheduled(self) -> dict[Thread, Scheduled]:
        """Return what every thread of the stack, and of this process, had of the processors so far."""
        return counted({process.pid: _kind(name) for name, process in self._running.items()})

    def log_of(self, name: str) -> str:
        """Return the end of a program's log."""
        path = self.folder.path / "logs" / f"{name.replace('/', '-')}.log"
        return path.read_text(encoding="utf-8", errors="replace")[-_LOG_TAIL:].strip()

    def stop(self) -> None:
        """Stop everything and leave no process."""
        signals = [(signal.SIGCONT, 0.0), (signal.SIGTERM, _STOP_SECONDS), (signal.SIGKILL, _STOP_SECONDS)]
        for number, patience in signals:
            for process in self._running.values():
                with contextlib.suppress(ProcessLookupError):
                    os.killpg(process.pid, number)
            end = time.monotonic() + patience
            for process in self._running.values():
                if patience:
                    with contextlib.suppress(subprocess.TimeoutExpired):
                        process.wait(max(end - time.monotonic(), 0.01))
        self._running.clear()
        self._starter.shutdown()


def _kind(name: str) -> str:
    return "envoy" if name.startswith("envoy") else "hosts" if re.fullmatch(r"cell-\d/[\d.]+", name) else "rest"


@contextlib.contextmanager
def running(
    folder: Folder,
    environment: Mapping[str, str],
    *,
    light: bool,
    shop: ShopDatabase | None = None,
    stop: threading.Event | None = None,
) -> Iterator[Programs]:
    """Run a stack whose parts are all ready; stop it on exit, whatever happens, and remove its `shop`.

    Raises StackError, and StoppedError where `stop` is set before it is ready.
    """
    shared = {"PEAKPLAN_SAMPLE_SHOP_URL": shop.url} if shop else {}
    programs = Programs(folder, {**environment, **shared}, light=light)
    try:
        for cell in CELLS:
            programs.start_cache(cell)
            for address in folder.hosts(cell):
                programs.start_host(cell, address)
        programs.start_rest()
        if shop:  # hosts start meanwhile, and ask it at the first search
            programs.start("shop", shop.make(), user=shop.user)
            try:
                shop.fill()
            except StackError as error:  # the catalogue cannot be downloaded, say; plans need none
                print(f"the sample shop is empty: {error}", file=sys.stderr)
        wait_until_ready(programs, stop or threading.Event())
        yield programs
    finally:
        programs.stop()
        if shop:
            shop.remove()


def wait_until_ready(programs: Programs, stop: threading.Event) -> None:
    """Return once Envoy sees every host healthy and Prometheus and Alertmanager are ready.

    Raises StackError, and StoppedError where `stop` is set before.
    """
    folder = programs.folder
    wanted = folder.shape.hosts * len(CELLS)
    checks: list[tuple[str, Callable[[], bool]]] = [
        ("every host healthy to Envoy", lambda: healthy_hosts(folder) == wanted),
        ("Prometheus ready", lambda: bool(fetch(f"http://{folder.address(PROMETHEUS)}:9090/-/ready"))),
        ("Alertmanager ready", lambda: bool(fetch(f"http://{folder.address(ALERTMANAGER)}:9093/-/ready"))),
    ]
    end = time.monotonic() + START_SECONDS
    for words, check in checks:
        while not check():
            if ended := programs.ended():
                raise StackError(f"{ended} ended: {programs.log_of(ended) or 'it said nothing'}")
            if time.monotonic() > end:
                raise StackError(f"not within {START_SECONDS:g} s: {words}. The logs are in {folder.path / 'logs'}")
            if stop.wait(_POLL_SECONDS):
                raise StoppedError("asked to stop while it starts")


def healthy_hosts(folder: Folder) -> int:
    """Return how many hosts Envoy sends requests to."""
    text = fetch(f"http://{folder.address(BALANCER)}:{ADMIN_PORT}/clusters").decode()
    flags = [line.rpartition("::")[2] for line in text.splitlines() if "::health_flags::" in line]
    return sum(flag == "healthy" for flag in flags)


def fetch(url: str, seconds: float = 2.0) -> bytes:
    """Return the body of a GET; empty without an answer of 200."""
    try:
        with urllib.request.urlopen(url, timeout=seconds) as answer:
            body: bytes = answer.read()
            return body
    except OSError:
        return b""


def trusting(folder: Folder) -> ssl.SSLContext:
    """Return what callers verify Envoy's certificate with."""
    return ssl.create_default_context(cafile=Path(folder.path / "certificates" / "authority.pem"))


@dataclass(frozen=True, slots=True)
class Scheduled:
    """What threads had of the processors by Linux's scheduler: seconds that they ran, that they waited, and turns."""

    ran: float = 0.0
    waited: float = 0.0
    turns: int = 0

    def __add__(self, other: Scheduled) -> Scheduled:
        return Scheduled(self.ran + other.ran, self.waited + other.waited, self.turns + other.turns)

    def __sub__(self, other: Scheduled) -> Scheduled:
        return Scheduled(self.ran - other.ran, self.waited - other.waited, self.turns - other.turns)

    @property
    def wait(self) -> float:
        """The seconds that a thread waited for each of its turns."""
        return self.waited / max(self.turns, 1)


def counted(kinds: Mapping[int, str]) -> dict[Thread, Scheduled]:
    """Return the counts so far of every thread of these process groups, whose kinds are given.

    A gateway leads its group, and starts each replica in another. `harness` is this process, the load generator in it.
    """
    found: dict[Thread, Scheduled] = {}
    for process in Path("/proc").glob("[0-9]*"):
        with contextlib.suppress(OSError):  # it has ended meanwhile
            number = int(process.name)
            parent, group = map(int, (process / "stat").read_text(encoding="ascii").rpartition(")")[2].split()[1:3])
            kind = "harness" if number == os.getpid() else kinds.get(group) or kinds.get(parent, "")
            for thread in process.glob("task/*") if kind else ():
                is_main = kind == "hosts" and thread.name == process.name
                plans = ("gateways" if number in kinds else "replicas") if is_main else kind
                found[plans, number, int(thread.name)] = _of_thread(thread)
    return found


def grown(before: Mapping[Thread, Scheduled], after: Mapping[Thread, Scheduled]) -> dict[str, Scheduled]:
    """Return by kind how much its threads' counts grew; of those that ended meanwhile nothing is known."""
    sums = dict.fromkeys(KINDS, Scheduled())
    for thread, count in after.items():
        sums[thread[0]] += count - before.get(thread, Scheduled())
    return sums


def _of_thread(thread: Path) -> Scheduled:
    ran, waited, turns = map(int, (thread / "schedstat").read_text(encoding="ascii").split())
    return Scheduled(ran / 1e9, waited / 1e9, turns)
