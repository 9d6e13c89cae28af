"""The rows of a running engine as JSON lines on disk, each engine read by its own client library (docs/shop.md).

What was read stays beside the output until the shop folder is whole: the same command goes on there and asks the
engine for no row twice, where its order allows that.
"""

import hashlib
import json
import logging
import os
import re
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from importlib import import_module
from pathlib import Path
from typing import Any, Final
from urllib.parse import SplitResult, unquote, urlsplit

from peakplan.shop.chunks import write_whole
from peakplan.shop.progress import Progress
from peakplan.shop.sources import SourceError

_BATCH: Final = 1000  # rows
_KEEP: Final = "10m"  # how long an engine keeps its view of the index between two batches
_LIBRARIES: Final = {
    "opensearch": "opensearchpy", "elasticsearch": "elasticsearch", "typesense": "typesense", "postgresql": "psycopg",
}  # fmt: skip
_INSTALL: Final = "pip install -e '.[shop,shop-engines]'"
Batch = tuple[list[str], Any]  # rows as JSON, and what the next batch comes after; None where there is no going on


@dataclass(frozen=True, slots=True)
class Source:
    """An engine's address. `key` is an API key, or `user:password`; `table` names a table of PostgreSQL."""

    text: str
    url: SplitResult
    key: str | None = None
    table: str | None = None

    @property
    def engine(self) -> str:
        return "postgresql" if self.url.scheme == "postgres" else self.url.scheme.partition("+")[0]

    @property
    def index(self) -> str:
        """The index or collection: the last part of the path. Raises SourceError."""
        name = unquote(self.url.path).strip("/")
        if not name:
            raise SourceError(f"{self}: name the index or collection, as in {self.url.scheme}://HOST:PORT/products")
        return name

    @property
    def address(self) -> str:
        """The engine's own address, without user and path."""
        scheme = self.url.scheme.partition("+")[2] or "https"
        return f"{scheme}://{self.url.hostname or ''}:{self.port}"

    @property
    def port(self) -> int:
        return self.url.port or (8108 if self.engine == "typesense" else 9200)

    def __str__(self) -> str:
        """Return the address without user and password, as a command says it."""
        told = re.sub(r"//[^/]*@", "//", self.text).partition("?")[0]
        return f"{told} --table {self.table}" if self.table else told

    @property
    def mark(self) -> str:
        """What tells one source from another, and no secret."""
        return hashlib.sha256(f"{self.text} {self.table}".encode()).hexdigest()


def is_engine(source: str) -> bool:
    """Tell whether a source is a running engine's address, and no file."""
    return "://" in source


def engine_source(source: str, key_file: Path | None = None, table: str | None = None) -> Source:
    """Return an address as it was given. Raises SourceError."""
    try:
        url = urlsplit(source)
        _ = url.port
    except ValueError as error:
        raise SourceError(f"{source} is no address ({error})") from error
    try:
        key = key_file.read_text(encoding="utf-8").strip() if key_file else None
    except (OSError, UnicodeDecodeError) as error:
        raise SourceError(f"--key-file {key_file}: {error}") from error
    found = Source(source, url, key, table)
    if found.engine not in _LIBRARIES or url.scheme.partition("+")[2] not in ("", "http", "https"):
        known = ", ".join(f"{name}://" for name in _LIBRARIES)
        raise SourceError(f"{url.scheme}:// is none of {known} (the first three also as +http://)")
    if found.engine == "postgresql" and not table:
        raise SourceError(f"{found}: name a table with --table")
    return found


def fetch_rows(source: Source, output: Path, *, quiet: bool = False) -> Path:
    """Write all rows beside the output, and return the file. What an earlier run read is kept. Raises SourceError."""
    path = output.with_name(f"{output.name}.rows.jsonl")
    state_path = output.with_name(f"{output.name}.rows.state")
    fresh: dict[str, Any] = {"source": source.mark, "after": None, "rows": 0, "bytes": 0, "done": False}
    state = _state(state_path, path)
    if state is None or state["source"] != fresh["source"] or not (state["done"] or state["after"]):
        state = dict(fresh)
    if state["done"]:
        return path
    output.parent.mkdir(parents=True, exist_ok=True)
    try:
        _append(source, path, state_path, state, quiet)
    except _PlaceGoneError:
        _append(source, path, state_path, dict(fresh), quiet)
    return path


class _PlaceGoneError(Exception):
    """Raised where the engine no longer knows the place to go on from."""


def _append(source: Source, path: Path, state_path: Path, state: dict[str, Any], quiet: bool) -> None:
    """Write the rows that come after what the state says was written."""
    progress = Progress(f"reading {source.engine}", None, quiet=quiet)
    progress.at(state["rows"])
    with path.open("r+b" if path.is_file() else "w+b") as file:
        file.truncate(state["bytes"])
        file.seek(state["bytes"])
        for rows, after in _batches(source, state["after"]):
            file.write("".join(f"{row}\n" for row in rows).encode())
            file.flush()
            os.fsync(file.fileno())
            state |= {"after": after, "rows": state["rows"] + len(rows), "bytes": file.tell()}
            write_whole(state_path, json.dumps(state).encode())
            progress.at(state["rows"])
    write_whole(state_path, json.dumps(state | {"done": True}).encode())
    progress.end(state["rows"])


def forget_rows(output: Path) -> None:
    """Remove what was read, once the shop folder is whole."""
    for suffix in ("jsonl", "state"):
        output.with_name(f"{output.name}.rows.{suffix}").unlink(missing_ok=True)


def _state(path: Path, rows: Path) -> dict[str, Any] | None:
    try:
        state: dict[str, Any] = json.loads(path.read_text(encoding="utf-8"))
        return state if rows.stat().st_size >= state["bytes"] else None
    except (OSError, ValueError, KeyError, TypeError):
        return None


def _batches(source: Source, after: Any) -> Iterator[Batch]:
    """Yield the engine's rows after a place. Raises SourceError for whatever goes wrong there."""
    try:
        library = import_module(_LIBRARIES[source.engine])
    except ImportError as error:
        raise SourceError(f"{source} needs {_LIBRARIES[source.engine]}: {_INSTALL}") from error
    for name in ("opensearch", "elastic_transport", "typesense"):  # what goes wrong is told below, once
        logging.getLogger(name).setLevel(logging.CRITICAL)
    try:
        yield from _READERS[source.engine](source, library, after)
    except _errors(source.engine, library) as error:
        told = " ".join(str(error).split())[:300]
        raise SourceError(f"{source} cannot be read ({told}): the same command goes on from here") from error


def _errors(engine: str, library: Any) -> tuple[type[BaseException], ...]:
    """Return what the library raises, and what its connection does."""
    own = {
        "opensearch": ("exceptions.OpenSearchException",),
        "elasticsearch": ("ApiError", "TransportError"),
        "typesense": ("exceptions.TypesenseClientError",),
        "postgresql": ("Error",),
    }
    found: list[type[BaseException]] = [OSError]
    for name in own[engine]:
        at = library
        for part in name.split("."):
            at = getattr(at, part)
        found.append(at)
    if engine == "typesense":
        found += [import_module("httpx").HTTPError]
    return tuple(found)


def _authorisation(source: Source) -> dict[str, Any]:
    """Return how a client of OpenSearch or Elasticsearch says who asks."""
    if source.url.username:
        return {"basic_auth": (unquote(source.url.username), unquote(source.url.password or ""))}
    if source.key and ":" in source.key:
        return {"basic_auth": tuple(source.key.split(":", 1))}
    return {"api_key": source.key} if source.key else {}


def _opensearch(source: Source, library: Any, after: Any) -> Iterator[Batch]:
    """Scroll. A scroll gives no batch twice, so that a run that was ended begins again."""
    del after
    given = _authorisation(source)
    if "api_key" in given:
        raise SourceError(f"{source}: OpenSearch wants user:password in the key file")
    client = library.OpenSearch([source.address], http_auth=given.get("basic_auth"), timeout=60, max_retries=3,
                                retry_on_timeout=True)  # fmt: skip
    hits = library.helpers.scan(client, index=source.index, size=_BATCH, scroll=_KEEP)
    rows: list[str] = []
    for hit in hits:
        rows.append(_row(hit))
        if len(rows) == _BATCH:
            yield rows, None
            rows = []
    yield rows, None


def _elasticsearch(source: Source, library: Any, after: Any) -> Iterator[Batch]:
    """Read a point in time, in which every document has a place to go on from."""
    client = library.Elasticsearch(source.address, request_timeout=60, max_retries=3, retry_on_timeout=True,
                                   **_authorisation(source))  # fmt: skip
    view, place = after or (None, None)
    if view is None:
        view = client.open_point_in_time(index=source.index, keep_alive=_KEEP)["id"]
    while True:
        try:
            found = client.search(
                pit={"id": view, "keep_alive": _KEEP}, size=_BATCH, sort=[{"_shard_doc": "asc"}], search_after=place,
                track_total_hits=False,
            )  # fmt: skip
        except library.NotFoundError as error:
            if after is None:
                raise
            raise _PlaceGoneError from error  # its time was over
        hits = found["hits"]["hits"]
        if not hits:
            break
        view, place = found.get("pit_id", view), hits[-1]["sort"]
        yield [_row(hit) for hit in hits], [view, place]
    client.close_point_in_time(id=view)


def _row(hit: Any) -> str:
    """Return a document with its id, which may stand beside it alone."""
    return json.dumps({"id": hit["_id"], **hit["_source"]}, ensure_ascii=False, default=str)


def _typesense(source: Source, library: Any, after: Any) -> Iterator[Batch]:
    """Export the collection, which the library returns as one text."""
    del after
    if not source.key:
        raise SourceError(f"{source}: name the file of an API key that may export documents with --key-file")
    scheme, port = source.address.partition(":")[0], source.port
    nodes = [{"host": source.url.hostname or "", "port": str(port), "protocol": scheme}]
    client = library.Client({"nodes": nodes, "api_key": source.key, "connection_timeout_seconds": 300})
    lines = client.collections[source.index].documents.export().split("\n")
    for first in range(0, len(lines), _BATCH):
        yield [line for line in lines[first : first + _BATCH] if line.strip()], None


def _postgresql(source: Source, library: Any, after: Any) -> Iterator[Batch]:
    """Read one snapshot of a table by a server-side cursor, by its primary key where it has one."""
    sql = library.sql
    named = sql.SQL(".").join(map(sql.Identifier, (source.table or "").split(".")))
    with library.connect(source.text, connect_timeout=30) as connection:
        connection.read_only = True
        connection.isolation_level = library.IsolationLevel.REPEATABLE_READ
        keys, left_out = _columns(connection, named)
        columns = [sql.SQL("item.{}::text").format(sql.Identifier(key)) for key in keys]
        query = sql.SQL("SELECT (to_jsonb(item) - %s::text[])::text{} FROM {} AS item").format(
            sql.SQL("").join(sql.SQL(", ") + column for column in columns), named
        )
        parameters: list[Any] = [left_out]
        if keys:
            order = sql.SQL(", ").join(map(sql.Identifier, keys))
            if after:
                marks = sql.SQL(", ").join(sql.Placeholder() * len(keys))
                query += sql.SQL(" WHERE ({}) > ({})").format(order, marks)
                parameters += after
            query += sql.SQL(" ORDER BY {}").format(order)
        with connection.cursor(name="peakplan_shop_learn") as cursor:
            cursor.itersize = _BATCH
            cursor.execute(query, parameters)
            while rows := cursor.fetchmany(_BATCH):
                yield [row[0] for row in rows], list(rows[-1][1:]) or None


def _columns(connection: Any, named: Any) -> tuple[list[str], list[str]]:
    """Return the columns of the primary key, and those that say nothing of a product."""
    of_table = "attrelid = %s::regclass AND attnum > 0 AND NOT attisdropped"
    table = named.as_string(connection)
    keys = connection.execute(
        "SELECT a.attname FROM pg_index AS i JOIN pg_attribute AS a ON a.attrelid = i.indrelid AND a.attnum = "
        "ANY(i.indkey) WHERE i.indrelid = %s::regclass AND i.indisprimary ORDER BY array_position(i.indkey, a.attnum)",
        [table],
    ).fetchall()
    useless = connection.execute(
        f"SELECT attname FROM pg_attribute WHERE {of_table} AND atttypid IN ('tsvector'::regtype, 'bytea'::regtype)",
        [table],
    ).fetchall()
    return [name for (name,) in keys], [name for (name,) in useless]


_READERS: Final[dict[str, Callable[[Source, Any, Any], Iterator[Batch]]]] = {
    "opensearch": _opensearch,
    "elasticsearch": _elasticsearch,
    "typesense": _typesense,
    "postgresql": _postgresql,
}
