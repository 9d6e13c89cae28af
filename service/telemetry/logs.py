"""Logs, one line an event: JSON for machines, plain words on a terminal.

Shoppers' text never goes into one: only ids, counts, codes, times and places in the code.
"""

import contextlib
import json
import logging
import os
import select
import sys
import time
import traceback
from collections import deque
from pathlib import PurePath
from types import TracebackType
from typing import Any

logger = logging.getLogger(__name__)

_MOST_PENDING_BYTES = 256 * 1024
_LAST_WRITE_SECONDS = 0.5

# The fields of every LogRecord; any other came with `extra`.
_STANDARD = frozenset(vars(logging.makeLogRecord({}))) | {"message", "asctime", "color_message", "taskName"}


class JsonFormatter(logging.Formatter):
    """Formats a record as one JSON object."""

    def format(self, record: logging.LogRecord) -> str:
        line: dict[str, Any] = {
            "time": f"{time.strftime('%Y-%m-%dT%H:%M:%S', time.gmtime(record.created))}.{int(record.msecs):03d}Z",
            "level": record.levelname.lower(),
            "event": record.getMessage(),
            "logger": record.name,
            **_fields(record),
        }
        return json.dumps(line, default=repr, separators=(",", ":"))


class TerminalFormatter(logging.Formatter):
    """Formats a record for people: the time of day, the event, then its fields."""

    def format(self, record: logging.LogRecord) -> str:
        clock = time.strftime("%H:%M:%S", time.localtime(record.created))
        level = "" if record.levelno == logging.INFO else f"{record.levelname.lower()}: "
        fields = "".join(f"  {key}={value}" for key, value in _fields(record).items())
        return f"{clock}  {level}{record.getMessage()}{fields}"


class StallProofHandler(logging.Handler):
    """Writes lines to a descriptor without ever waiting for its reader.

    Lines that a full pipe does not take are kept up to a limit, dropped beyond it, and counted in a line once there is
    room again. A thread of its own could wait, too, but would not survive the fork of a process.
    """

    def __init__(self, descriptor: int) -> None:
        super().__init__()
        self._descriptor = descriptor
        self._writable = select.poll()
        self._writable.register(descriptor, select.POLLOUT)
        self._pending: deque[bytes] = deque()
        self._bytes = 0
        self._dropped = 0

    def emit(self, record: logging.LogRecord) -> None:
        line = f"{self.format(record)}\n".encode("utf-8", "replace")
        self.flush()
        if self._bytes + len(line) > _MOST_PENDING_BYTES:
            self._dropped += 1
            return
        if self._dropped:
            count, self._dropped = self._dropped, 0
            logger.error("log lines dropped: nobody read them", extra={"count": count})  # comes here, before the line
        self._pending.append(line)
        self._bytes += len(line)
        self.flush()

    def flush(self) -> None:
        self._write(0.0)

    def close(self) -> None:
        """Give the reader a moment for the rest."""
        self._write(_LAST_WRITE_SECONDS)
        super().close()

    def _write(self, timeout: float) -> None:
        """Write until the reader has taken nothing for `timeout` seconds."""
        try:
            while self._pending and self._writable.poll(timeout * 1000):
                # A pipe that is writable takes so much without blocking.
                written = os.write(self._descriptor, self._pending[0][: select.PIPE_BUF])
                self._bytes -= written
                if rest := self._pending.popleft()[written:]:
                    self._pending.appendleft(rest)
        except BlockingIOError:
            pass
        except OSError:  # a full disk, a closed pipe
            self._dropped += len(self._pending)
            self._pending.clear()
            self._bytes = 0


def _fields(record: logging.LogRecord) -> dict[str, Any]:
    fields = {key: value for key, value in vars(record).items() if key not in _STANDARD}
    if record.exc_info and record.exc_info[1] is not None:
        fields["exception"] = error_location(record.exc_info[1])
    return fields


def error_location(error: BaseException) -> str:
    """Return the error's type and its traceback's locations, outermost first, without its message (shopper text)."""
    frames = traceback.extract_tb(error.__traceback__)
    places = [f"{PurePath(frame.filename).name}:{frame.lineno} {frame.name}" for frame in frames]
    cause = error.__cause__ or (None if error.__suppress_context__ else error.__context__)
    return " > ".join([*places, type(error).__name__]) + (f" from {error_location(cause)}" if cause else "")


def configure_logging(level: str) -> None:
    """Send every logger of this process to standard error, including uvicorn's and Python's own errors.

    A program calls it before anything else, and again once it knows the level: no line of it is anything but JSON,
    except on a terminal. Every process does so for itself: replicas inherit the stream and not its format.
    """
    handler: logging.Handler = logging.StreamHandler(sys.stderr)
    with contextlib.suppress(OSError, ValueError):  # what tests put in its place has no descriptor
        handler = StallProofHandler(sys.stderr.fileno())
    handler.setFormatter(TerminalFormatter() if sys.stderr.isatty() else JsonFormatter())
    logging.basicConfig(level=level.upper(), handlers=[handler], force=True)
    logging.captureWarnings(capture=True)
    sys.excepthook = _log_uncaught
    for name in ("uvicorn", "uvicorn.error", "uvicorn.access"):
        logging.getLogger(name).handlers.clear()
        logging.getLogger(name).propagate = True
    logging.getLogger("uvicorn.access").disabled = True  # the API logs each request itself, without its text
    logging.getLogger("uvicorn.error").setLevel(max(logging.WARNING, logging.getLogger().level))  # we say it ourselves


def cannot_start(program: str, reason: str) -> None:
    """Print why a program cannot start, as one line; in plain words on a terminal."""
    if sys.stderr.isatty():
        print(f"{program} cannot start: {reason}.", file=sys.stderr)
    else:
        logger.error("cannot start", extra={"program": program, "reason": reason})


def _log_uncaught(kind: type[BaseException], error: BaseException, trace: TracebackType | None) -> None:
    if not issubclass(kind, KeyboardInterrupt):
        logger.critical("a bug ended this process", extra={"exception": error_location(error.with_traceback(trace))})


def give_up_unwritten() -> None:
    """Discard lines that standard error does not take (a full disk); otherwise Python would fail at exit."""
    try:
        sys.stderr.flush()
    except OSError:
        nowhere = os.open(os.devnull, os.O_WRONLY)
        os.dup2(nowhere, sys.stderr.fileno())
        os.close(nowhere)
