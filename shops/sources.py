"""Rows of a catalogue's file, whatever its format: JSON lines, CSV, Parquet, SQLite. A bad row is told, never fatal."""

import csv
import gzip
import json
import sqlite3
from collections.abc import Callable, Iterator
from contextlib import closing
from dataclasses import dataclass
from importlib import import_module
from pathlib import Path
from typing import IO, Any

Row = dict[str, Any]
_MOST_CHARACTERS = 4 << 20  # of one cell or line: more is no product
_DELIMITERS = ",;\t|"
_BATCH = 1000


class SourceError(ValueError):
    """Raised for a file that is no catalogue; the message says what to do."""


@dataclass(frozen=True, slots=True)
class BadRow:
    """A row that cannot be read: the number of its line (of a table: of its row), from 1, and why."""

    line: int
    reason: str


def rows(path: Path, *, table: str | None = None) -> Iterator[tuple[int, Row] | BadRow]:
    """Yield (line, row) of every row, or what is wrong with it. Raises SourceError where the file is no catalogue."""
    kind = path.suffixes[-2:-1] if path.suffix == ".gz" else path.suffixes[-1:]
    read = _READERS.get("".join(kind).lower())
    if read is None:
        known = ", ".join(_READERS)
        raise SourceError(f"{path} is none of {known} (the first five may end in .gz): convert it, or rename it")
    if not path.is_file():
        raise SourceError(f"there is no file {path}: name the catalogue's file")
    try:
        yield from read(path, table)
    except (OSError, EOFError, sqlite3.Error) as error:
        raise SourceError(
            f"{path} cannot be read ({error}): is it whole, and of the kind that its name says?"
        ) from error


def _open(path: Path) -> IO[bytes]:
    return gzip.open(path, "rb") if path.suffix == ".gz" else path.open("rb")  # type: ignore[return-value]


def _lines(path: Path) -> Iterator[tuple[int, str] | BadRow]:
    with _open(path) as file:
        for number, line in enumerate(file, 1):
            if len(line) > _MOST_CHARACTERS:
                yield BadRow(number, f"has {len(line)} bytes, which no product has")
                continue
            try:
                yield number, line.decode("utf-8-sig" if number == 1 else "utf-8")
            except UnicodeDecodeError as error:
                yield BadRow(number, f"is not UTF-8 (byte {error.start})")


def _json_lines(path: Path, table: str | None) -> Iterator[tuple[int, Row] | BadRow]:
    del table
    for line in _lines(path):
        if isinstance(line, BadRow):
            yield line
            continue
        number, text = line
        if not text.strip():
            continue
        try:
            row = json.loads(text)
        except (ValueError, RecursionError) as error:
            yield BadRow(number, f"is not JSON ({error})")
            continue
        yield (number, row) if isinstance(row, dict) else BadRow(number, f"is a {type(row).__name__}, not an object")


def _csv(path: Path, table: str | None) -> Iterator[tuple[int, Row] | BadRow]:
    del table
    csv.field_size_limit(_MOST_CHARACTERS)
    bad: list[BadRow] = []

    def texts() -> Iterator[str]:
        for line in _lines(path):
            if isinstance(line, BadRow):
                bad.append(line)
            else:
                yield line[1]

    with _open(path) as file:
        first = file.readline().decode("utf-8-sig", "replace")
    delimiter = max(_DELIMITERS, key=first.count)
    reader = csv.reader(texts(), delimiter=delimiter, strict=True)
    names = next(reader, [])
    if len(set(names)) != len(names) or not names:
        raise SourceError(f"{path}: its first line must name every column once")
    while True:
        line = reader.line_num + 1 + len(bad)
        try:
            cells = next(reader)
        except StopIteration:
            break
        except csv.Error as error:
            yield BadRow(line, f"is not CSV ({error})")
            continue
        if len(cells) == len(names):
            yield line, dict(zip(names, cells, strict=True))
        elif cells:
            yield BadRow(line, f"has {len(cells)} cells, and the first line names {len(names)} columns")
    yield from bad


def _parquet(path: Path, table: str | None) -> Iterator[tuple[int, Row] | BadRow]:
    del table
    try:
        file = import_module("pyarrow.parquet").ParquetFile(path)
    except ImportError as error:
        raise SourceError(f"{path}: Parquet needs pyarrow (pip install -e '.[shop]')") from error
    except ValueError as error:  # pyarrow's own errors are ValueErrors
        raise SourceError(f"{path} is no Parquet file ({error})") from error
    number = 0
    for batch in file.iter_batches(batch_size=_BATCH):
        for row in batch.to_pylist():
            number += 1
            yield number, row


def _sqlite(path: Path, table: str | None) -> Iterator[tuple[int, Row] | BadRow]:
    with closing(sqlite3.connect(f"{path.absolute().as_uri()}?mode=ro", uri=True)) as connection:
        connection.text_factory = lambda data: data.decode("utf-8", "replace")
        found = connection.execute("SELECT name FROM sqlite_master WHERE type IN ('table', 'view')").fetchall()
        names = [name for (name,) in found if not name.startswith("sqlite_")]
        if table is None and len(names) != 1:
            raise SourceError(f"{path} has the tables {', '.join(names) or 'none'}: name one with --table")
        if table is not None and table not in names:
            raise SourceError(f"{path} has no table {table!r}, only {', '.join(names)}")
        quoted = (table or names[0]).replace('"', '""')
        cursor = connection.execute(f'SELECT * FROM "{quoted}"')
        columns = [column[0] for column in cursor.description]
        for number, cells in enumerate(cursor, 1):
            yield number, dict(zip(columns, cells, strict=True))


_READERS: dict[str, Callable[[Path, str | None], Iterator[tuple[int, Row] | BadRow]]] = {
    ".jsonl": _json_lines,
    ".ndjson": _json_lines,
    ".json": _json_lines,
    ".csv": _csv,
    ".tsv": _csv,
    ".parquet": _parquet,
    ".sqlite": _sqlite,
    ".sqlite3": _sqlite,
    ".db": _sqlite,
}
