import json
import logging
import sys

from service.telemetry.logs import JsonFormatter, TerminalFormatter, error_location


def record(message: str, **extra: object) -> logging.LogRecord:
    made = logging.getLogger("x").makeRecord("x", logging.WARNING, "f", 1, message, (), None, extra=extra)
    made.created, made.msecs = 1.5, 500.0
    return made


def test_a_record_is_one_json_line_with_its_fields() -> None:
    line = JsonFormatter().format(record("it\nhappened", request_id="r", milliseconds=1.5))
    assert "\n" not in line
    assert json.loads(line) == {
        "time": "1970-01-01T00:00:01.500Z",
        "level": "warning",
        "event": "it\nhappened",
        "logger": "x",
        "request_id": "r",
        "milliseconds": 1.5,
    }


def test_a_terminal_gets_words() -> None:
    assert TerminalFormatter().format(record("replica down", backoff=1)).endswith("warning: replica down  backoff=1")


def _raise() -> None:
    try:
        int("shopper's words")
    except ValueError as error:
        raise RuntimeError("more of the shopper's words") from error


def test_an_exception_is_its_places_without_its_message() -> None:
    try:
        _raise()
    except RuntimeError as error:
        text = error_location(error)
        made = record("oh")
        made.exc_info = sys.exc_info()
    assert "test_logs.py" in text
    assert "_raise > RuntimeError from " in text
    assert text.endswith("ValueError")
    assert "shopper" not in text
    assert json.loads(JsonFormatter().format(made))["exception"].startswith("test_logs.py")
