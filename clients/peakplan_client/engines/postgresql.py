"""PostgreSQL's full text: one statement and its parameters, for psycopg. No text of a shopper is part of the statement.

`index` is a table (`schema.table` too) whose column `search` is a tsvector. In it the words of the mapping's first
`text` field have weight A, those of the second B, of the third C, of all others D.
"""

from collections.abc import Sequence
from typing import Any

from peakplan_client.engines import Note, bounds, sorting
from peakplan_client.engines.sqlite import Condition, no_column, ordered, tiers
from peakplan_client.engines.sqlite import Statement as Statement
from peakplan_client.mapping import CatalogueMapping, Value
from peakplan_client.search import AnyOf, Filter, NotInText, Range, Search, Wanted

LENGTH = 1  # ts_rank's normalization: a long text is worth less
_WEIGHTS = "ABCD"
_VECTOR = 'item."search"'


def request(search: Search, mapping: CatalogueMapping, *, limit: int, note: Note) -> Statement:
    """Return the statement. Each text gives `ts_rank` by its weight; boosts multiply their sum.

    Words are parsed by the configuration of the session (`default_text_search_config`), as the column's should be.
    """
    asked = ", ".join(f"to_tsquery(%s) AS text{at}" for at in range(len(search.texts)))
    parameters: list[Any] = [any_word(text.words) for text in search.texts]
    ranks = _ranks(mapping)
    score = " + ".join(
        f"{text.weight:g} * ts_rank('{ranks}', {_VECTOR}, asked.text{at}, {LENGTH})"
        for at, text in enumerate(search.texts)
    )
    order, columns = "score DESC", ""
    if sort := sorting(search, note):
        kinds, facets, values = tiers(search.wanted, lambda each: _wanted(each, mapping))
        columns = f", ({kinds} > 0)::int AS is_kind, {facets} AS has_facets"
        parameters += values
        order = ordered(_name(sort[0]), sort[1])
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
        f"WITH asked AS (SELECT {asked}), scored AS (SELECT item.*{columns}, ({score}) * ({factor}) AS score "
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
    *first, rest = [*mapping.text.values(), *[0.0] * len(_WEIGHTS)][: len(_WEIGHTS)]
    rest = max([rest, *list(mapping.text.values())[len(_WEIGHTS) :]])
    greatest = max(mapping.text.values())
    return "{" + ",".join(f"{weight / greatest:.4f}" for weight in (rest, *reversed(first))) + "}"


def _vector(fields: Sequence[str], mapping: CatalogueMapping) -> str:
    """Return the words of these text fields; of all where none is named."""
    places = list(mapping.text)
    letters = sorted({_WEIGHTS[min(places.index(field), len(_WEIGHTS) - 1)] for field in fields})
    return f"ts_filter({_VECTOR}, '{{{','.join(letters).lower()}}}')" if letters else _VECTOR


def _name(field: str) -> str:
    """Return a quoted name. Raises MappingError."""
    if "." in field:
        raise no_column(field, "PostgreSQL")
    return '"' + field.replace("%", "%%") + '"'  # psycopg reads a single % as a parameter


def _filter(condition: Filter, mapping: CatalogueMapping) -> Condition:
    if isinstance(condition, Range):
        limits = bounds(condition)
        sides = (f"item.{_name(condition.field)} {sign} %s" for sign, _ in limits)
        return " AND ".join(sides), [bound for _, bound in limits]
    if isinstance(condition, AnyOf):
        return _one_of(condition.field, condition.values)
    if isinstance(condition, NotInText):
        inside, values = _has(None, (condition.words,), condition.fields, mapping)
    else:
        inside, values = _one_of(condition.field, condition.values)
    return f"NOT {inside}", values


def _one_of(field: str, values: Sequence[Value]) -> Condition:
    """Return a condition that is never null: texts are compared without case, numbers as numbers."""
    column = f"item.{_name(field)}"
    numbers = [float(value) for value in values if isinstance(value, int | float) and not isinstance(value, bool)]
    texts = [str(value).lower() for value in values if isinstance(value, str | bool)]
    conditions = [f"lower({column}::text) = ANY(%s)"] if texts else []
    conditions += [f"{column} = ANY(%s)"] if numbers else []
    return f"COALESCE({' OR '.join(conditions)}, FALSE)", [each for each in (texts, numbers) if each]


def _wanted(each: Wanted, mapping: CatalogueMapping) -> Condition:
    condition, given = _has(each.field, each.values, each.fields, mapping)
    return f"({condition})::int", given


def _has(field: str | None, values: Sequence[str], fields: Sequence[str], mapping: CatalogueMapping) -> Condition:
    """Return whether a field has one of the values, or without one the text `fields` one of them as a phrase."""
    if field is not None:
        return _one_of(field, values)
    phrases = "SELECT phraseto_tsquery(said) FROM unnest(%s::text[]) AS said"
    return f"({_vector(fields, mapping)} @@ ANY ({phrases}))", [list(values)]
