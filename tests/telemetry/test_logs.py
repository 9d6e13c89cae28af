import json
import logging
import os
import pty
import select
import subprocess
import sys
import threading

from service.telemetry.logs import JsonFormatter, TerminalFormatter, error_location
from tests.processes import eventually


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


PROGRAM = """
import logging, sys, warnings
from service.telemetry.logs import cannot_start, configure_logging
configure_logging("info")
warnings.warn("of a library")
cannot_start("peakplan", "PORT must be a number")
int("words of a shopper")
"""


def test_every_line_of_a_process_is_json_where_no_terminal_is_attached() -> None:
    done = subprocess.run([sys.executable, "-c", PROGRAM], capture_output=True, text=True, check=False)
    lines = [json.loads(line) for line in done.stderr.splitlines()]
    assert [(line["level"], line["event"].partition(":")[0]) for line in lines] == [
        ("warning", "<string>"),
        ("error", "cannot start"),
        ("critical", "a bug ended this process"),
    ]
    assert lines[1]["reason"] == "PORT must be a number"
    assert lines[2]["exception"].endswith("ValueError")
    assert "shopper" not in done.stderr
    assert done.returncode == 1


def test_at_a_terminal_people_see_plain_words() -> None:
    program = PROGRAM.partition("int(")[0]
    ours, theirs = pty.openpty()
    process = subprocess.Popen([sys.executable, "-c", program], stderr=theirs)
    os.close(theirs)
    assert process.wait(60) == 0
    shown = os.read(ours, 65536).decode()
    os.close(ours)
    assert "peakplan cannot start: PORT must be a number." in shown
    assert "{" not in shown


STALLED = """
import logging, sys
from service.telemetry.logs import configure_logging
configure_logging("info")
for number in range(5000):
    logging.info("x" * 200, extra={"number": number})
print("all said", flush=True)
sys.stdin.readline()
logging.info("afterwards")
"""


def test_whoever_does_not_read_the_log_stops_nobody_and_learns_what_was_lost() -> None:
    pipes = {"stdin": subprocess.PIPE, "stdout": subprocess.PIPE, "stderr": subprocess.PIPE}
    with subprocess.Popen([sys.executable, "-c", STALLED], **pipes) as process:
        assert process.stdin is not None
        assert process.stdout is not None
        assert process.stderr is not None
        assert select.select([process.stdout], [], [], 60)[0], "it waits for a reader of its log"
        lines = []
        reading = threading.Thread(target=lambda stream: lines.extend(map(json.loads, stream)), args=[process.stderr])
        reading.start()
        eventually(lambda: len(lines) > 100, "nothing was logged")
        process.stdin.write(b"\n")
        process.stdin.close()
        assert process.wait(60) == 0
        reading.join()
    said = [line["number"] for line in lines if "number" in line]
    assert said == list(range(len(said)))
    (lost,) = [line["count"] for line in lines if line["event"].startswith("log lines dropped")]
    assert len(said) + lost == 5000
    assert lines[-1]["event"] == "afterwards"
