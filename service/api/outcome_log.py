"""The file of plans and outcomes: JSON lines that `peakplan outcomes-to-rows` reads (docs/own-data.md)."""

import contextlib
import errno
import json
import logging
import os
import time
from collections.abc import Mapping, Sequence
from pathlib import Path
from queue import Full, Queue
from threading import Thread
from typing import Any

from service.planner.planner import Planned
from service.planner.question import Question

logger = logging.getLogger(__name__)

FILE_NAME = "outcomes.jsonl"
_WAITING = 2048  # lines that wait for a slow disk, each no longer than a request; more are dropped and counted
_CLOSE_SECONDS = 5.0  # for a disk that hangs
_BATCH = 256  # lines a write


class OutcomeLogError(RuntimeError):
    """Raised where the folder cannot be used; the message says what to do."""


class OutcomeLog:
    """Appends JSON lines to a file from a thread of its own, so that no request waits for the disk.

    A line is appended whole. A file that has grown past its limit is renamed, and of those only the newest are kept.
    """

    def __init__(self, folder: Path, *, keeps_text: bool, file_bytes: int, files: int) -> None:
        """Raise OutcomeLogError where the folder cannot be written."""
        self._path = folder / FILE_NAME
        self._keeps_text, self._file_bytes, self._files = keeps_text, file_bytes, files
        self._lines: Queue[bytes | None] = Queue(_WAITING)
        self.dropped = 0
        try:
            folder.mkdir(parents=True, exist_ok=True)
            os.close(self._open())
        except OSError as error:
            reason = f"{error.strerror}; it has to be a folder that this user can write"
            raise OutcomeLogError(f"PEAKPLAN_OUTCOMES_DIR={folder}: {reason}") from error
        self._thread = Thread(target=self._write_for_ever, name="outcomes", daemon=True)
        self._thread.start()

    def served(self, request_id: str, question: Question, planned: Planned) -> None:
        """Keep a plan that was answered."""
        plan = planned.plan
        line = {
            "record": "plan", "request_id": request_id, "time": round(time.time(), 3), "model": planned.model_id,
            "source": planned.source, "mode": plan.mode, "intent": plan.intent, "vertical": plan.vertical,
        }  # fmt: skip
        if self._keeps_text:
            *history, newest = question.utterances
            kept = plan.model_dump(include={"facets", "exclude", "parts", "sources"})
            line |= {"question": newest, "history": history, **kept}
        else:
            line |= {"facets": sorted(plan.facets), "exclude": sorted(plan.exclude)}
        self._put(line)

    def happened(self, outcome: Mapping[str, Any]) -> bool:
        """Keep an outcome; return whether there was room."""
        return self._put({"record": "outcome", "time": round(time.time(), 3), **outcome})

    def close(self) -> None:
        """Write what waits, and end the thread; a disk that hangs keeps nobody."""
        with contextlib.suppress(Full):
            self._lines.put(None, timeout=_CLOSE_SECONDS)
        self._thread.join(_CLOSE_SECONDS)

    def _put(self, line: Mapping[str, Any]) -> bool:
        text = json.dumps(line, ensure_ascii=False, separators=(",", ":")) + "\n"
        try:
            self._lines.put_nowait(text.encode(errors="replace"))
        except Full:
            self.dropped += 1
            if self.dropped.bit_count() == 1:  # the first, and then ever more rarely
                logger.warning("outcomes are dropped: the disk is slow or full", extra={"dropped": self.dropped})
            return False
        return True

    def _write_for_ever(self) -> None:
        while True:
            batch = [self._lines.get()]
            while len(batch) < _BATCH and not self._lines.empty():  # nobody else takes lines
                batch.append(self._lines.get())
            self._write([line for line in batch if line is not None])
            if None in batch:
                return

    def _write(self, batch: Sequence[bytes]) -> None:
        text = b"".join(batch)
        try:
            file = self._open()
            try:
                before = os.fstat(file).st_size
                if os.write(file, text) < len(text):  # the disk is full
                    os.ftruncate(file, before)
                    raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))
            finally:
                os.close(file)
            if before + len(text) > self._file_bytes:
                self._rotate()
        except OSError as error:
            self.dropped += len(batch)
            logger.warning(f"outcomes cannot be written: {error.strerror}", extra={"dropped": self.dropped})

    def _open(self) -> int:
        return os.open(self._path, os.O_WRONLY | os.O_APPEND | os.O_CREAT, 0o640)  # only the service's group reads them

    def _rotate(self) -> None:
        self._path.rename(self._path.with_name(f"outcomes-{time.time_ns()}.jsonl"))
        for old in sorted(self._path.parent.glob("outcomes-*.jsonl"))[: -self._files]:
            old.unlink(missing_ok=True)
