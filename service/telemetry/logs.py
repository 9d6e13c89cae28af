"""Logs, one line an event: JSON for machines, plain words on a terminal.

What shoppers write never goes into one: only ids, counts, codes, times and places in the code.
"""

import json
import logging
import os
import sys
import time
import traceback
from pathlib import PurePath
from typing import Any

# What every LogRecord has; whatever else a record carries came with `extra`.
_STANDARD = frozenset(vars(logging.makeLogRecord({}))) | {"message", "asctime", "color_message", "taskName"}


class JsonFormatter(logging.Formatter):
    """One JSON object a record."""

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
    """The same for people: the time of day, the event, then its fields."""

    def format(self, record: logging.LogRecord) -> str:
        clock = time.strftime("%H:%M:%S", time.localtime(record.created))
        level = "" if record.levelno == logging.INFO else f"{record.levelname.lower()}: "
        fields = "".join(f"  {key}={value}" for key, value in _fields(record).items())
        return f"{clock}  {level}{record.getMessage()}{fields}"


def _fields(record: logging.LogRecord) -> dict[str, Any]:
    fields = {key: value for key, value in vars(record).items() if key not in _STANDARD}
    if record.exc_info and record.exc_info[1] is not None:
        fields["exception"] = error_location(record.exc_info[1])
    return fields


def error_location(error: BaseException) -> str:
    """The error's type and the places it came through, outermost first; not its message, which may quote a shopper."""
    frames = traceback.extract_tb(error.__traceback__)
    places = [f"{PurePath(frame.filename).name}:{frame.lineno} {frame.name}" for frame in frames]
    cause = error.__cause__ or (None if error.__suppress_context__ else error.__context__)
    return " > ".join([*places, type(error).__name__]) + (f" from {error_location(cause)}" if cause else "")


def configure_logging(level: str) -> None:
    """Send every logger of this process to standard error, uvicorn's included."""
    handler = logging.StreamHandler(sys.stderr)
    handler.setFormatter(TerminalFormatter() if sys.stderr.isatty() else JsonFormatter())
    logging.basicConfig(level=level.upper(), handlers=[handler], force=True)
    for name in ("uvicorn", "uvicorn.error", "uvicorn.access"):
        logging.getLogger(name).handlers.clear()
        logging.getLogger(name).propagate = True
    logging.getLogger("uvicorn.access").disabled = True  # the API logs each request itself, without its text
    logging.getLogger("uvicorn.error").setLevel(max(logging.WARNING, logging.getLogger().level))  # we say it ourselves


def give_up_unwritten() -> None:
    """Let go of lines that standard error does not take (a full disk): Python would fail with them at its exit."""
    try:
        sys.stderr.flush()
    except OSError:
        nowhere = os.open(os.devnull, os.O_WRONLY)
        os.dup2(nowhere, sys.stderr.fileno())
        os.close(nowhere)
