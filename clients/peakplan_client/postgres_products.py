"""The sample catalogue's products in PostgreSQL: `python -m peakplan_client.postgres_products URL` puts them there.

Hosts then share one shop instead of each having its own. It needs psycopg: `pip install 'peakplan[postgres]'`.
"""

import contextlib
import hashlib
import os
import sys
import threading
import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import astuple
from pathlib import Path
from typing import Any, Final

import psycopg
from psycopg import sql
from psycopg.rows import dict_row

from peakplan_client import catalogue
from peakplan_client.engines import postgresql
from peakplan_client.errors import CatalogueError, SearchTimeoutError
from peakplan_client.mapping import CatalogueMapping

MAPPING = Path(__file__).with_name("shop.yaml")
CONFIGURATION = "pg_catalog.english"  # of the words in the column and of those that are asked for
_COMMAND = "python -m peakplan_client.postgres_products"
_CONNECT_SECONDS = 2  # the least that libpq takes
_MARK = "Peakplan's sample catalogue"  # begins the comment of a table that may be written anew
_COLUMNS = "id text PRIMARY KEY, name text, style text, category text, description text, price float8, gender text"
_FIELDS = ("id", "name", "style", "category", "description", "price", "gender")  # Product's


class PostgresProducts:
    """A table that others may write meanwhile. Threads may share it: they search one after the other.

    Its one connection is made anew where it broke.
    """

    engine: Final = "postgresql"

    def __init__(self, url: str, table: str) -> None:
        """Look whether the table is there. Raises CatalogueError."""
        self._url, self._table = url, table
        self._turn = threading.Lock()
        self._connection: psycopg.Connection[dict[str, Any]] | None = None
        look = sql.SQL("SELECT FROM {} LIMIT 1").format(_identifier(table)).as_string()
        try:
            self.run([postgresql.Statement(look, ())], _CONNECT_SECONDS, lambda: False)
        except BaseException:
            self.close()
            raise

    def run(
        self, statements: Sequence[postgresql.Statement], seconds: float, given_up: Callable[[], bool]
    ) -> list[list[dict[str, Any]]]:
        """Return each statement's rows. Raises SearchTimeoutError, also between two once `given_up`; CatalogueError."""
        end = time.monotonic() + seconds
        if not self._turn.acquire(timeout=max(seconds, 0.0)):
            raise _late(seconds)
        try:
            with self._told(seconds):
                return [self._rows(each, seconds, end, given_up) for each in statements]
        finally:
            self._turn.release()

    def most_of(self, field: str, among: str, values: Sequence[str], index: str, seconds: float) -> list[str]:
        """Return what `field` holds where the field `among` has one of the values, the most frequent first."""
        statement = sql.SQL("SELECT {0} AS held FROM {1} WHERE {2} = ANY(%s) GROUP BY 1 ORDER BY count(*) DESC, 1")
        text = statement.format(sql.Identifier(field), _identifier(index), sql.Identifier(among)).as_string()
        (rows,) = self.run([postgresql.Statement(text, (list(values),))], seconds, lambda: False)
        return [str(row["held"]) for row in rows]

    def close(self) -> None:
        """Give the connection back; the next search makes another."""
        if self._connection is not None:
            with contextlib.suppress(psycopg.Error):
                self._connection.close()
            self._connection = None

    def _rows(
        self, statement: postgresql.Statement, seconds: float, end: float, given_up: Callable[[], bool]
    ) -> list[dict[str, Any]]:
        if given_up():
            raise SearchTimeoutError("Nobody waits for this search any more.")
        left = round(1000 * (end - time.monotonic()))
        if left < 1:
            raise _late(seconds)
        connection = self._within(left)
        return connection.execute(statement.sql.encode(), statement.parameters).fetchall()

    def _within(self, milliseconds: int) -> psycopg.Connection[dict[str, Any]]:
        """Return a connection that lives, whose next statement may take so long."""
        wait = ("SELECT set_config('statement_timeout', %s, false)", (str(milliseconds),))
        if self._connection is not None:
            try:
                self._connection.execute(*wait)
            except psycopg.OperationalError:  # the server was started anew, say
                self.close()
        if self._connection is None:
            self._connection = _connect(self._url)
            self._connection.execute("SET default_transaction_read_only = on")
            self._connection.execute(*wait)
        return self._connection

    @contextlib.contextmanager
    def _told(self, seconds: float) -> Iterator[None]:
        try:
            yield
        except psycopg.errors.QueryCanceled as error:
            raise _late(seconds) from error
        except psycopg.errors.UndefinedTable as error:
            raise CatalogueError(
                f"The shop's PostgreSQL has no table {self._table}: for the sample shop `{_COMMAND} URL` writes it."
            ) from error
        except psycopg.OperationalError as error:
            self.close()
            # The driver's message names the database's address, which a service's callers must not see.
            raise CatalogueError(f"The shop's PostgreSQL does not answer ({type(error).__name__}).") from error


def fill(url: str, file: Path = catalogue.PRODUCTS) -> int:
    """Write the sample catalogue into the mapping's table, whole or not at all; return how many products it has.

    Does nothing where this catalogue is there already. Raises CatalogueError and psycopg.Error.
    """
    mapping = CatalogueMapping.load(MAPPING)
    table = _identifier(mapping.index)
    comment = f"{_MARK} {catalogue.digest(file)} {hashlib.sha256(_COLUMNS.encode()).hexdigest()[:12]}"
    with _connect(url) as connection, connection.transaction():
        connection.execute("SELECT pg_advisory_xact_lock(hashtext(%s))", (_MARK,))  # one that fills at a time
        there = connection.execute("SELECT obj_description(to_regclass(%s)) AS said", (mapping.index,)).fetchone()
        exists = connection.execute("SELECT to_regclass(%s) AS found", (mapping.index,)).fetchone()
        said = (there or {}).get("said") or ""
        if (exists or {}).get("found") is not None and not said.startswith(_MARK):
            raise CatalogueError(f"The database has a table {mapping.index} of somebody else: name another database.")
        if said != comment:
            _write(connection, table, mapping, file, comment)
        counted = connection.execute(sql.SQL("SELECT count(*) AS products FROM {}").format(table)).fetchone()
    assert counted is not None
    return int(counted["products"])


def _write(
    connection: psycopg.Connection[dict[str, Any]],
    table: sql.Identifier,
    mapping: CatalogueMapping,
    file: Path,
    comment: str,
) -> None:
    connection.execute(sql.SQL("DROP TABLE IF EXISTS {}").format(table))
    weights = dict(zip(mapping.text, "ABCDDDD", strict=False))
    vectors = [
        sql.SQL("setweight(to_tsvector({}, coalesce({}, '')), {})").format(CONFIGURATION, sql.Identifier(name), letter)
        for name, letter in weights.items()
    ]
    search = sql.SQL(" || ").join(vectors)
    connection.execute(
        sql.SQL("CREATE TABLE {} ({}, search tsvector GENERATED ALWAYS AS ({}) STORED)").format(
            table, sql.SQL(_COLUMNS), search
        )
    )
    copying = sql.SQL("COPY {} ({}) FROM STDIN").format(table, sql.SQL(", ").join(map(sql.Identifier, _FIELDS)))
    with connection.cursor() as cursor, cursor.copy(copying) as copy:
        for product in catalogue.read(file):
            copy.write_row(astuple(product))
    connection.execute(sql.SQL("CREATE INDEX ON {} USING gin (search)").format(table))
    connection.execute(sql.SQL("COMMENT ON TABLE {} IS {}").format(table, comment))
    connection.execute(sql.SQL("ANALYZE {}").format(table))


def _connect(url: str) -> psycopg.Connection[dict[str, Any]]:
    connection = psycopg.connect(url, autocommit=True, connect_timeout=_CONNECT_SECONDS, row_factory=dict_row)
    connection.execute("SELECT set_config('default_text_search_config', %s, false)", (CONFIGURATION,))
    return connection


def _identifier(table: str) -> sql.Identifier:
    return sql.Identifier(*table.split("."))


def _late(seconds: float) -> SearchTimeoutError:
    return SearchTimeoutError(f"The shop did not answer within {seconds:g} s.")


def main(words: Sequence[str] = tuple(sys.argv[1:])) -> int:
    """Fill the database of PEAKPLAN_SAMPLE_SHOP_URL, or of the one word; return 1 with a line where it cannot be."""
    url = words[0] if words else os.environ.get("PEAKPLAN_SAMPLE_SHOP_URL", "")
    if not url:
        print("whose database? Name postgresql://..., or set PEAKPLAN_SAMPLE_SHOP_URL", file=sys.stderr)
        return 2
    try:
        products = fill(url)
    except (CatalogueError, psycopg.Error) as error:
        print(f"no sample shop in PostgreSQL: {error}", file=sys.stderr)
        return 1
    print(f"the sample shop has {products} products")
    return 0


if __name__ == "__main__":
    sys.exit(main())
