"""A shop to try plans on: the sample catalogue in SQLite, searched with a plan or with the shopper's words alone."""

import contextlib
import hashlib
import itertools
import sqlite3
import time
from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import astuple, dataclass, fields
from pathlib import Path
from typing import Any, Self

from peakplan_client import catalogue
from peakplan_client.catalogue import Product
from peakplan_client.engines import sqlite
from peakplan_client.errors import SearchTimeoutError
from peakplan_client.indexing import build_index
from peakplan_client.kinds import KIND
from peakplan_client.mapping import CatalogueMapping, words
from peakplan_client.plan import Plan
from peakplan_client.search import Search, Text
from peakplan_client.translating import translate
from peakplan_client.wishes import Judged, Wishes

MAPPING = Path(__file__).with_name("shop.yaml")
LIMIT = 10
TIMEOUT_SECONDS = 1.0
SNIPPET_CHARACTERS = 160
_NEAREST = 3  # kinds that are named where the shop has nothing of the kind asked for
_SCHEMA_VERSION = 1
_COLUMNS = [field.name for field in fields(Product)]
_STEPS_BETWEEN_CHECKS = 2000  # of SQLite's virtual machine: well under a millisecond


@dataclass(frozen=True, slots=True)
class Hit:
    """A product that was found; `price` in US dollars."""

    id: str
    name: str
    price: float
    category: str
    snippet: str


@dataclass(frozen=True, slots=True)
class Found:
    """What a search found, best first; `notes` say what of the plan it left out.

    `nothing`: no hit is of the kind that the plan names, so that all only share words with it; `nearest` are the kinds
    of the shop that come nearest.
    """

    hits: tuple[Hit, ...]
    notes: tuple[str, ...] = ()
    nothing: bool = False
    nearest: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class Option(Hit):
    """A product that was found by a plan, and what of the plan's wishes it meets."""

    judged: Judged


class Findings:
    """What a search found with a plan. Judging costs as much as searching, so that only what is asked for is judged."""

    def __init__(self, found: Found, rows: Sequence[sqlite3.Row], wishes: Wishes) -> None:
        """Take the rows of `found.hits`."""
        self.found = found
        self._rows = rows
        self._wishes = wishes

    def options(self, first: int = 0, end: int | None = None) -> tuple[Option, ...]:
        """Return the products of these ranks, which begin with 0, and how each has the wishes."""
        hits, rows = self.found.hits[first:end], self._rows[first:end]
        return tuple(_option(hit, self._wishes.judge(dict(row))) for hit, row in zip(hits, rows, strict=True))


class Shop:
    """The sample catalogue, open for searches. Threads may share it: each search has a connection of its own."""

    def __init__(self, database: Path, mapping: CatalogueMapping) -> None:
        self._database = database
        self._mapping = mapping

    @classmethod
    def open(cls, cache_dir: str | Path, source: str | Path | None = None) -> Self:
        """Build the database at first start, whole or not at all, and open it. Raises CatalogueError.

        `source` is a file; without it the catalogue is the one beside the checkout, or is downloaded.
        """
        folder = Path(cache_dir).expanduser()
        mapping = CatalogueMapping.load(MAPPING)
        file = catalogue.fetch(folder, source)
        made_of = hashlib.sha256(file.read_bytes()).hexdigest()[:12]
        database = folder / f"sample-shop-{_SCHEMA_VERSION}-{made_of}.sqlite"
        if not database.is_file():
            products = (astuple(product) for product in catalogue.read(file))
            build_index(database, _COLUMNS, products, mapping)
        return cls(database, mapping)

    def with_mapping(self, mapping: CatalogueMapping) -> Self:
        """Return the same shop searched through another mapping; its text fields must be the same."""
        return type(self)(self._database, mapping)

    def search_raw(self, question: str, limit: int = LIMIT, timeout: float = TIMEOUT_SECONDS) -> Found:
        """Find products by the words of the question alone, any of which may match, ranked by BM25.

        Raises SearchTimeoutError.
        """
        text = " ".join(words(question))
        if not text:
            return Found(())
        search = Search((Text(text, 1.0),))
        statement = sqlite.request(search, self._mapping, limit=limit, note=lambda _: None)
        return Found(tuple(map(_hit, self._run([statement], limit, timeout))))

    def search_plan(
        self, plan: Plan | Mapping[str, Any], question: str, limit: int = LIMIT, timeout: float = TIMEOUT_SECONDS
    ) -> Found:
        """Find products by a plan, a model or a dictionary. Of several things, each gets its share of the hits.

        Raises SearchTimeoutError.
        """
        return self.find(plan, question, limit, timeout).found

    def find(
        self,
        plan: Plan | Mapping[str, Any],
        question: str,
        limit: int = LIMIT,
        timeout: float = TIMEOUT_SECONDS,
        given_up: Callable[[], bool] = lambda: False,
    ) -> Findings:
        """Find products as `search_plan` does, to be judged by the plan's wishes.

        Raises SearchTimeoutError, also once `given_up` says that nobody waits any more.
        """
        plan = plan if isinstance(plan, Plan) else Plan.model_validate(plan)
        translation = translate(plan, self._mapping, "sqlite", question, limit=limit)
        rows = self._run(translation.requests, limit, timeout, given_up)
        nothing, nearest = False, tuple[str, ...]()
        if any(translation.is_wanted(dict(row)) for row in rows) or not translation.requests:
            if translation.knows_kind:  # what is the thing before what is not
                rows.sort(key=lambda row: not translation.is_wanted(dict(row)))
        else:
            nothing, nearest = True, self._nearest(plan, rows, timeout)
        found = Found(tuple(map(_hit, rows)), translation.notes, nothing, nearest)
        return Findings(found, rows, Wishes(plan, self._mapping))

    def _nearest(self, plan: Plan, rows: Sequence[sqlite3.Row], timeout: float) -> tuple[str, ...]:
        """Return the kinds that the shop has most of where the plan's vertical is, else those of what shares a word."""
        kind, vertical = self._mapping.facets.get(KIND), self._mapping.vertical
        if kind is None or kind.field is None:
            return ()
        found = Counter(str(row[kind.field]) for row in rows)
        places = vertical.values.get(plan.vertical or "", []) if vertical else []
        if vertical and places:
            marks = ", ".join("?" * len(places))
            statement = sqlite.Statement(
                f'SELECT "{kind.field}" AS kind, COUNT(*) AS products FROM {self._mapping.index} '
                f'WHERE "{vertical.field}" IN ({marks}) GROUP BY kind ORDER BY products DESC',
                tuple(places),
            )
            with _reading(self._database, timeout) as connection:
                there = connection.execute(statement.sql, statement.parameters).fetchall()
            near = [row["kind"] for row in there if row["kind"] in found]
            return tuple(dict.fromkeys([*near, *(row["kind"] for row in there)]))[:_NEAREST]
        return tuple(name for name, _ in found.most_common(_NEAREST))

    def _run(
        self,
        statements: Sequence[sqlite.Statement],
        limit: int,
        timeout: float,
        given_up: Callable[[], bool] = lambda: False,
    ) -> list[sqlite3.Row]:
        """Return each product once: of the parts' hits in turn, then those of the whole question."""
        with _reading(self._database, timeout, given_up) as connection:
            *parts, whole = [connection.execute(each.sql, each.parameters).fetchall() for each in statements] or [[]]
        in_turn = (row for rank in itertools.zip_longest(*parts) for row in rank if row is not None)
        found: dict[str, sqlite3.Row] = {}
        for row in (*in_turn, *whole):
            found.setdefault(row["id"], row)
        return list(found.values())[:limit]


@contextlib.contextmanager
def _reading(
    database: Path, timeout: float, given_up: Callable[[], bool] = lambda: False
) -> Iterator[sqlite3.Connection]:
    """Open a database that nobody writes any more.

    Raises SearchTimeoutError when `timeout` seconds are over, or as soon as nobody waits.
    """
    end = time.monotonic() + timeout
    connection = sqlite3.connect(f"{database.absolute().as_uri()}?mode=ro&immutable=1", uri=True)
    connection.row_factory = sqlite3.Row
    connection.set_progress_handler(lambda: int(given_up() or time.monotonic() > end), _STEPS_BETWEEN_CHECKS)
    try:
        yield connection
    except sqlite3.OperationalError as error:
        if given_up():
            raise SearchTimeoutError("Nobody waits for this search of the sample shop any more.") from error
        if time.monotonic() <= end:
            raise
        raise SearchTimeoutError(f"The sample shop did not answer within {timeout:g} s.") from error
    finally:
        connection.close()


def _hit(row: sqlite3.Row) -> Hit:
    text = row["description"]
    if len(text) > SNIPPET_CHARACTERS:
        text = text[:SNIPPET_CHARACTERS].rsplit(" ", 1)[0].rstrip(" ,.;:") + " …"
    return Hit(row["id"], row["name"], row["price"], f"{row['category']}, {row['style']}", text)


def _option(hit: Hit, judged: Judged) -> Option:
    return Option(hit.id, hit.name, hit.price, hit.category, hit.snippet, judged)
