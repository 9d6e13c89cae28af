"""A file of lines that a thread of its own appends to, set aside when it is full."""

import contextlib
import logging
from collections.abc import Sequence
from pathlib import Path
from queue import Full, Queue
from threading import Thread

from service.events.rotating import RotatingFile

logger = logging.getLogger(__name__)

_WAITING = 2048  # lines that wait for a slow disk, each no longer than a request; more are dropped and counted
_CLOSE_SECONDS = 5.0  # for a disk that hangs
_BATCH = 256  # lines a write


class LineFileError(RuntimeError):
    """Raised where the file cannot be written; the message is the system's."""


class LineFile:
    """Appends lines, each whole. A file past its limit is renamed, and of those only the newest are kept."""

    def __init__(self, path: Path, *, file_bytes: int, files: int) -> None:
        """Raise LineFileError where the file cannot be written."""
        self._name, self._file = path.stem, RotatingFile(path, file_bytes=file_bytes, files=files)
        self._lines: Queue[bytes | None] = Queue(_WAITING)
        self.dropped = 0
        try:
            self._file.check()
        except OSError as error:
            raise LineFileError(error.strerror) from error
        self._thread = Thread(target=self._write_for_ever, name=path.stem, daemon=True)
        self._thread.start()

    def put(self, line: bytes) -> bool:
        """Take a line; return whether there was room."""
        try:
            self._lines.put_nowait(line)
        except Full:
            self.dropped += 1
            if self.dropped.bit_count() == 1:  # the first, and then ever more rarely
                extra = {"dropped": self.dropped}
                logger.warning(f"{self._name} are dropped: the disk is slow or full", extra=extra)
            return False
        return True

    def close(self) -> None:
        """Write what waits, and end the thread; a disk that hangs keeps nobody."""
        with contextlib.suppress(Full):
            self._lines.put(None, timeout=_CLOSE_SECONDS)
        self._thread.join(_CLOSE_SECONDS)

    def _write_for_ever(self) -> None:
        while True:
            batch = [self._lines.get()]
            while len(batch) < _BATCH and not self._lines.empty():  # nobody else takes lines
                batch.append(self._lines.get())
            self._write([line for line in batch if line is not None])
            if None in batch:
                return

    def _write(self, batch: Sequence[bytes]) -> None:
        try:
            self._file.append(b"".join(batch))
        except OSError as error:
            self.dropped += len(batch)
            logger.warning(f"{self._name} cannot be written: {error.strerror}", extra={"dropped": self.dropped})
