"""Brings events from their files to another place, in order, however long that place is away.

An event is acknowledged once it is in a file, and waits there. A file beside them remembers what has arrived, so a
killed process goes on where it was and sends at most one piece twice; the receiver takes each event once, by its id.
"""

import contextlib
import hashlib
import json
import logging
import threading
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import BinaryIO, Protocol

from service.events.journal import set_aside

logger = logging.getLogger(__name__)

_PIECE_BYTES = 512 * 1024
_FIRST_PAUSE_SECONDS, _LONGEST_PAUSE_SECONDS = 0.5, 30.0


class SinkError(Exception):
    """Raised by a sink that does not take events now."""


class Sink(Protocol):
    """Where events go."""

    def take(self, lines: Sequence[bytes]) -> None:
        """Keep these lines, each once by its event's id. Raises SinkError."""
        ...

    def close(self) -> None: ...


class Shipper:
    """Follows the journal's files in a thread of its own."""

    def __init__(self, paths: Sequence[Path], sink: Sink) -> None:
        self._paths, self._sink = paths, sink
        self._marks = paths[0].with_name("events.shipped")
        self._arrived: dict[str, int] = {}  # bytes by file
        with contextlib.suppress(OSError, ValueError, AttributeError):
            self._arrived = {str(name): int(end) for name, end in json.loads(self._marks.read_text("utf-8")).items()}
        self._more, self._ends = threading.Event(), False
        self.failures = 0
        self._thread = threading.Thread(target=self._ship_for_ever, name="events-shipping", daemon=True)
        self._thread.start()

    def wake(self) -> None:
        self._more.set()

    def close(self, seconds: float = 5.0) -> None:
        """Send the waiting events and end, without waiting for a sink that hangs; the files stay."""
        self._ends = True
        self._more.set()
        self._thread.join(seconds)

    def _ship_for_ever(self) -> None:
        pause = _FIRST_PAUSE_SECONDS
        while True:
            self._more.clear()
            ends = self._ends
            try:
                self._ship_all()
                pause = _FIRST_PAUSE_SECONDS
                if ends:
                    self._sink.close()
                    return
                self._more.wait()
            except (SinkError, OSError) as error:
                self.failures += 1
                if self.failures.bit_count() == 1:  # the first, and then ever more rarely
                    logger.warning("events wait in their files", extra={"detail": str(error), "count": self.failures})
                if self._ends:
                    return
                self._more.wait(pause)
                pause = min(2 * pause, _LONGEST_PAUSE_SECONDS)

    def _ship_all(self) -> None:
        here: set[str] = set()
        for path in [file for current in self._paths for file in (*set_aside(current), current)]:
            with contextlib.suppress(FileNotFoundError), path.open("rb") as file:
                # No other file begins with this event, at this time.
                name = hashlib.blake2b(file.readline(), digest_size=16).hexdigest()
                here.add(name)
                file.seek(self._arrived.get(name, 0))
                for lines, size in _pieces(file):
                    self._sink.take(lines)
                    self._arrived[name] = self._arrived.get(name, 0) + size
                    self._remember()
        if self._arrived.keys() - here:
            self._arrived = {name: end for name, end in self._arrived.items() if name in here}
            self._remember()

    def _remember(self) -> None:
        made = self._marks.with_name(f".{self._marks.name}.made")
        made.write_text(json.dumps(self._arrived), encoding="utf-8")
        made.replace(self._marks)


def _pieces(file: BinaryIO) -> Iterator[tuple[list[bytes], int]]:
    """Yield whole lines and their bytes; a line that is still being written waits."""
    rest = b""
    while piece := file.read(_PIECE_BYTES):
        whole, newline, rest = (rest + piece).rpartition(b"\n")
        if newline:
            yield whole.split(b"\n"), len(whole) + 1
