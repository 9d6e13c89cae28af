"""SQLite with FTS5: one statement and its parameters. No text of a shopper is ever part of the statement.

`index` is a table, `<index>_text` the FTS5 table over its rows, whose columns are the fields of `text` in their order.
"""

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from typing import Any

from peakplan_client.engines import Note, bounds, sorting
from peakplan_client.errors import MappingError
from peakplan_client.mapping import CatalogueMapping, Value
from peakplan_client.search import AnyOf, Filter, NoneOf, NotInText, Search, Wanted

STRONG_MATCH = 0.5  # of the best score: so good is what comes first where a field sorts and nothing is of the kind
Condition = tuple[str, list[Any]]  # SQL and its parameters


@dataclass(frozen=True, slots=True)
class Statement:
    """What `execute` of sqlite3 or psycopg takes. Rows have all columns of the table, and a `score` that grows."""

    sql: str
    parameters: tuple[Any, ...]


def request(search: Search, mapping: CatalogueMapping, *, limit: int, note: Note) -> Statement:
    """Return the statement. Each text gives BM25 scores by its weight; boosts multiply their sum."""
    table, text_table = _name(mapping.index), _name(f"{mapping.index}_text")
    weights = ", ".join(f"{weight:g}" for weight in mapping.text.values())
    found = " UNION ALL ".join(
        f"SELECT rowid AS id, -bm25({text_table}, {weights}) * {text.weight:g} AS score FROM {text_table} "
        f"WHERE {text_table} MATCH ?"
        for text in search.texts
    )
    boosts = [(boost.weight, *_has(boost.field, boost.values, (), text_table)) for boost in search.boosts]
    factor = " + ".join(["1", *(f"{weight:g} * ({condition})" for weight, condition, _ in boosts)])
    conditions = list(_conditions(search.filters, text_table))
    where = " AND ".join(["TRUE", *(condition for condition, _ in conditions)])
    order, columns, tiered = "score DESC", "", list[Any]()
    if sort := sorting(search, note):
        kinds, facets, tiered = tiers(search.wanted, lambda each: _wanted(each, text_table))
        columns = f"({kinds}) > 0 AS is_kind, {facets} AS has_facets, "
        order = ordered(_name(sort[0]), sort[1])
    sql = (
        f"WITH found AS MATERIALIZED ({found}), summed AS (SELECT id, SUM(score) AS score FROM found GROUP BY id), "
        f"scored AS (SELECT item.*, {columns}summed.score * ({factor}) AS score FROM summed JOIN {table} AS item "
        f"ON item.rowid = summed.id WHERE {where}) SELECT * FROM scored ORDER BY {order} LIMIT ?"
    )
    texts = [any_word(text.words) for text in search.texts]
    given = [value for values in (*(each[2] for each in boosts), *(each[1] for each in conditions)) for value in values]
    return Statement(sql, (*texts, *tiered, *given, limit))


def any_word(words: str) -> str:
    """Return an FTS5 expression that any of the words matches: each is a quoted string, which knows no operators."""
    return " OR ".join(f'"{word}"' for word in dict.fromkeys(words.replace('"', " ").split()))


def tiers(wanted: Sequence[Wanted], condition_of: Callable[[Wanted], Condition]) -> tuple[str, str, list[Any]]:
    """Return sums: is it of a kind that is wanted, and how many of all wanted facets has it? With their parameters."""
    sums: dict[bool, list[str]] = {True: ["0"], False: ["0"]}
    values: dict[bool, list[Any]] = {True: [], False: []}
    for each in wanted:
        condition, given = condition_of(each)
        sums[each.is_kind].append(condition)
        values[each.is_kind] += given
    return " + ".join(sums[True]), " + ".join(sums[True] + sums[False]), values[True] + values[True] + values[False]


def ordered(column: str, order: str) -> str:
    """Return the order for a sorted search: products of the kind first; where there are none, good matches."""
    strong = f"(SELECT max(is_kind) FROM scored) = 0 AND score >= {STRONG_MATCH} * (SELECT max(score) FROM scored)"
    return f"is_kind DESC, ({strong}) DESC, has_facets DESC, {column} {order.upper()} NULLS LAST, score DESC"


def no_column(field: str, engine: str) -> MappingError:
    """Return the error of a nested field, which a table does not have."""
    return MappingError(f"{field!r} is no column's name for {engine}: name a column without a dot in the mapping.")


def _name(field: str) -> str:
    """Return a quoted name. Raises MappingError."""
    if "." in field:
        raise no_column(field, "SQLite")
    return f'"{field}"'


def _conditions(filters: Sequence[Filter], text_table: str) -> Iterator[Condition]:
    """Yield the filters, all refusals of a field in one: SQLite takes no expression deeper than 1,000."""
    values: dict[str, dict[str, None]] = {}
    phrases: dict[tuple[str, ...], dict[str, None]] = {}
    for each in filters:
        if isinstance(each, NoneOf):
            values.setdefault(each.field, {}).update(dict.fromkeys(each.values))
        elif isinstance(each, NotInText):
            phrases.setdefault(each.fields, {})[each.words] = None
        elif isinstance(each, AnyOf):
            yield _one_of(each.field, each.values)
        else:
            limits = bounds(each)
            sides = (f"item.{_name(each.field)} {sign} ?" for sign, _ in limits)
            yield " AND ".join(sides), [bound for _, bound in limits]
    for field, refused in values.items():
        inside, given = _has(field, tuple(refused), (), text_table)
        yield f"NOT {inside}", given
    for fields, refused in phrases.items():
        inside, given = _has(None, tuple(refused), fields, text_table)
        yield f"NOT {inside}", given


def _one_of(field: str, values: Sequence[Value]) -> Condition:
    return f"item.{_name(field)} COLLATE NOCASE IN ({', '.join('?' * len(values))})", list(values)


def _wanted(each: Wanted, text_table: str) -> Condition:
    condition, given = _has(each.field, each.values, each.fields, text_table)
    return f"({condition})", given


def _has(field: str | None, values: Sequence[str], fields: Sequence[str], text_table: str) -> Condition:
    """Return whether a field has one of the values, or without one the text `fields`, or all, one as a phrase."""
    if field is not None:
        inside, given = _one_of(field, values)
        return f"COALESCE({inside}, FALSE)", given
    phrases = " OR ".join('"' + words.replace('"', " ") + '"' for words in values)
    columns = f"{{{' '.join(map(_name, fields))}}} : " if fields else ""
    inside = f"SELECT rowid FROM {text_table} WHERE {text_table} MATCH ?"
    return f"summed.id IN ({inside})", [f"{columns}({phrases})"]
