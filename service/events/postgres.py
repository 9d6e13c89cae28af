"""Events in PostgreSQL, each once: the table `peakplan_events`, made where it is missing."""

import contextlib
import json
from collections.abc import Sequence
from typing import Any

import psycopg
from psycopg.types.json import Jsonb

from service.events.shipping import SinkError

_CONNECT_SECONDS = 5
_TABLE = """
CREATE TABLE IF NOT EXISTS peakplan_events (
  caller text NOT NULL, event_id text NOT NULL, received timestamptz NOT NULL, action_name text NOT NULL,
  query_id text NOT NULL, client_id text, event jsonb NOT NULL, PRIMARY KEY (caller, query_id, event_id))
"""
# A table that was made before ids belonged to plans: a stranger's event would keep out another plan's.
_REKEY = """
DO $$ BEGIN
  IF (SELECT cardinality(conkey) FROM pg_constraint
      WHERE conrelid = 'peakplan_events'::regclass AND contype = 'p') = 2 THEN
    ALTER TABLE peakplan_events DROP CONSTRAINT peakplan_events_pkey, ADD PRIMARY KEY (caller, query_id, event_id);
  END IF;
END $$
"""
_INSERT = """
INSERT INTO peakplan_events (caller, event_id, received, action_name, query_id, client_id, event)
VALUES (%s, %s, to_timestamp(%s), %s, %s, %s, %s) ON CONFLICT DO NOTHING
"""


class PostgresSink:
    """Inserts events; a connection that breaks is made anew with the next ones."""

    def __init__(self, url: str) -> None:
        self._url = url
        self._connection: psycopg.Connection[Any] | None = None

    def take(self, lines: Sequence[bytes]) -> None:
        """Insert these events in one transaction. Raises SinkError."""
        rows = [_row(line) for line in lines if line]
        try:
            connection = self._connected()
            with connection.transaction(), connection.cursor() as cursor:
                cursor.executemany(_INSERT, rows)
        except psycopg.Error as error:
            self.close()
            raise SinkError(f"PostgreSQL: {type(error).__name__}") from None  # its message may have an event's values

    def close(self) -> None:
        if self._connection is not None:
            with contextlib.suppress(psycopg.Error):
                self._connection.close()
            self._connection = None

    def _connected(self) -> "psycopg.Connection[Any]":
        if self._connection is None:
            self._connection = psycopg.connect(self._url, autocommit=True, connect_timeout=_CONNECT_SECONDS)
            self._connection.execute(_TABLE)
            self._connection.execute(_REKEY)
        return self._connection


def _row(line: bytes) -> tuple[Any, ...]:
    # PostgreSQL's text holds no NUL.
    event = json.loads(line.replace(b"\\u0000", b"\\ufffd"))
    columns = ("caller", "event_id", "time", "action_name", "query_id", "client_id")
    return (*(event.get(name) for name in columns), Jsonb(event))
