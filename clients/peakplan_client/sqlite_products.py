"""The sample catalogue's products in SQLite, which `indexing` has written."""

import contextlib
import sqlite3
import time
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Any, Final

from peakplan_client.engines import sqlite
from peakplan_client.errors import SearchTimeoutError

_STEPS_BETWEEN_CHECKS = 2000  # of SQLite's virtual machine: well under a millisecond


class SqliteProducts:
    """A read-only database. Threads may share it: each search has its own connection."""

    engine: Final = "sqlite"

    def __init__(self, database: Path) -> None:
        self._database = database

    def run(
        self, statements: Sequence[sqlite.Statement], seconds: float, given_up: Callable[[], bool]
    ) -> list[list[dict[str, Any]]]:
        """Return each statement's rows. Raises SearchTimeoutError, also once `given_up`."""
        with self._reading(seconds, given_up) as connection:
            return [list(map(dict, connection.execute(each.sql, each.parameters).fetchall())) for each in statements]

    def most_of(self, field: str, among: str, values: Sequence[str], index: str, seconds: float) -> list[str]:
        """Return what `field` holds where the field `among` has one of the values, the most frequent first."""
        marks = ", ".join("?" * len(values))
        statement = sqlite.Statement(
            f'SELECT "{field}" AS held, COUNT(*) AS products FROM {index} WHERE "{among}" IN ({marks}) '
            "GROUP BY held ORDER BY products DESC, held",
            tuple(values),
        )
        (rows,) = self.run([statement], seconds, lambda: False)
        return [str(row["held"]) for row in rows]

    def close(self) -> None:
        """Nothing is kept: each search closes its own connection."""

    @contextlib.contextmanager
    def _reading(self, seconds: float, given_up: Callable[[], bool]) -> Iterator[sqlite3.Connection]:
        end = time.monotonic() + seconds
        connection = sqlite3.connect(f"{self._database.absolute().as_uri()}?mode=ro&immutable=1", uri=True)
        connection.row_factory = sqlite3.Row
        connection.set_progress_handler(lambda: int(given_up() or time.monotonic() > end), _STEPS_BETWEEN_CHECKS)
        try:
            yield connection
        except sqlite3.OperationalError as error:
            if given_up():
                raise SearchTimeoutError("Nobody waits for this search any more.") from error
            if time.monotonic() <= end:
                raise
            raise SearchTimeoutError(f"The shop did not answer within {seconds:g} s.") from error
        finally:
            connection.close()
