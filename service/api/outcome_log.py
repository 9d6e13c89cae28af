"""What is kept of plans and of what came of them, and who assigns arms, as the settings say.

The files of plans and outcomes are JSON lines that `peakplan outcomes-to-rows` reads (docs/own-data.md).

Plans and outcomes have separate files and separate buffers for a slow disk: many outcomes neither drop plans nor
rotate them away.
"""

import contextlib
import json
import logging
import time
from collections import OrderedDict
from collections.abc import Mapping, Sequence
from pathlib import Path
from queue import Full, Queue
from threading import Thread
from typing import Any

from service.api.experiment import Experiment, Exposure
from service.api.request_ids import RequestIds
from service.events.journal import Journal, JournalError, RotatingFile
from service.events.keeper import EventKeeper, Sessions
from service.events.model import ACTIONS
from service.events.shipping import Sink
from service.planner.planner import Planned
from service.planner.question import Question
from service.planner.shop import current
from service.planner.shop.folder import Lexicon
from service.settings import Settings
from service.settings.groups import ExperimentSettings, OutcomeSettings
from service.telemetry.metrics import Metrics

PLANS, OUTCOMES = "plans", "outcomes"
MOST_OUTCOMES = 16  # of one plan: so many products of its results a shopper may look at
_REMEMBERED = 20_000  # plans whose outcomes are counted; the one without a new outcome for longest is forgotten


def plans_file(folder: Path) -> Path:
    return folder / f"{PLANS}.jsonl"


class OutcomeLogError(RuntimeError):
    """Raised where the folder cannot be used; the message says what to do."""


class OutcomeLog:
    """Keeps plans and their outcomes by caller. No request waits for the disk."""

    def __init__(self, folder: Path, *, keeps_text: bool, file_bytes: int, files: int, release: str = "") -> None:
        """Raise OutcomeLogError where the folder cannot be written."""
        self._keeps_text, self._release = keeps_text, release
        self._counts: OrderedDict[tuple[str, str], int] = OrderedDict()
        try:
            folder.mkdir(parents=True, exist_ok=True)
            self._plans, self._outcomes = (
                LineFile(folder / f"{name}.jsonl", file_bytes=file_bytes, files=files) for name in (PLANS, OUTCOMES)
            )
        except OSError as error:
            raise OutcomeLogError(
                f"PEAKPLAN_OUTCOMES_DIR={folder}: {error.strerror}; it has to be a folder that this user can write"
            ) from error

    @property
    def dropped(self) -> int:
        return self._plans.dropped + self._outcomes.dropped

    def served(
        self, request_id: str, caller: str, question: Question, planned: Planned, exposure: Exposure | None = None
    ) -> None:
        """Keep an answered plan, and the shopper's arm of an experiment."""
        plan = planned.plan
        line = {
            "record": "plan", "request_id": request_id, "caller": caller, "time": round(time.time(), 3),
            "model": planned.model_id, "source": planned.source, "mode": plan.mode, "intent": plan.intent,
            "vertical": plan.vertical,
        }  # fmt: skip
        if self._release:
            line["release"] = self._release
        if (shop := current.lexicon()) is not None:
            line["shop"] = shop.digest
        if exposure is not None:
            line |= {"experiment": exposure.experiment, "arm": exposure.arm, "client_id": exposure.shopper}
            if exposure.missed:
                line["missed"] = True
        if self._keeps_text:
            *history, newest = question.utterances
            kept = plan.model_dump(include={"facets", "exclude", "parts", "sources"})
            line |= {"question": newest, "history": history, **kept}
        else:
            line |= {"facets": sorted(plan.facets), "exclude": sorted(plan.exclude)}
        self._plans.put(_line(line))

    def has_room(self, request_id: str, caller: str) -> bool:
        """Tell whether this plan of the caller's may have one more outcome."""
        return self._counts.get((caller, request_id), 0) < MOST_OUTCOMES

    def happened(self, outcome: Mapping[str, Any], caller: str) -> bool:
        """Keep an outcome that a caller reports; return whether the disk keeps up."""
        key = (caller, str(outcome["request_id"]))
        self._counts[key] = self._counts.get(key, 0) + 1
        self._counts.move_to_end(key)
        if len(self._counts) > _REMEMBERED:
            self._counts.popitem(last=False)
        return self._outcomes.put(
            _line({"record": "outcome", "caller": caller, "time": round(time.time(), 3), **outcome})
        )

    def close(self) -> None:
        """Write the waiting lines, without waiting for a disk that hangs."""
        self._plans.close()
        self._outcomes.close()


def _line(record: Mapping[str, Any]) -> bytes:
    return (json.dumps(record, ensure_ascii=False, separators=(",", ":")) + "\n").encode(errors="replace")


logger = logging.getLogger(__name__)

_WAITING = 2048  # lines that wait for a slow disk, each no longer than a request; more are dropped and counted
_CLOSE_SECONDS = 5.0  # for a disk that hangs
_BATCH = 256  # lines a write


class LineFile:
    """Appends lines, each whole. A file past its limit is renamed, and of those only the newest are kept."""

    def __init__(self, path: Path, *, file_bytes: int, files: int) -> None:
        """Raise OSError where the file cannot be written."""
        self._name, self._file = path.stem, RotatingFile(path, file_bytes=file_bytes, files=files)
        self._lines: Queue[bytes | None] = Queue(_WAITING)
        self.dropped = 0
        self._file.check()
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
        """Write the waiting lines and end the thread, without waiting for a disk that hangs."""
        with contextlib.suppress(Full):
            self._lines.put(None, timeout=_CLOSE_SECONDS)
        self._thread.join(_CLOSE_SECONDS)

    def _write_for_ever(self) -> None:
        while True:
            batch = [self._lines.get()]
            while len(batch) < _BATCH and not self._lines.empty():  # only this thread takes lines
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


def outcome_log(settings: Settings) -> OutcomeLog | None:
    """Return what keeps plans and outcomes. Raises OutcomeLogError."""
    outcomes = settings.outcomes
    if outcomes.dir is None:
        return None
    size = outcomes.file_megabytes * 1_000_000
    return OutcomeLog(
        outcomes.dir, keeps_text=outcomes.text, file_bytes=size, files=outcomes.files, release=settings.release
    )


def event_keeper(
    outcomes: OutcomeSettings, sessions: Sessions, request_ids: RequestIds, metrics: Metrics
) -> EventKeeper | None:
    """Return what keeps events. Raises OutcomeLogError: a folder cannot be written, or a library is missing."""
    if outcomes.dir is None:
        return None
    if wrong := [f"{name}={kept}" for name, kept in outcomes.own_actions.items() if kept not in (name, *ACTIONS)]:
        known = ", ".join(ACTIONS)
        raise OutcomeLogError(f"PEAKPLAN_OUTCOMES_ACTIONS: {', '.join(wrong)}: what is meant must be one of {known}")
    folders = [outcomes.dir, *([outcomes.spill_dir] if outcomes.spill_dir else [])]
    try:
        journal = Journal(folders, file_bytes=outcomes.file_megabytes * 1_000_000, files=outcomes.files)
    except JournalError as error:
        raise OutcomeLogError(f"PEAKPLAN_OUTCOMES_DIR or PEAKPLAN_OUTCOMES_SPILL_DIR: {error}") from error
    keeper = EventKeeper(
        journal,
        sessions,
        keeps_text=outcomes.text,
        is_served=request_ids.is_of_late,
        planned_in=request_ids.planned_in,
        count=metrics.happened,
        own_actions=outcomes.own_actions,
    )
    if outcomes.postgres is not None:
        keeper.ship(_postgres(outcomes.postgres.get_secret_value()))
    if outcomes.firehose:
        keeper.ship(_firehose(outcomes.firehose), also=[plans_file(outcomes.dir)])
    metrics.watch(
        lambda: {
            "EventsRefused": journal.refused,
            "EventsSpilled": journal.spilled,
            "EventsHeldUp": keeper.shipper.failures if keeper.shipper else 0,
        }
    )
    return keeper


def _postgres(url: str) -> Sink:
    try:  # a library that only this needs, and that takes time to import
        from service.events.postgres import PostgresSink
    except ModuleNotFoundError as error:
        raise OutcomeLogError(
            f"PEAKPLAN_OUTCOMES_POSTGRES needs the package {error.name}, which is not installed: "
            "pip install 'peakplan[postgres]', in a checkout pip install -e '.[postgres]'"
        ) from error

    return PostgresSink(url)


def _firehose(arn: str) -> Sink:
    from service.events.firehose import FirehoseSink  # likewise

    return FirehoseSink(arn)


def experiment(
    settings: ExperimentSettings, sessions: Sessions, shops: Mapping[str, Lexicon | None]
) -> Experiment | None:
    """Return what assigns shoppers to arms, with the shops of those that have one; None without an experiment."""
    return Experiment(settings.name, settings.shares, sessions, settings.served, shops) if settings.name else None
