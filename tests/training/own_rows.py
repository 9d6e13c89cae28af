"""Rows of one's own for tests: read from a dictionary, or written to a file."""

import json
from pathlib import Path
from typing import Any

from service.planner.vocabulary import shipped_vocabulary
from training.data.examples import Example
from training.data.own_rows import OwnRow, own_example

VOCABULARY = shipped_vocabulary()


def made(row: dict[str, Any]) -> Example:
    return own_example(OwnRow.model_validate(row), VOCABULARY)


def written(folder: Path, *rows: Any) -> Path:
    path = folder / "my.jsonl"
    lines = [row if isinstance(row, str) else json.dumps(row) for row in rows]
    path.write_text("".join(f"{line}\n" for line in lines), encoding="utf-8")
    return path
