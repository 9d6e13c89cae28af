"""What AWS Lambda gets of this repository for an event's load test: the worker's program and what it asks."""

from __future__ import annotations

import json
import shutil
from collections.abc import Iterator
from pathlib import Path

from infra.fleet.event_load_file import CallerNetwork
from infra.fleet.parts import REPOSITORY_ROOT

HANDLER = "rehearsal.load.event_worker.handler"
# By its place in this repository: it imports nothing else but Python's own modules.
PROGRAM = ("__init__", "load/__init__", "load/client", "load/popularity", "load/event_worker")
CASES = REPOSITORY_ROOT / "benchmarks" / "cases"


def bundle(folder: Path, network: CallerNetwork) -> Path:
    """Write the program, the questions and the network's authority into `folder`, and return it."""
    for name in PROGRAM:
        place = folder / "rehearsal" / f"{name}.py"
        place.parent.mkdir(parents=True, exist_ok=True)
        shutil.copyfile(REPOSITORY_ROOT / "rehearsal" / f"{name}.py", place)
    beside = folder / "rehearsal" / "load"
    (beside / "questions.json").write_text(json.dumps(sorted(set(_questions()))), encoding="utf-8")
    if network.authority:
        shutil.copyfile(network.authority, beside / "authority.pem")
    return folder


def _questions() -> Iterator[str]:
    for path in sorted(CASES.glob("*.jsonl")):
        for line in path.read_text(encoding="utf-8").splitlines():
            yield json.loads(line)["query"]
