"""What searches of a catalogue find: with a shopper's raw words, and with plans through a mapping."""

import contextlib
import sqlite3
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any, Final, Self

from peakplan_client.indexing import build_index
from peakplan_client.mapping import CatalogueMapping, column
from peakplan_client.plan import Plan as ToldPlan
from peakplan_client.translating import by_words, in_turn, translate

from peakplan.shop.inducing import KIND_FIELD, kind_of
from peakplan.shop.merging import BadRow
from peakplan.shop.products import flat, paths_of
from peakplan.shop.sources import SourceError, rows
from peakplan.shop.texts import Notation, amounts_of, plain
from service.planner.plan import Plan

_ID: Final = "peakplan_id"


class Catalogue:
    """A catalogue in SQLite, searched by the same statements each time: only words, plan and mapping differ."""

    def __init__(self, connection: sqlite3.Connection, mapping: CatalogueMapping, title: str) -> None:
        self._connection = connection
        self.mapping = mapping
        self._title = title

    @classmethod
    @contextlib.contextmanager
    def of(
        cls, source: Path, mapping: CatalogueMapping, summary: Mapping[str, Any], folder: Path, table: str | None = None
    ) -> Iterator[Self]:
        """Index a catalogue's file under `folder`; `summary` is the shop folder's. Raises SourceError."""
        database = folder / "catalogue.sqlite"
        index(source, mapping, summary, database, table)
        mapping = mapping.without_dots()
        title = next(iter(mapping.text))
        with contextlib.closing(sqlite3.connect(f"{database.absolute().as_uri()}?mode=ro", uri=True)) as connection:
            connection.row_factory = sqlite3.Row
            yield cls(connection, mapping, title)

    @property
    def bare_mapping(self) -> CatalogueMapping:
        """The mapping without what was learnt: fields alone, no values and no synonyms."""
        facets = {name: facet.model_copy(update={"values": None}) for name, facet in self.mapping.facets.items()}
        return self.mapping.model_copy(update={"facets": facets, "vertical": None})

    def raw(self, question: str, limit: int) -> list[str]:
        """Return the ids of what any word of a question finds, best first by BM25."""
        return self._run(by_words(question, self.mapping, "sqlite", limit=limit), limit)

    def planned(self, plan: Plan, question: str, mapping: CatalogueMapping, limit: int) -> list[str]:
        """Return the ids of the products that a plan finds; a plan for several things gives each its share."""
        told = ToldPlan.model_validate(plan.model_dump())
        return self._run(translate(told, mapping, "sqlite", question, limit=limit).requests, limit)

    def _run(self, statements: Any, limit: int) -> list[str]:
        found = [[row[_ID] for row in self._connection.execute(each.sql, each.parameters)] for each in statements]
        return list(dict.fromkeys(in_turn(found)))[:limit]

    def titles(self, ids: list[str]) -> dict[str, str]:
        """Return titles by id, without ids that do not exist."""
        marks = ", ".join("?" * len(ids))
        found = self._connection.execute(
            f'SELECT "{_ID}", "{self._title}" FROM "{self.mapping.index}" WHERE "{_ID}" IN ({marks})', ids
        )
        return {row[0]: str(row[1]) for row in found}

    def ids(self) -> frozenset[str]:
        return frozenset(row[0] for row in self._connection.execute(f'SELECT "{_ID}" FROM "{self.mapping.index}"'))


def index(
    source: Path, mapping: CatalogueMapping, summary: Mapping[str, Any], database: Path, table: str | None = None
) -> None:
    """Write a catalogue's file, of a shop folder's `summary`, into a database for SQLite. Raises SourceError."""
    mapping = mapping.without_dots()
    columns = list(dict.fromkeys([_ID, *_fields(mapping.model_dump())]))
    build_index(database, columns, _cells(source, mapping, summary, columns, table), mapping)


def _fields(content: Any) -> Iterator[str]:
    """Yield every field that a mapping names."""
    yield from content["text"]
    one = [content["vertical"], content["price"], content["rating"]]
    for each in (*content["facets"].values(), *content["offers"].values(), *content["sort"].values(), *one):
        if each and each["field"]:
            yield each["field"]


def _cells(
    source: Path, mapping: CatalogueMapping, summary: Mapping[str, Any], columns: list[str], table: str | None
) -> Iterator[list[Any]]:
    """Yield the rows of the table; of several categories the most special counts, of prices in its currency the lowest.

    A price in another currency is none: no bound compares it.
    """
    numeric = {each.field for each in (mapping.price, mapping.rating) if each}
    numeric |= {offer.field for offer in mapping.offers.values() if offer.min is not None}
    named = next((field for field, role in summary["roles"].items() if role == "id"), None)
    notation = {column(name): Notation(*each) for name, each in summary.get("notation", {}).items()}
    kind = mapping.facets["type"].field if "type" in mapping.facets else None
    count = 0
    for found in rows(source, table=table):
        if isinstance(found, BadRow):
            continue
        line, row = found
        fields = {column(name): value for name, value in flat(row)}
        if kind == KIND_FIELD:
            fields[kind] = kind_of(plain(fields.get(next(iter(mapping.text)), "")), summary["kinds"])
        own = fields.get(column(named)) if named else None
        cells: list[Any] = [plain(own) if own is not None else str(line)]
        for name in columns[1:]:
            value, written = fields.get(name), notation.get(name, Notation())
            if name in numeric:
                value = _lowest(value, written.level, mapping)
            elif name == kind and (paths := paths_of(value, written)):
                value = paths[0][1]
            elif isinstance(value, list):
                value = " ".join(map(str, value)) if name in mapping.text else value[-1]
            cells.append(value if value is None or isinstance(value, int | float) else plain(value))
        count += 1
        yield cells
    if not count:
        raise SourceError(f"{source} holds no product")


def _lowest(value: Any, mark: str, mapping: CatalogueMapping) -> float | None:
    """Return the lowest number of a field, of those that say no other currency than the mapping's."""
    own = mapping.price.currency if mapping.price else None
    found = amounts_of(value, mark)
    return min((each.value for each in found if each.currency in (None, own)), default=None)
