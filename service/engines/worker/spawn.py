"""Starts replica processes, and finds them; `ForkServer` forks them from one process that has already loaded the model.

Loading takes seconds and hundreds of megabytes. A fork takes milliseconds, and replicas, which only read the weights,
share them: each further replica costs only its K/V cache, and one that dies is replaced at once. This is only for
models that live in one thread on the CPU (`ModelSource.forkable`): neither threads nor devices survive a fork.

Forked replicas are orphans that this process adopts: they live on where the fork server is lost, and another one is
started.
"""

import asyncio
import contextlib
import ctypes
import logging
import os
import select
import signal
import socket
import subprocess
import sys
from pathlib import Path
from typing import ClassVar, Protocol

import service
from service.engines.protocol import EngineUnavailableError
from service.engines.worker.messages import Failure, Forked, LoadModel, Message, ModelSource, Ready, ReplicaConnection

REPLICA = "plan-replica"
FORK_SERVER = "plan-forkserver"
_PR_SET_NAME = 15  # linux/prctl.h
_SOURCE_ROOT = Path(service.__file__).parents[1]

logger = logging.getLogger(__name__)

_PR_SET_CHILD_SUBREAPER = 36  # linux/prctl.h
_FORK_SECONDS = 10.0  # a fork takes milliseconds; a fork server that takes this long is stuck


def spawn(stream: socket.socket, python: str = "") -> subprocess.Popen[bytes]:
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
        "OMP_NUM_THREADS": "1",
        "MKL_NUM_THREADS": "1",
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


class Process(Protocol):
    """A replica's process as an engine needs it, with the names of `subprocess.Popen`."""

    @property
    def pid(self) -> int: ...

    def kill(self) -> None: ...

    def wait(self) -> int: ...


class ForkedProcess:
    """A replica's process, held by its descriptor, so that a reused process id is never signalled."""

    def __init__(self, pid: int) -> None:
        """Open the process descriptor. Raises EngineUnavailableError when the process has already ended."""
        self.pid = pid
        self._code: int | None = None
        try:
            self._descriptor = os.pidfd_open(pid)
        except OSError as error:
            raise EngineUnavailableError("the replica's process ended as it began") from error

    def kill(self) -> None:
        with contextlib.suppress(ProcessLookupError):
            signal.pidfd_send_signal(self._descriptor, signal.SIGKILL)

    def wait(self) -> int:
        """Return its exit code once it has ended, or its signal as a negative number."""
        ended = select.poll()  # and not `select`, which takes no descriptor above 1023
        ended.register(self._descriptor, select.POLLIN)
        ended.poll()
        with contextlib.suppress(ChildProcessError):  # another thread was faster, or it has another parent
            end = os.waitid(os.P_PIDFD, self._descriptor, os.WEXITED)
            if end is not None:
                self._code = end.si_status if end.si_code == os.CLD_EXITED else -end.si_status
        return self._code or 0

    def __del__(self) -> None:
        with contextlib.suppress(AttributeError, OSError):
            os.close(self._descriptor)


class ForkServer:
    """The fork server process of one model, for all engines of this process that serve that model."""

    _shared: ClassVar[dict[str, "ForkServer"]] = {}

    def __init__(self, source: ModelSource, key: str) -> None:
        self._source = source
        self._key = key
        self._members = 0
        self._keeper: asyncio.Task[None] | None = None
        self._one_at_a_time = asyncio.Lock()
        self._process: subprocess.Popen[bytes] | None = None
        self._link: ReplicaConnection | None = None
        self._control: socket.socket | None = None

    @classmethod
    def join(cls, source: ModelSource) -> "ForkServer":
        """Return the fork server of this model; the caller has to `leave` it in the end."""
        key = repr((source.loader, sorted(source.arguments.items()), source.version))
        fork_server = cls._shared.setdefault(key, cls(source, key))
        fork_server._members += 1
        return fork_server

    async def leave(self) -> None:
        self._members -= 1
        if self._members == 0:
            self._shared.pop(self._key, None)
            if self._keeper is not None:
                self._keeper.cancel()
            async with self._one_at_a_time:
                await self._stop()

    async def fork(self, stream: socket.socket) -> Process:
        """Fork a replica that serves on `stream` and answers LoadModel there, loading the model first if necessary.

        Raises EngineUnavailableError with the fork server's own reason.
        """
        async with self._one_at_a_time:
            if self._link is None or self._link.gone.is_set() or (self._process and self._process.poll() is not None):
                await self._stop()
                await self._start()
            assert self._link is not None
            assert self._control is not None
            answer = self._link.expect()
            try:
                socket.send_fds(self._control, [b"\0"], [stream.fileno()])
                async with asyncio.timeout(_FORK_SECONDS):
                    forked = await answer
            except BaseException as error:
                await self._stop()  # a late answer must not be taken for the next one's
                if isinstance(error, OSError):  # a TimeoutError is one
                    raise EngineUnavailableError("the process that replicas are forked from does not answer") from error
                raise
        if not isinstance(forked, Forked):
            raise EngineUnavailableError(_reason(forked))
        return ForkedProcess(forked.pid)

    async def _start(self) -> None:
        ctypes.CDLL(None).prctl(_PR_SET_CHILD_SUBREAPER, 1, 0, 0, 0)
        ours, theirs = socket.socketpair()
        with theirs:
            try:
                self._process = spawn(theirs, self._source.python)
            except EngineUnavailableError:
                ours.close()
                raise
        self._control = ours.dup()  # sent past the event loop's transport, which handles only bytes
        _, self._link = await asyncio.get_running_loop().create_unix_connection(ReplicaConnection, sock=ours)
        self._link.send(LoadModel(self._source, os.getpid(), forks=True))
        try:
            answer = await self._link.expect()
        except BaseException:
            await self._stop()
            raise
        if not isinstance(answer, Ready):
            await self._stop()
            raise EngineUnavailableError(_reason(answer))
        self._keeper = asyncio.create_task(self._replace(self._link))

    async def _replace(self, link: ReplicaConnection) -> None:
        """Start another fork server where this one is lost; if that fails, the next fork tries it again."""
        await link.gone.wait()
        async with self._one_at_a_time:
            if self._link is not link or not self._members:
                return
            logger.error("the process that replicas are forked from is lost: another one is started")
            await self._stop()
            try:
                await self._start()
            except EngineUnavailableError as error:
                logger.error("no process to fork replicas from", extra={"reason": str(error)})

    async def _stop(self) -> None:
        link, control, process = self._link, self._control, self._process
        self._link, self._control, self._process = None, None, None
        if link is not None:
            link.close()
        if control is not None:
            control.close()
        if process is not None:
            process.kill()
            await asyncio.to_thread(process.wait)


def can_fork() -> bool:
    """Tell whether this system has process descriptors (Linux does)."""
    return sys.platform == "linux" and hasattr(os, "pidfd_open")


def _reason(message: Message) -> str:
    return message.reason if isinstance(message, Failure) else "the fork server sent an unexpected message"
