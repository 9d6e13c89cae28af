"""A file of lines that is set aside when it is full, and of what was set aside the newest."""

import errno
import os
import time
from pathlib import Path


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
