"""The rows of a running engine as JSON lines on disk, each engine read by its own client library (docs/shop.md).

They stay beside the output until the shop folder is whole, so that nothing is read again for a question of the learner.
"""

import hashlib
import json
import logging
import os
import re
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from importlib import import_module
from operator import attrgetter
from pathlib import Path
from typing import Any, Final
from urllib.parse import SplitResult, unquote, urlsplit

from peakplan.shop.chunks import shown
from peakplan.shop.sources import SourceError

_BATCH: Final = 1000  # rows
_KEEP: Final = "10m"  # how long an engine keeps its view of the index between two batches
# The library of each engine, and the bases of what it raises.
_LIBRARIES: Final = {
    "opensearch": ("opensearchpy", ("exceptions.OpenSearchException",)),
    "elasticsearch": ("elasticsearch", ("ApiError", "TransportError", "helpers.ScanError")),
    "typesense": ("typesense", ("exceptions.TypesenseClientError",)),
    "postgresql": ("psycopg", ("Error",)),
}
_INSTALL: Final = "pip install -e '.[shop,shop-engines]'"
_ROWS: Final = """SELECT (to_jsonb(item) - ARRAY(
    SELECT attname::text FROM pg_attribute
    WHERE attrelid = %s::regclass AND atttypid IN ('tsvector'::regtype, 'bytea'::regtype)))::text FROM {} AS item"""


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
    """Write all rows into a file beside the output, unless it is there, and return it. Raises SourceError."""
    mark = hashlib.sha256(f"{source.text} {source.table}".encode()).hexdigest()[:16]
    path, draft = (output.with_name(f"{output.name}.rows.{end}") for end in (f"{mark}.jsonl", "draft"))
    if not path.is_file():
        output.parent.mkdir(parents=True, exist_ok=True)
        with (
            draft.open("w", encoding="utf-8") as file,
            shown(_rows(source), f"reading {source.engine}", quiet=quiet, every=1000) as bar,
        ):
            for row in bar:
                file.write(f"{row}\n")
        os.replace(draft, path)
    return path


def _rows(source: Source) -> Iterator[str]:
    """Yield the engine's rows as JSON. Raises SourceError for whatever goes wrong there."""
    name, errors = _LIBRARIES[source.engine]
    try:
        library = import_module(name)
        if source.engine == "elasticsearch":
            import_module("elasticsearch.helpers")
    except ImportError as error:
        raise SourceError(f"{source} needs {name}: {_INSTALL}") from error
    for noisy in ("opensearch", "elastic_transport", "typesense"):  # what goes wrong is told below, once
        logging.getLogger(noisy).setLevel(logging.CRITICAL)
    caught: tuple[type[BaseException], ...] = (OSError, *(attrgetter(each)(library) for each in errors))
    caught += (import_module("httpx").HTTPError,) if source.engine == "typesense" else ()
    try:
        yield from _READERS[source.engine](source, library)
    except caught as error:
        told = " ".join(str(error).split())[:300]
        raise SourceError(f"{source} cannot be read ({told}): mend that, and try the same command again") from error


def _authorisation(source: Source) -> dict[str, Any]:
    """Return how a client of OpenSearch or Elasticsearch says who asks."""
    if source.url.username:
        return {"basic_auth": (unquote(source.url.username), unquote(source.url.password or ""))}
    if source.key and ":" in source.key:
        return {"basic_auth": tuple(source.key.split(":", 1))}
    return {"api_key": source.key} if source.key else {}


def _scrolled(source: Source, library: Any) -> Iterator[str]:
    """Scroll through an index; a document's id may stand beside it alone."""
    given, again = _authorisation(source), {"max_retries": 3, "retry_on_timeout": True}
    if source.engine == "elasticsearch":
        client = library.Elasticsearch(source.address, request_timeout=60, **again, **given)
    elif "api_key" in given:
        raise SourceError(f"{source}: OpenSearch wants user:password in the key file")
    else:
        client = library.OpenSearch([source.address], http_auth=given.get("basic_auth"), timeout=60, **again)
    for hit in library.helpers.scan(client, index=source.index, size=_BATCH, scroll=_KEEP):
        yield json.dumps({"id": hit["_id"], **hit["_source"]}, ensure_ascii=False, default=str)


def _typesense(source: Source, library: Any) -> Iterator[str]:
    """Export the collection, which the library returns as one text."""
    if not source.key:
        raise SourceError(f"{source}: name the file of an API key that may export documents with --key-file")
    scheme = source.address.partition(":")[0]
    nodes = [{"host": source.url.hostname or "", "port": str(source.port), "protocol": scheme}]
    client = library.Client({"nodes": nodes, "api_key": source.key, "connection_timeout_seconds": 300})
    lines = client.collections[source.index].documents.export().split("\n")
    yield from filter(str.strip, lines)


def _postgresql(source: Source, library: Any) -> Iterator[str]:
    """Read one snapshot of a table by a server-side cursor, without columns that say nothing of a product."""
    named = library.sql.SQL(".").join(map(library.sql.Identifier, (source.table or "").split(".")))
    with library.connect(source.text, connect_timeout=30) as connection:
        connection.read_only = True
        with connection.cursor(name="peakplan_shop_learn") as cursor:
            cursor.itersize = _BATCH
            cursor.execute(library.sql.SQL(_ROWS).format(named), [named.as_string(connection)])
            for (row,) in cursor:
                yield row


_READERS: Final[dict[str, Callable[[Source, Any], Iterator[str]]]] = {
    "opensearch": _scrolled,
    "elasticsearch": _scrolled,
    "typesense": _typesense,
    "postgresql": _postgresql,
}
