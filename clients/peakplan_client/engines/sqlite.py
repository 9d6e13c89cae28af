"""SQLite with FTS5: one statement and its parameters. No text of a shopper is ever part of the statement.

`index` is a table, `<index>_text` the FTS5 table over its rows, whose columns are the fields of `text` in their order.
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass

from peakplan_client.errors import MappingError
from peakplan_client.mapping import CatalogueMapping, Value
from peakplan_client.search import AnyOf, Boost, Filter, NoneOf, NotInText, Range, Search, Wanted

STRONG_MATCH = 0.5  # of the best score: so good is what comes first where a field sorts and nothing is of the kind


@dataclass(frozen=True, slots=True)
class Statement:
    """What `sqlite3.Connection.execute` takes. Rows have all columns of the table, and a `score` that grows."""

    sql: str
    parameters: tuple[Value | None, ...]


@dataclass(frozen=True, slots=True)
class _NoneInText:
    """None of the phrases stands in any of the text fields."""

    fields: tuple[str, ...]
    phrases: tuple[str, ...]


_Condition = Range | AnyOf | NoneOf | _NoneInText


def request(search: Search, mapping: CatalogueMapping, *, limit: int, note: Callable[[str], None]) -> Statement:
    """Return the statement. Each text gives BM25 scores by its weight; boosts multiply their sum."""
    table, text_table = _name(mapping.index), _name(f"{mapping.index}_text")
    weights = ", ".join(f"{weight:g}" for weight in mapping.text.values())
    found = " UNION ALL ".join(
        f"SELECT rowid AS id, -bm25({text_table}, {weights}) * {text.weight:g} AS score FROM {text_table} "
        f"WHERE {text_table} MATCH ?"
        for text in search.texts
    )
    parameters: list[Value | None] = [any_word(text.words) for text in search.texts]
    factor = "1"
    for boost in search.boosts:
        condition, values = _boost(boost, text_table)
        factor += f" + {boost.weight:g} * ({condition})"
        parameters += values
    conditions = ["TRUE"]
    for each in _gathered(search.filters):
        condition, values = _filter(each, text_table)
        conditions.append(condition)
        parameters += values
    order, tiers = "score DESC", ""
    if search.sort is not None and search.sort.field is not None:
        tiers, values = _tiers(search.wanted, text_table)
        parameters = [*parameters[: len(search.texts)], *values, *parameters[len(search.texts) :]]
        strong = f"score >= {STRONG_MATCH} * (SELECT MAX(score) FROM scored)"
        best = f"is_kind DESC, (NOT (SELECT MAX(is_kind) FROM scored) AND {strong}) DESC, has_facets DESC"
        order = f"{best}, {_name(search.sort.field)} {search.sort.order.upper()} NULLS LAST, score DESC"
    elif search.sort is not None:
        note("this sort has no field in the mapping: results stay sorted by relevance")
    sql = (
        f"WITH found AS MATERIALIZED ({found}), summed AS (SELECT id, SUM(score) AS score FROM found GROUP BY id), "
        f"scored AS (SELECT item.*, {tiers}summed.score * ({factor}) AS score FROM summed JOIN {table} AS item "
        f"ON item.rowid = summed.id WHERE {' AND '.join(conditions)}) SELECT * FROM scored ORDER BY {order} LIMIT ?"
    )
    return Statement(sql, (*parameters, limit))


def any_word(words: str) -> str:
    """Return an FTS5 expression that any of the words matches: each is a quoted string, which knows no operators."""
    return " OR ".join(f'"{word}"' for word in dict.fromkeys(words.replace('"', " ").split()))


def _phrase(words: str) -> str:
    return '"' + words.replace('"', " ") + '"'


def _any_phrase(texts: Sequence[str]) -> str:
    return " OR ".join(_phrase(words) for words in texts)


def _name(field: str) -> str:
    """Return a quoted name. Raises MappingError for a nested field, which a table does not have."""
    if "." in field:
        raise MappingError(f"{field!r} is no column's name for SQLite: name a column without a dot in the mapping.")
    return f'"{field}"'


def _gathered(filters: Sequence[Filter]) -> list[_Condition]:
    """Return the filters with all refusals of a field in one: SQLite takes no expression deeper than 1,000."""
    values: dict[str, dict[str, None]] = {}
    phrases: dict[tuple[str, ...], dict[str, None]] = {}
    others: list[_Condition] = []
    for each in filters:
        if isinstance(each, NoneOf):
            values.setdefault(each.field, {}).update(dict.fromkeys(each.values))
        elif isinstance(each, NotInText):
            phrases.setdefault(each.fields, {})[each.words] = None
        else:
            others.append(each)
    others += [NoneOf(field, tuple(refused)) for field, refused in values.items()]
    return others + [_NoneInText(fields, tuple(refused)) for fields, refused in phrases.items()]


def _filter(condition: _Condition, text_table: str) -> tuple[str, list[Value | None]]:
    if isinstance(condition, Range):
        column = f"item.{_name(condition.field)}"
        bounds = [(sign, bound) for sign, bound in ((">=", condition.min), ("<=", condition.max)) if bound is not None]
        return " AND ".join(f"{column} {sign} ?" for sign, _ in bounds), [bound for _, bound in bounds]
    if isinstance(condition, _NoneInText):
        columns = " ".join(_name(field) for field in condition.fields)
        inside = f"SELECT rowid FROM {text_table} WHERE {text_table} MATCH ?"
        return f"summed.id NOT IN ({inside})", [f"{{{columns}}} : ({_any_phrase(condition.phrases)})"]
    if isinstance(condition, AnyOf):
        return _one_of(condition.field, condition.values)
    inside, values = _one_of(condition.field, condition.values)
    return f"NOT COALESCE({inside}, FALSE)", values


def _one_of(field: str, values: tuple[Value, ...]) -> tuple[str, list[Value | None]]:
    return f"item.{_name(field)} COLLATE NOCASE IN ({', '.join('?' * len(values))})", list(values)


def _tiers(wanted: Sequence[Wanted], text_table: str) -> tuple[str, list[Value | None]]:
    """Return two columns: is it the kind of thing that is wanted, and how many of the other wanted facets has it?"""
    sums: dict[bool, list[str]] = {True: ["0"], False: ["0"]}
    values: dict[bool, list[Value | None]] = {True: [], False: []}
    for each in wanted:
        condition, given = _boost(Boost(each.field, each.values, 1), text_table, each.fields)
        sums[each.is_kind].append(f"({condition})")
        values[each.is_kind] += given
    kinds, facets = " + ".join(sums[True]), " + ".join(sums[True] + sums[False])
    return f"({kinds}) > 0 AS is_kind, {facets} AS has_facets, ", values[True] + values[True] + values[False]


def _boost(boost: Boost, text_table: str, fields: Sequence[str] = ()) -> tuple[str, list[Value | None]]:
    if boost.field is not None:
        inside, values = _one_of(boost.field, boost.values)
        return f"COALESCE({inside}, FALSE)", values
    inside = f"SELECT rowid FROM {text_table} WHERE {text_table} MATCH ?"
    columns = f"{{{' '.join(map(_name, fields))}}} : " if fields else ""
    return f"summed.id IN ({inside})", [f"{columns}({_any_phrase(boost.values)})"]
