"""Rows of a catalogue's file, told by its contents: JSON, CSV, XML, Parquet, SQLite. A bad row is told, never fatal."""

import csv
import gzip
import io
import json
import re
import sqlite3
import xml.etree.ElementTree as ElementTree
import zipfile
import zlib
from collections.abc import Callable, Iterable, Iterator
from contextlib import closing
from importlib import import_module
from itertools import chain
from pathlib import Path
from typing import IO, Any, Final, TextIO

from charset_normalizer import from_bytes

from peakplan.shop.merging import BadRow, Found, Row, merged

MOST_CHARACTERS: Final = 4 << 20  # of one cell or line: more is no product
_DELIMITERS: Final = ",;\t|"
_BATCH: Final = 1000
_HEAD: Final = 1 << 20  # bytes that tell format and encoding
_LOCAL: Final = ("cp1252", "cp1250", "cp1251", "cp1253", "cp1254", "cp932", "gb18030", "euc_kr")
_NO_CATALOGUE: Final = {b"%PDF": "a PDF", b"\xd0\xcf\x11\xe0": "an old Excel file", b"\x89PNG": "a picture"}
_UNREADABLE: Final = (
    OSError, EOFError, RuntimeError, sqlite3.Error, zipfile.BadZipFile, zlib.error, csv.Error, ElementTree.ParseError,
)  # fmt: skip
_STRAY_QUOTE: Final = re.compile(r'(?<=[^",;\t|\r\n])"(?=[^",;\t|\r\n])|(?<=\d)"(?=[ \w])')
_IN_NAMES: Final = re.compile(r'[\x00-\x1f\x7f"`\\*^;\udc80-\udcff]')  # no part of a field's name in a mapping
_UNDECODED: Final = re.compile(r"[\udc80-\udcff]")
_LEAST_CELLS: Final = 0.5  # of the columns: a row with as many lacks its last cells, one with fewer is none


class SourceError(ValueError):
    """Raised for a file that is no catalogue; the message says what to do."""


def rows(path: Path, *, table: str | None = None) -> Iterator[tuple[int, Row] | BadRow]:
    """Yield (line, row) of every product, its variants merged, or what is wrong with a row.

    Raises SourceError where the file is no catalogue.
    """
    if not path.is_file():
        raise SourceError(f"there is no file {path}: name the catalogue's file")
    try:
        yield from merged(_read(path, table))
    except SourceError:
        raise
    except UnicodeError as error:
        raise SourceError(f"{path} cannot be read as text ({error}): save it as UTF-8") from error
    except _UNREADABLE as error:
        raise SourceError(
            f"{path} cannot be read ({error}): is it whole, and of the kind that its name says?"
        ) from error
    except ValueError as error:
        raise SourceError(f"{path}: {error}") from error


def _read(path: Path, table: str | None) -> Iterator[Found]:
    suffix = path.suffix.lower()
    if suffix in _TABLES:
        yield from _TABLES[suffix](path, table)
        return
    with _open(path) as file:
        head = file.read(_HEAD)
    start = head.replace(b"\0", b"").lstrip(b"\xef\xbb\xbf\xff\xfe \t\r\n")
    for magic, what in _NO_CATALOGUE.items():
        if head.startswith(magic):
            raise SourceError(f"{path} is {what}: save it as CSV in UTF-8")
    is_lines = ".jsonl" in path.name or ".ndjson" in path.name
    if start[:1] == b"<":
        with _open(path) as file:
            yield from xml_rows(file)
    elif is_lines or start[:1] in (b"{", b"["):
        with _text(path, "utf-16" if b"\0" in head[:4] else "utf-8-sig") as text:
            yield from json_rows(text, is_lines=is_lines)
    elif start:
        with _text(path, _encoding(path, head)) as text:
            yield from _csv(path, text)


def _open(path: Path) -> IO[bytes]:
    """Open a file, or the one file in an archive."""
    with path.open("rb") as file:
        magic = file.read(4)
    if magic[:2] == b"\x1f\x8b":
        return gzip.open(path, "rb")  # type: ignore[return-value]
    if magic != b"PK\x03\x04":
        return path.open("rb")
    archive = zipfile.ZipFile(path)
    names = [
        name
        for name in archive.namelist()
        if not name.endswith("/") and not re.match(r"__MACOSX|(.*/)?readme", name, re.I)
    ]
    if any(name.startswith(("xl/", "word/", "content.xml")) for name in names):
        raise SourceError(f"{path} is a spreadsheet: save it as CSV in UTF-8")
    if len(names) != 1:
        raise SourceError(f"{path} holds {', '.join(names[:5]) or 'no file'}: unpack it and name one file")
    return archive.open(names[0])


def _text(path: Path, encoding: str) -> TextIO:
    """Return a file's text with the ends of its lines as they are; bytes that are no text become surrogates."""
    return io.TextIOWrapper(_open(path), encoding=encoding, errors="surrogateescape", newline="")


def _encoding(path: Path, head: bytes) -> str:
    if head[:2] in (b"\xff\xfe", b"\xfe\xff"):
        return "utf-16"
    if head[1:20:2].count(0) > 5 or head[0:20:2].count(0) > 5:
        return "utf-16-le" if head[1] == 0 else "utf-16-be"
    text = head[: head.rfind(b"\n") + 1 or None].decode("utf-8", "surrogateescape")
    wrong = sum(bool(_UNDECODED.search(line)) for line in text.splitlines())
    right = sum(not line.isascii() and not _UNDECODED.search(line) for line in text.splitlines())
    if wrong <= right:
        return "utf-8-sig"
    found = {each.encoding: each.chaos for each in from_bytes(head, cp_isolation=list(_LOCAL))}
    if not found:
        raise SourceError(f"{path} is in no encoding that can be told: save it as UTF-8")
    return min(found, key=lambda name: (round(found[name], 2), _LOCAL.index(name)))


class _Lines:
    """The lines of a text; keeps those that were read since `taken` was emptied."""

    def __init__(self, file: TextIO) -> None:
        self._file = file
        self.taken: list[str] = []

    def __iter__(self) -> "_Lines":
        return self

    def __next__(self) -> str:
        line = self._file.readline(MOST_CHARACTERS)
        if not line:
            raise StopIteration
        self.taken.append(line)
        return line


def _csv(path: Path, file: TextIO) -> Iterator[Found]:
    csv.field_size_limit(MOST_CHARACTERS)
    lines = _Lines(file)
    first, skipped = next(lines, ""), 0
    delimiter = max(_DELIMITERS, key=first.count)
    if told := re.fullmatch(r'"?sep=(.)"?\s*', first, re.I):  # what Excel writes above the names
        first, delimiter, skipped = next(lines, ""), told[1], 1
    names = next(csv.reader([first], delimiter=delimiter), [])
    while names and not names[-1].strip():
        names.pop()
    names = [_IN_NAMES.sub("", name).strip() for name in names]
    if len(set(names)) != len(names) or not names:
        raise SourceError(f"{path}: its first line must name every column once")
    if len(names) > 1 and any(re.fullmatch(r"\D{0,3}\d+([.,]\d+)*\D{0,3}", name) for name in names):
        raise SourceError(
            f"{path}: its first line looks like a product ({', '.join(names)[:80]}): "
            "write a line above it that names the columns, such as id,title,brand,category,price"
        )
    reader = csv.reader(lines, delimiter=delimiter, strict=True)
    number = 1 + skipped
    while True:
        lines.taken = []
        try:
            cells = next(reader, None)
            if cells is None:
                return
            row = _row(cells, names)
        except csv.Error as error:
            row = f"is not CSV ({error})"
        if isinstance(row, str):  # a quote that ends nothing may have taken the next lines along
            for line in lines.taken:
                number += 1
                yield _single(line, number, names, delimiter)
            continue
        at, number = number + 1, number + len(lines.taken)
        if row:
            yield at, row


def _row(cells: list[str], names: list[str]) -> Row | str:
    """Return a row, nothing for an empty line, or why there is none."""
    while len(cells) > len(names) and not cells[-1].strip():
        cells.pop()
    if not cells:
        return Row()
    if len(cells) > len(names) or len(cells) < _LEAST_CELLS * len(names):
        return f"has {len(cells)} cells, and the first line names {len(names)} columns"
    if any(not cell.isascii() and _UNDECODED.search(cell) for cell in cells):
        return "is not UTF-8"
    return Row(zip(names, cells, strict=False))


def _single(line: str, number: int, names: list[str], delimiter: str) -> Found:
    """Return one line as a row, with quotes inside cells (24" wide) taken as they are meant."""
    try:
        row = _row(next(csv.reader([_STRAY_QUOTE.sub('""', line)], delimiter=delimiter, strict=True)), names)
    except (csv.Error, StopIteration) as error:
        row = f"is not CSV ({error})"
    return BadRow(number, row) if isinstance(row, str) else (number, row)


def _parquet(path: Path, table: str | None) -> Iterator[Found]:
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
            yield number, Row(row)


def _sqlite(path: Path, table: str | None) -> Iterator[Found]:
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
            yield number, Row(zip(columns, cells, strict=True))


_TABLES: Final[dict[str, Callable[[Path, str | None], Iterator[Found]]]] = {
    ".parquet": _parquet, ".sqlite": _sqlite, ".sqlite3": _sqlite, ".db": _sqlite,
}  # fmt: skip


_MOST_CHARACTERS: Final = 4 << 20  # of one product
_READ: Final = 1 << 16
_BETWEEN: Final = re.compile(r"[\s,\[\ufeff]*")
_WRAPPED: Final = ("_source", "node", "document", "item")  # what dumps and feeds put a product into
_ITEMS: Final = frozenset("item entry shopitem product offer row record artikel produkt".split())


def json_rows(file: TextIO, *, is_lines: bool) -> Iterator[Found]:
    """Yield the objects of a text: one a line, those of an array, or the longest list inside one object."""
    first = next((line for line in file if line.strip()), "")
    if first.lstrip("\ufeff \t").startswith("["):
        yield from _array(first, file)
        return
    is_lines = is_lines or not isinstance(_parsed(first), str)
    if is_lines and not (rest := next((line for line in file if line.strip()), "")):
        one = _parsed(first)
        yield from ((at, each) for at, each in enumerate(_inside(one), 1)) if isinstance(one, dict) else _lines([first])
    elif is_lines:
        yield from _lines(chain([first, rest], file))
    else:
        whole = _parsed(first + file.read())
        found = [BadRow(1, whole)] if isinstance(whole, str) else enumerate(_inside(whole), 1)
        yield from found


def _parsed(text: str) -> Any:
    """Return the data in a text, or say why there is none."""
    try:
        text.encode()
        found = json.loads(text.lstrip("\ufeff"))
    except UnicodeEncodeError as error:
        return f"is not UTF-8 (character {error.start})"
    except (ValueError, RecursionError) as error:
        return f"is not JSON ({error})"
    return "is a text, not an object" if isinstance(found, str) else found


def _lines(lines: Iterable[str]) -> Iterator[Found]:
    action: dict[str, Any] = {}
    for number, line in enumerate(lines, 1):
        if not line.strip():
            continue
        row = _parsed(line) if len(line) <= _MOST_CHARACTERS else f"has {len(line)} characters, which no product has"
        if isinstance(row, dict) and row.keys() in ({"index"}, {"create"}):  # the actions of a bulk request
            action = next(iter(row.values()))
        elif isinstance(row, dict):
            yield number, Row({**({"_id": action["_id"]} if "_id" in action else {}), **_unwrapped(row)})
            action = {}
        else:
            yield BadRow(number, row if isinstance(row, str) else f"is a {type(row).__name__}, not an object")


def _array(first: str, file: TextIO) -> Iterator[Found]:
    """Yield the elements of an array, however its lines are broken, without holding all of it."""
    decoder, number, text, at = json.JSONDecoder(), 0, first, 0
    while True:
        match = _BETWEEN.match(text, at)
        at = match.end() if match else at
        try:
            row, at = decoder.raw_decode(text, at)
        except ValueError as error:
            more = file.read(_READ)
            if more and len(text) - at <= _MOST_CHARACTERS:
                text, at = text[at:] + more, 0
                continue
            if more or not text[at:].lstrip().startswith("]"):
                yield BadRow(number + 1, f"is not JSON ({error}), and nothing after it is read")
            return
        number += 1
        yield (number, _unwrapped(row)) if isinstance(row, dict) else BadRow(number, "is no object")


def _inside(value: Any) -> Iterator[Row]:
    """Yield the products of an object: those of its longest list of objects, else itself."""
    best: list[Any] = []
    level = [value]
    for _ in range(5):
        lists = [each for each in level if isinstance(each, list) and each and isinstance(each[0], dict)]
        best = max([best, *lists], key=len)
        level = [below for each in level if isinstance(each, dict) for below in each.values()]
        if best:
            break
    held = list(value.values()) if isinstance(value, dict) and not best else []
    if len(held) > 1 and all(isinstance(each, dict) and each.keys() == held[0].keys() for each in held):  # by their ids
        best = [{"_id": name, **each} for name, each in value.items()]
    is_product = isinstance(value, dict) and value.keys() & {"title", "name", "sku", "offers"}
    rows = [_unwrapped(each) for each in best if isinstance(each, dict)] if not is_product else []
    products = [row for row in rows if "Product" in str(row.get("@type", ""))]
    yield from products or rows or [_unwrapped(value)]


def _unwrapped(row: dict[str, Any]) -> Row:
    """Return the product that a dump has put into an object of its own, with its id."""
    inner = next((row[name] for name in _WRAPPED if isinstance(row.get(name), dict)), None)
    if inner is None:
        return Row(row)
    return Row({**({"_id": row["_id"]} if "_id" in row and "id" not in inner else {}), **inner})


def xml_rows(file: IO[bytes]) -> Iterator[Found]:
    """Yield the products of a feed: Google's and Facebook's RSS and Atom, Heureka's, Yandex's, a shop's own.

    Raises ValueError where there is none.
    """
    number = 0
    inside: ElementTree.Element | None = None
    paths: dict[str, str] = {}  # of categories that the feed names once, by id
    for event, one in ElementTree.iterparse(file, events=("start", "end")):
        if event == "start":
            inside = one if inside is None and _local(one.tag) in _ITEMS else inside
        elif inside is not None and one is inside:
            number, inside = number + 1, None
            row = Row(_children(one))
            if (path := paths.get(str(row.get("categoryId")))) is not None:
                row["category"] = path
                del row["categoryId"]
            yield number, row
            one.clear()
        elif inside is None and _local(one.tag) == "category" and one.get("id") and one.text:
            above = paths.get(one.get("parentId", ""), "")
            paths[one.get("id", "")] = f"{above} > {one.text.strip()}".removeprefix(" > ")
    if not number:
        raise ValueError(f"it has none of the elements {', '.join(sorted(_ITEMS))}: save it as CSV in UTF-8")


def _local(tag: str) -> str:
    return tag.rpartition("}")[2].lower()


def _children(one: ElementTree.Element) -> dict[str, Any]:
    found: dict[str, Any] = {name: value for name, value in one.attrib.items() if name in ("id", "available")}
    for child in one:
        name = child.tag.rpartition("}")[2]
        value: Any = _children(child) if len(child) else (child.text or "").strip() or child.get("href", "")
        if isinstance(value, dict) and name.lower() == "param":
            pair = list(value.values())[:2]
            value = {"name": pair[0], "value": pair[-1]}
        elif child.get("name") and isinstance(value, str):  # <param name="Colour">blue</param>
            value = {"name": child.get("name"), "value": value}
        if name in found or isinstance(value, dict):
            before = found.get(name, [])
            value = [*(before if isinstance(before, list) else [before]), value]
        found[name] = value
    return found
