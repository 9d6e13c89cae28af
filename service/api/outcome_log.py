"""The files of plans and outcomes: JSON lines that `peakplan outcomes-to-rows` reads (docs/own-data.md).

Plans and outcomes have files, and room to wait for a slow disk, of their own: whoever sends many outcomes drops no
plan and rotates none away.
"""

import json
import time
from collections import OrderedDict
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from service.api.experiment import Exposure
from service.api.line_file import LineFile, LineFileError
from service.planner.planner import Planned
from service.planner.question import Question
from service.planner.shop import current

PLANS, OUTCOMES = "plans", "outcomes"
MOST_OUTCOMES = 16  # of one plan: so many products of its results a shopper may look at
_REMEMBERED = 20_000  # plans whose outcomes are counted; the one without a new outcome for longest is forgotten


def plans_file(folder: Path) -> Path:
    """Return the file that plans are appended to."""
    return folder / f"{PLANS}.jsonl"


class OutcomeLogError(RuntimeError):
    """Raised where the folder cannot be used; the message says what to do."""


class OutcomeLog:
    """Keeps what was planned for whom, and what came of it. No request waits for the disk."""

    def __init__(self, folder: Path, *, keeps_text: bool, file_bytes: int, files: int, release: str = "") -> None:
        """Raise OutcomeLogError where the folder cannot be written."""
        self._keeps_text, self._release = keeps_text, release
        self._counts: OrderedDict[tuple[str, str], int] = OrderedDict()
        try:
            folder.mkdir(parents=True, exist_ok=True)
            self._plans, self._outcomes = (
                LineFile(folder / f"{name}.jsonl", file_bytes=file_bytes, files=files) for name in (PLANS, OUTCOMES)
            )
        except (OSError, LineFileError) as error:
            raise OutcomeLogError(
                f"PEAKPLAN_OUTCOMES_DIR={folder}: {error}; it has to be a folder that this user can write"
            ) from error

    @property
    def dropped(self) -> int:
        """Lines that a slow or full disk did not take."""
        return self._plans.dropped + self._outcomes.dropped

    def served(
        self, request_id: str, caller: str, question: Question, planned: Planned, exposure: Exposure | None = None
    ) -> None:
        """Keep a plan that was answered, and what of an experiment the shopper got with it."""
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
        """Write what waits; a disk that hangs keeps nobody."""
        self._plans.close()
        self._outcomes.close()


def _line(record: Mapping[str, Any]) -> bytes:
    return (json.dumps(record, ensure_ascii=False, separators=(",", ":")) + "\n").encode(errors="replace")
