"""The two tables that SQLite translations search: the products, and the full text of their text fields."""

import contextlib
import os
import sqlite3
import tempfile
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import Any

from peakplan_client.mapping import CatalogueMapping


def build_index(
    database: Path, columns: Sequence[str], rows: Iterable[Sequence[Any]], mapping: CatalogueMapping
) -> None:
    """Write a database of `rows`, whose values are those of `columns`, under another name first: who sees it sees all.

    The columns hold every field of `mapping.text`.
    """
    table, text = mapping.index, ", ".join(map(_quoted, mapping.text))
    database.parent.mkdir(parents=True, exist_ok=True)
    handle, draft = tempfile.mkstemp(dir=database.parent, prefix=f"{database.name}.")
    os.close(handle)
    try:
        with contextlib.closing(sqlite3.connect(draft)) as connection, connection:
            connection.execute(f"CREATE TABLE {_quoted(table)} ({', '.join(map(_quoted, columns))})")
            marks = ", ".join("?" * len(columns))
            connection.executemany(f"INSERT INTO {_quoted(table)} VALUES ({marks})", rows)
            texts = _quoted(f"{table}_text")
            connection.execute(
                f"CREATE VIRTUAL TABLE {texts} USING fts5({text}, content='{table}', tokenize='porter unicode61')"
            )
            connection.execute(f"INSERT INTO {texts} (rowid, {text}) SELECT rowid, {text} FROM {_quoted(table)}")
        os.replace(draft, database)
    except BaseException:
        Path(draft).unlink(missing_ok=True)
        raise


def _quoted(name: str) -> str:
    return f'"{name}"'
