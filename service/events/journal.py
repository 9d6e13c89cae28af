"""Where events are written before anybody is told that they are kept.

Whoever appends waits for the write, which many share, so that a process that is killed loses nothing that it answered
for. A disk that is full or gone is left for the next folder; where no folder takes a line, its sender hears so and
keeps it. No plan waits for any of this: a thread of its own writes. It wakes fifty times a second at most, because each
time it takes the interpreter from the event loop, and a core from the model.
"""

import contextlib
import logging
import time
from collections.abc import Callable, Sequence
from concurrent.futures import Future
from pathlib import Path
from queue import Full, Queue
from threading import Thread

from service.events.rotating import RotatingFile

logger = logging.getLogger(__name__)

NAME = "events"
_WAITING = 1024  # appends that wait for a slow disk, each no larger than a request
_GATHER_SECONDS = 0.02  # between two writes, in which appends wake nobody
_CLOSE_SECONDS = 5.0  # for a disk that hangs

_Append = tuple[bytes, int, "Future[bool]"]


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
        self._waiting: Queue[_Append | None] = Queue(_WAITING)
        self._thread = Thread(target=self._write_for_ever, name=NAME, daemon=True)
        self._thread.start()

    @property
    def paths(self) -> list[Path]:
        """The files that are written now, one a folder."""
        return [file.path for file in self._files]

    def append(self, lines: bytes, count: int) -> "Future[bool]":
        """Take `count` lines; the result, once it is known, says whether they are in a file."""
        future: Future[bool] = Future()
        future.set_running_or_notify_cancel()  # who no longer waits, for a disk that hangs, cannot take it back
        try:
            self._waiting.put_nowait((lines, count, future))
        except Full:
            self._refuse(count, "too many wait for a slow disk")
            future.set_result(False)
        return future

    def close(self) -> None:
        """Write what waits; a disk that hangs keeps nobody."""
        with contextlib.suppress(Full):
            self._waiting.put(None, timeout=_CLOSE_SECONDS)
        self._thread.join(_CLOSE_SECONDS)

    def _write_for_ever(self) -> None:
        while True:
            time.sleep(_GATHER_SECONDS)
            batch = self._come()
            if not batch:  # nobody has come for a while: the next one wakes this thread
                batch = [self._waiting.get()]
                time.sleep(_GATHER_SECONDS)
                batch += self._come()
            self._write_batch([each for each in batch if each is not None])
            if None in batch:
                return

    def _come(self) -> list[_Append | None]:
        come = []
        while not self._waiting.empty():  # nobody else takes them
            come.append(self._waiting.get())
        return come

    def _write_batch(self, appends: Sequence[_Append]) -> None:
        if not appends:
            return
        kept = self._write(b"".join(lines for lines, _, _ in appends), sum(count for _, count, _ in appends))
        for _, _, future in appends:
            future.set_result(kept)
        self.listener()

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


def _tell(what: str, now: int, count: int, why: str) -> None:
    """Log the first, and then ever more rarely."""
    if now.bit_length() > (now - count).bit_length():
        logger.warning(what, extra={"count": now, "detail": why})
