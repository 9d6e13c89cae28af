"""Where events are written before anybody is told that they are kept.

Whoever appends waits for the write, which many share, so that a process that is killed loses nothing that it answered
for. A disk that is full or gone is left for the next folder; where no folder takes a line, its sender hears so and
keeps it. No plan waits for any of this: a thread of its own writes. It wakes fifty times a second at most, because each
time it takes the interpreter from the event loop, and a core from the model. What comes meanwhile shares one batch and
one future: it is joined, written and told together.
"""

import logging
import select
from collections.abc import Callable, Sequence
from concurrent.futures import Future
from dataclasses import dataclass, field
from pathlib import Path
from threading import Condition, Thread

from service.events.rotating import RotatingFile

logger = logging.getLogger(__name__)

NAME = "events"
_WAITING = 1024  # appends that wait for a slow disk, each no larger than a request
_GATHER_SECONDS = 0.02  # between two writes, in which appends wake nobody
_CLOSE_SECONDS = 5.0  # for a disk that hangs


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
        self.refused = self.spilled = 0  # events that nobody kept here, and those that another folder took
        self._batch: _Batch | None = None  # what comes now; None: nothing has come since the last one was taken
        self._changed, self._sleeps, self._ends = Condition(), False, False
        self._thread = Thread(target=self._write_for_ever, name=NAME, daemon=True)
        self._thread.start()

    @property
    def paths(self) -> list[Path]:
        """The files that are written now, one a folder."""
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
        """Write what waits; a disk that hangs keeps nobody."""
        with self._changed:
            self._ends = True
            self._changed.notify()
        self._thread.join(_CLOSE_SECONDS)

    def _write_for_ever(self) -> None:
        ends = False
        while not ends:
            _pause()
            if self._batch is None and not self._ends:  # nobody has come for a while: the next one wakes this thread
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
