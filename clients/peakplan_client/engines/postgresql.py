"""PostgreSQL's full text: one statement and its parameters, for psycopg. No text of a shopper is part of the statement.

`index` is a table (`schema.table` too) whose column `search` is a tsvector. In it the words of the mapping's first
`text` field have weight A, those of the second B, of the third C, of all others D.
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass

from peakplan_client.errors import MappingError
from peakplan_client.mapping import CatalogueMapping, Value
from peakplan_client.search import AnyOf, Filter, NotInText, Range, Search, Wanted

STRONG_MATCH = 0.5  # of the best score: so good is what comes first where a field sorts and nothing is of the kind
LENGTH = 1  # ts_rank's normalization: a long text is worth less
_WEIGHTS = "ABCD"
_VECTOR = 'item."search"'
Parameter = Value | list[str] | list[float] | None


@dataclass(frozen=True, slots=True)
class Statement:
    """What psycopg's `Cursor.execute` takes. Rows have all columns of the table, and a `score` that grows."""

    sql: str
    parameters: tuple[Parameter, ...]


_Condition = tuple[str, list[Parameter]]


def request(search: Search, mapping: CatalogueMapping, *, limit: int, note: Callable[[str], None]) -> Statement:
    """Return the statement. Each text gives `ts_rank` by its weight; boosts multiply their sum.

    Words are parsed by the configuration of the session (`default_text_search_config`), as the column's should be.
    """
    asked = ", ".join(f"to_tsquery(%s) AS text{at}" for at in range(len(search.texts)))
    parameters: list[Parameter] = [any_word(text.words) for text in search.texts]
    ranks = _ranks(mapping)
    score = " + ".join(
        f"{text.weight:g} * ts_rank('{ranks}', {_VECTOR}, asked.text{at}, {LENGTH})"
        for at, text in enumerate(search.texts)
    )
    order, tiers = "score DESC", ""
    if search.sort is not None and search.sort.field is not None:
        tiers, values = _tiers(search.wanted, mapping)
        parameters += values
        strong = f"score >= {STRONG_MATCH} * (SELECT max(score) FROM scored)"
        best = f"is_kind DESC, ((SELECT max(is_kind) FROM scored) = 0 AND {strong}) DESC, has_facets DESC"
        order = f"{best}, {_name(search.sort.field)} {search.sort.order.upper()} NULLS LAST, score DESC"
    elif search.sort is not None:
        note("this sort has no field in the mapping: results stay sorted by relevance")
    factor = "1"
    for boost in search.boosts:
        condition, values = _has(boost.field, boost.values, (), mapping)
        factor += f" + {boost.weight:g} * ({condition})::int"
        parameters += values
    matched = " || ".join(f"asked.text{at}" for at in range(len(search.texts)))
    conditions = [f"{_VECTOR} @@ ({matched})"]
    for each in search.filters:
        condition, values = _filter(each, mapping)
        conditions.append(condition)
        parameters += values
    table = ".".join(f'"{part}"' for part in mapping.index.split("."))
    sql = (
        f"WITH asked AS (SELECT {asked}), scored AS (SELECT item.*{tiers}, ({score}) * ({factor}) AS score "
        f"FROM {table} AS item CROSS JOIN asked WHERE {' AND '.join(conditions)}) "
        f"SELECT * FROM scored ORDER BY {order} LIMIT %s"
    )
    return Statement(sql, (*parameters, limit))


def any_word(words: str) -> str:
    """Return a tsquery that any of the words matches: each is a quoted operand, which knows no operators."""
    quoted = (word.replace("\\", "").replace("'", "''") for word in dict.fromkeys(words.split()))
    return " | ".join(f"'{word}'" for word in quoted)


def _ranks(mapping: CatalogueMapping) -> str:
    """Return the weights of D, C, B and A, the greatest of which is 1."""
    weights = list(mapping.text.values())
    greatest = max(weights)
    of = [weights[at] / greatest if at < len(weights) else 0 for at in range(len(_WEIGHTS))]
    if len(weights) > len(_WEIGHTS):
        of[-1] = max(weights[len(_WEIGHTS) - 1 :]) / greatest
    return "{" + ",".join(f"{weight:.4f}" for weight in reversed(of)) + "}"


def _vector(fields: Sequence[str], mapping: CatalogueMapping) -> str:
    """Return the words of these text fields; of all where none is named."""
    places = list(mapping.text)
    letters = sorted({_WEIGHTS[min(places.index(field), len(_WEIGHTS) - 1)] for field in fields})
    return f"ts_filter({_VECTOR}, '{{{','.join(letters).lower()}}}')" if letters else _VECTOR


def _name(field: str) -> str:
    """Return a quoted name. Raises MappingError for a nested field, which a table does not have."""
    if "." in field:
        raise MappingError(f"{field!r} is no column's name for PostgreSQL: name a column without a dot in the mapping.")
    return '"' + field.replace("%", "%%") + '"'  # psycopg reads a single % as a parameter


def _filter(condition: Filter, mapping: CatalogueMapping) -> _Condition:
    if isinstance(condition, Range):
        column = f"item.{_name(condition.field)}"
        bounds = [(sign, bound) for sign, bound in ((">=", condition.min), ("<=", condition.max)) if bound is not None]
        return " AND ".join(f"{column} {sign} %s" for sign, _ in bounds), [bound for _, bound in bounds]
    if isinstance(condition, NotInText):
        inside, values = _has(None, (condition.words,), condition.fields, mapping)
        return f"NOT {inside}", values
    if isinstance(condition, AnyOf):
        return _one_of(condition.field, condition.values)
    inside, values = _one_of(condition.field, condition.values)
    return f"NOT {inside}", values


def _one_of(field: str, values: Sequence[Value]) -> _Condition:
    """Return a condition that is never null: texts are compared without case, numbers as numbers."""
    column = f"item.{_name(field)}"
    numbers = [float(value) for value in values if isinstance(value, int | float) and not isinstance(value, bool)]
    texts = [str(value).lower() for value in values if isinstance(value, str | bool)]
    conditions = [f"lower({column}::text) = ANY(%s)"] if texts else []
    conditions += [f"{column} = ANY(%s)"] if numbers else []
    return f"COALESCE({' OR '.join(conditions)}, FALSE)", [each for each in (texts, numbers) if each]


def _has(field: str | None, values: Sequence[str], fields: Sequence[str], mapping: CatalogueMapping) -> _Condition:
    """Return whether a field has one of the values, or without one the text `fields` one of them as a phrase."""
    if field is not None:
        return _one_of(field, values)
    phrases = "SELECT phraseto_tsquery(said) FROM unnest(%s::text[]) AS said"
    return f"({_vector(fields, mapping)} @@ ANY ({phrases}))", [list(values)]


def _tiers(wanted: Sequence[Wanted], mapping: CatalogueMapping) -> _Condition:
    """Return two columns: is it the kind of thing that is wanted, and how many of the other wanted facets has it?"""
    sums: dict[bool, list[str]] = {True: ["0"], False: ["0"]}
    values: dict[bool, list[Parameter]] = {True: [], False: []}
    for each in wanted:
        condition, given = _has(each.field, each.values, each.fields, mapping)
        sums[each.is_kind].append(f"({condition})::int")
        values[each.is_kind] += given
    kinds, facets = " + ".join(sums[True]), " + ".join(sums[True] + sums[False])
    columns = f", ({kinds} > 0)::int AS is_kind, {facets} AS has_facets"
    return columns, values[True] + values[True] + values[False]
