"""Writes events to disk before they are acknowledged.

Callers wait for the write, which many share, so that a process that is killed loses nothing that it answered
for. A disk that is full or gone is left for the next folder; where no folder takes a line, its sender hears so and
keeps it. No plan waits for any of this: a thread of its own writes. It wakes fifty times a second at most, because each
time it takes the interpreter from the event loop, and a core from the model. What comes meanwhile shares one batch and
one future: it is joined, written and told together, and the event loop wakes once for all of it.
"""

import asyncio
import contextlib
import errno
import logging
import os
import select
import time
from collections.abc import Callable, Sequence
from concurrent.futures import Future
from dataclasses import dataclass, field
from pathlib import Path
from threading import Condition, Thread

logger = logging.getLogger(__name__)

NAME = "events"
_WAITING = 1024  # appends that wait for a slow disk, each no larger than a request
_GATHER_SECONDS = 0.02  # between two writes; appends do not wake the thread meanwhile
_CLOSE_SECONDS = 5.0  # for a disk that hangs


class RotatingFile:
    """Appends whole texts or nothing. One thread writes."""

    def __init__(self, path: Path, *, file_bytes: int, files: int) -> None:
        self.path, self._file_bytes, self._files = path, file_bytes, files

    def check(self) -> None:
        """Raise OSError where the file cannot be written."""
        os.close(self._open())

    def append(self, text: bytes) -> None:
        """Write all of a text. Raises OSError where not all of it fits; then nothing of it is there."""
        file = self._open()
        try:
            before = os.fstat(file).st_size
            try:
                written = os.write(file, text)
            except OSError:
                os.ftruncate(file, before)
                raise
            if written < len(text):  # the disk is full
                os.ftruncate(file, before)
                raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))
        finally:
            os.close(file)
        if before + len(text) > self._file_bytes:
            self._rotate()

    def _open(self) -> int:
        return os.open(self.path, os.O_WRONLY | os.O_APPEND | os.O_CREAT, 0o640)  # only the service's group reads them

    def _rotate(self) -> None:
        self.path.rename(self.path.with_name(f"{self.path.stem}-{time.time_ns()}.jsonl"))
        for old in set_aside(self.path)[: -self._files]:
            old.unlink(missing_ok=True)


def set_aside(path: Path) -> list[Path]:
    """Return the full files of a rotating file, oldest first."""
    return sorted(path.parent.glob(f"{path.stem}-*.jsonl"))


@dataclass(slots=True)
class _Waiting:
    timer: asyncio.TimerHandle
    requests: list["asyncio.Future[bool]"] = field(default_factory=list)


class Landing:
    """Tells requests of one event loop whether what they appended is in a file."""

    def __init__(self) -> None:
        self._waiting: dict[Future[bool], _Waiting] = {}

    async def kept(self, written: "Future[bool]", seconds: float) -> bool:
        """Return a write's result; False where it is not known in time, because a disk hangs."""
        if written.done():
            return written.result()
        loop = asyncio.get_running_loop()
        waiting = self._waiting.get(written)
        if waiting is None:
            waiting = self._waiting[written] = _Waiting(loop.call_later(seconds, self._land, written, False))
            written.add_done_callback(lambda done: self._wake(loop, done))
        request = loop.create_future()
        waiting.requests.append(request)
        return bool(await request)

    def _wake(self, loop: asyncio.AbstractEventLoop, written: "Future[bool]") -> None:
        with contextlib.suppress(RuntimeError):  # the loop is closed: no request waits
            loop.call_soon_threadsafe(self._land, written, written.result())

    def _land(self, written: "Future[bool]", kept: bool) -> None:
        if (waiting := self._waiting.pop(written, None)) is None:
            return  # given up before
        waiting.timer.cancel()
        for request in waiting.requests:
            if not request.done():
                request.set_result(kept)


def _running() -> "Future[bool]":
    future: Future[bool] = Future()
    future.set_running_or_notify_cancel()  # who no longer waits, for a disk that hangs, cannot take it back
    return future


@dataclass(slots=True)
class _Batch:
    """What is written at once."""

    texts: list[bytes] = field(default_factory=list)
    count: int = 0
    future: "Future[bool]" = field(default_factory=_running)


class JournalError(RuntimeError):
    """Raised where no folder can be written; the message says which."""


class Journal:
    """Appends lines to `events.jsonl` of the first folder that takes them."""

    def __init__(self, folders: Sequence[Path], *, file_bytes: int, files: int) -> None:
        """Raise JournalError where a folder cannot be written now: later it may fill up."""
        self._files = [RotatingFile(folder / f"{NAME}.jsonl", file_bytes=file_bytes, files=files) for folder in folders]
        for file in self._files:
            try:
                file.path.parent.mkdir(parents=True, exist_ok=True)
                file.check()
            except OSError as error:
                raise JournalError(f"{file.path.parent}: {error.strerror}") from error
        self.listener: Callable[[], None] = lambda: None  # is told of every write
        self.refused = self.spilled = 0  # events that no file took, and those that another folder took
        self._batch: _Batch | None = None  # what comes now; None: nothing has come since the last one was taken
        self._changed, self._sleeps, self._ends = Condition(), False, False
        self._thread = Thread(target=self._write_for_ever, name=NAME, daemon=True)
        self._thread.start()

    @property
    def paths(self) -> list[Path]:
        return [file.path for file in self._files]

    def append(self, lines: bytes, count: int) -> "Future[bool]":
        """Take `count` lines; the result, once it is known, says whether they are in a file. Others may share it."""
        with self._changed:
            batch = self._batch = self._batch or _Batch()
            if len(batch.texts) < _WAITING:
                batch.texts.append(lines)
                batch.count += count
                if self._sleeps:
                    self._sleeps = False
                    self._changed.notify()
                return batch.future
        self._refuse(count, "too many wait for a slow disk")
        refused = _running()
        refused.set_result(False)
        return refused

    def close(self) -> None:
        """Write the waiting events, without waiting for a disk that hangs."""
        with self._changed:
            self._ends = True
            self._changed.notify()
        self._thread.join(_CLOSE_SECONDS)

    def _write_for_ever(self) -> None:
        ends = False
        while not ends:
            _pause()
            if self._batch is None and not self._ends:  # no event for a while: the next one wakes this thread
                self._sleep()
                _pause()
            with self._changed:
                batch, self._batch, ends = self._batch, None, self._ends
            if batch is not None:
                batch.future.set_result(self._write(b"".join(batch.texts), batch.count))
                self.listener()

    def _sleep(self) -> None:
        with self._changed:
            while self._batch is None and not self._ends:
                self._sleeps = True
                self._changed.wait()

    def _write(self, text: bytes, count: int) -> bool:
        why = ""
        for place, file in enumerate(self._files):
            try:
                file.append(text)
            except OSError as error:
                why = f"{file.path}: {error.strerror}"
                continue
            if place:
                self.spilled += count
                _tell(f"events are spilled to {file.path.parent}", self.spilled, count, why)
            return True
        self._refuse(count, why)
        return False

    def _refuse(self, count: int, why: str) -> None:
        self.refused += count
        _tell("events are refused; their senders are told to send them again", self.refused, count, why)


def _pause() -> None:
    select.select((), (), (), _GATHER_SECONDS)  # libfaketime, which moves a rehearsed host's clock, breaks time.sleep


def _tell(what: str, now: int, count: int, why: str) -> None:
    """Log the first, and then ever more rarely."""
    if now.bit_length() > (now - count).bit_length():
        logger.warning(what, extra={"count": now, "detail": why})
