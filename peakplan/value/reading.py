"""Files of plans and events as tables: DuckDB reads and sums them, so that ten million events take under a minute.

A file may be of any host, and an event in it several times: what is counted once a plan does not mind, and purchases,
whose values are added, are taken once by their id.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import duckdb

from peakplan.value import interleaving

_PLANS = {
    "record": "VARCHAR", "request_id": "VARCHAR", "caller": "VARCHAR", "time": "DOUBLE", "source": "VARCHAR",
    "release": "VARCHAR", "experiment": "VARCHAR", "arm": "VARCHAR", "client_id": "VARCHAR", "model": "VARCHAR",
    "shop": "VARCHAR", "missed": "BOOLEAN",
}  # fmt: skip
_EVENTS = {
    "record": "VARCHAR", "event_id": "VARCHAR", "caller": "VARCHAR", "time": "DOUBLE", "action_name": "VARCHAR",
    "query_id": "VARCHAR", "client_id": "VARCHAR",
    "event_attributes": "STRUCT(position STRUCT(ordinal INTEGER), milliseconds DOUBLE, results INTEGER, "
    "value DOUBLE, currency VARCHAR, experiment VARCHAR, arm VARCHAR, team VARCHAR)",
}  # fmt: skip
_IN_SECONDS = "REPLACE (CASE WHEN time > 1e11 THEN time / 1000 ELSE time END AS time)"  # some write milliseconds
IN_FRONT = 3  # results that a shopper sees without looking further
MEMORY_MEGABYTES = 1400

# One row a plan. Ids are numbers from here on, which take a fifth of the memory.
_BY_PLAN = """
CREATE TABLE judged AS
SELECT hash(e.caller, e.query_id) AS plan,
  any_value(hash(e.caller, e.client_id)) FILTER (e.client_id IS NOT NULL) AS shopper,
  min(e.time) AS time,
  min(a.milliseconds) FILTER (e.action_name = 'first_shown') AS first_ms,
  min(a.results) FILTER (e.action_name = 'first_shown') AS results,
  count(*) FILTER (e.action_name = 'first_shown') > 0 AS shown,
  min(a.position.ordinal) FILTER (e.action_name IN ('click', 'click_through')) AS click_at,
  min(a.position.ordinal) FILTER (e.action_name = 'add_to_cart') AS cart_at,
  bool_or(e.action_name = 'purchase') AS bought,
  bool_or(e.action_name = 'came_back') AS back,
  any_value(a.experiment) FILTER (e.action_name = 'exposure') AS experiment,
  any_value(a.arm) FILTER (e.action_name = 'exposure') AS arm,
  list(struct_pack(
    experiment := a.experiment, team := a.team, place := coalesce(a.position.ordinal::VARCHAR, event_id)
  )) FILTER (e.action_name IN ('click', 'click_through') AND a.team IS NOT NULL AND a.experiment IS NOT NULL) AS drafted
FROM (SELECT *, event_attributes AS a FROM events WHERE record = 'event' AND action_name <> 'impression') e
GROUP BY ALL
"""
_PURCHASES = """
CREATE TABLE paid AS
SELECT plan, coalesce(currency, '') AS currency, sum(value) AS value
FROM (SELECT DISTINCT hash(caller, query_id) AS plan, hash(caller, event_id) AS id,
        event_attributes.currency AS currency, coalesce(event_attributes.value, 0) AS value
      FROM events WHERE record = 'event' AND action_name = 'purchase')
GROUP BY ALL
"""
_MONEY = "SELECT currency FROM paid WHERE currency <> '' GROUP BY currency ORDER BY sum(value) DESC, currency LIMIT 1"
# Some shops count places from 0: then no first place is 1.
_TABLE = f"""
CREATE TABLE asked AS
WITH counted AS (SELECT coalesce(least(min(click_at), min(cart_at)), 1) > 0 AS from_one FROM judged)
SELECT plan, coalesce(p.planned_at, j.time) AS time, j.first_ms, j.results, j.shown,
  j.click_at < {IN_FRONT} + from_one::INT AS click,
  j.cart_at < {IN_FRONT} + from_one::INT AS cart, j.bought, j.back,
  coalesce(nullif(p.release, ''), '-') AS release, coalesce(m.value, 0) AS value,
  coalesce(p.experiment, j.experiment) AS in_experiment, coalesce(p.arm, j.arm) AS in_arm, p.model, p.shop, p.missed,
  coalesce(CASE WHEN p.client_id IS NOT NULL THEN hash(p.caller, p.client_id) END, j.shopper, plan) AS unit
FROM judged j
FULL JOIN (SELECT hash(caller, request_id) AS plan, any_value(caller) AS caller, any_value(release) AS release,
             any_value(experiment) AS experiment, any_value(arm) AS arm, any_value(client_id) AS client_id,
             min(time) AS planned_at, any_value(model) AS model, any_value(shop) AS shop, bool_or(missed) AS missed
           FROM plans WHERE record = 'plan' GROUP BY ALL) p USING (plan)
LEFT JOIN (SELECT plan, value FROM paid WHERE currency = $currency) m USING (plan)
CROSS JOIN counted
"""
_PARTS = """
SELECT {column} AS name, count(*) AS plans, count(DISTINCT unit) AS shoppers,
  count(*) FILTER (shown) AS shown,
  quantile_cont(first_ms, 0.5) AS first_p50, quantile_cont(first_ms, 0.99) AS first_p99,
  count(*) FILTER (results = 0) AS empty, count(*) FILTER (click) AS clicks, count(*) FILTER (cart) AS carts,
  count(*) FILTER (bought) AS bought, sum(value) AS value,
  count(*) FILTER (back) AS back
FROM asked WHERE {where} GROUP BY ALL ORDER BY name
"""
# One row a shopper, counted from the first plan on, bought or not. A shopper seen in two arms belongs to neither.
_UNITS = """
CREATE TABLE units AS
SELECT in_experiment AS experiment, unit, any_value(in_arm) AS arm, count(DISTINCT in_arm) AS arms, min(time) AS since,
  max(coalesce(bought, false)::INT) AS conversion, sum(value) AS basket, max(coalesce(click, false)::INT) AS click,
  max(coalesce(cart, false)::INT) AS cart, max(coalesce(back, false)::INT) AS back
FROM asked WHERE in_experiment IS NOT NULL AND in_arm IS NOT NULL GROUP BY ALL
"""
MEASURES = ("conversion", "basket", "click", "cart", "back")
_SUMS = ", ".join(f"sum({name}) AS {name}, sum({name}::DOUBLE * {name}) AS {name}_squares" for name in MEASURES)
_ARMS = f"""
SELECT u.experiment, arm, coalesce(since > middle, false) AS late, count(*) AS shoppers, {_SUMS}
FROM units u JOIN (SELECT experiment, median(since) AS middle FROM units GROUP BY ALL) m USING (experiment)
WHERE arms = 1 GROUP BY ALL ORDER BY ALL
"""


# What made an arm's plans: an arm that is a release, a model or a shop folder should have its own alone.
_MAKERS = """
SELECT in_experiment AS experiment, in_arm AS arm, release, coalesce(model, '-') AS model, coalesce(shop, '-') AS shop,
  count(*) AS plans, count(*) FILTER (missed) AS missed
FROM asked WHERE in_experiment IS NOT NULL AND in_arm IS NOT NULL AND model IS NOT NULL
GROUP BY ALL ORDER BY experiment, arm, plans DESC, release, model, shop
"""


class FilesError(Exception):
    """Files that cannot be read; the message names them and what to do."""


@dataclass(frozen=True, slots=True)
class Sums:
    """Everything that a report needs of the files."""

    releases: list[dict[str, Any]]
    arms: list[dict[str, Any]]
    halves: list[dict[str, Any]]  # one row an experiment, an arm and a half of its time
    makers: list[dict[str, Any]]  # one row an experiment, an arm, a release, a model and a shop folder
    interleaved: list[dict[str, Any]]  # one row an experiment: its teams, and where they are two, shoppers' credits
    several: dict[str, int]  # shoppers in more than one arm, by experiment
    currency: str
    other_currencies: int  # plans whose purchases are in another
    events: int


def sums(files: Sequence[Path], threads: int = 2, control: str = "control") -> Sums:
    """Read files of plans and events, told apart by their lines. Raises FilesError."""
    if missing := [str(path) for path in files if not path.is_file()]:
        raise FilesError(f"{', '.join(missing)}: no such file; name plans*.jsonl and events*.jsonl")
    with duckdb.connect() as database:
        database.execute(f"SET threads = {threads}; SET memory_limit = '{MEMORY_MEGABYTES}MB'")
        database.execute("SET preserve_insertion_order = false")
        try:
            return _sums(database, files, control)
        except duckdb.InvalidInputException as error:
            raise FilesError(f"a file is not one of JSON lines: {str(error).splitlines()[0]}") from error


def _sums(database: duckdb.DuckDBPyConnection, files: Sequence[Path], control: str) -> Sums:
    for name, prefix, columns in (("plans", "plans", _PLANS), ("events", "events", _EVENTS)):
        # The service names its files; a file by any other name may have both kinds of lines.
        chosen = [str(path) for path in files if path.name.startswith(prefix)]
        chosen += [str(path) for path in files if not path.name.startswith(("plans", "events", "outcomes"))]
        typed = ", ".join(f"{column}: '{kind}'" for column, kind in columns.items())
        if chosen:
            given = ", ".join("'" + path.replace("'", "''") + "'" for path in chosen)
            source = f"read_json([{given}], format = 'newline_delimited', columns = {{{typed}}})"
            database.execute(f"CREATE VIEW {name} AS SELECT * {_IN_SECONDS} FROM {source}")
        else:
            empty = ", ".join(f"NULL::{kind} AS {column}" for column, kind in columns.items())
            database.execute(f"CREATE VIEW {name} AS SELECT {empty} WHERE false")
    database.execute(_BY_PLAN)
    database.execute(_PURCHASES)
    found = database.execute(_MONEY).fetchone()
    currency = str(found[0]) if found else ""
    database.execute(_TABLE, {"currency": currency})
    database.execute(_UNITS)
    others = _rows(database, "SELECT count(DISTINCT plan) AS n FROM paid WHERE currency <> $c", {"c": currency})
    several = _rows(database, "SELECT experiment, count(*) AS n FROM units WHERE arms > 1 GROUP BY ALL")
    if not _rows(database, "SELECT 1 FROM asked LIMIT 1"):
        raise FilesError("there is neither a plan nor an event in the files: name plans*.jsonl and events*.jsonl")
    arm = "in_experiment || ': ' || in_arm"
    return Sums(
        releases=_rows(database, _PARTS.format(column="release", where="true")),
        arms=_rows(database, _PARTS.format(column=arm, where="in_arm IS NOT NULL AND in_experiment IS NOT NULL")),
        halves=_rows(database, _ARMS),
        makers=_rows(database, _MAKERS),
        interleaved=_interleaved(database, control),
        several={row["experiment"]: row["n"] for row in several},
        currency=currency,
        other_currencies=others[0]["n"],
        events=_rows(database, "SELECT count(*) AS n FROM judged")[0]["n"],
    )


def _interleaved(database: duckdb.DuckDBPyConnection, control: str) -> list[dict[str, Any]]:
    """Return the credits of every interleaving, for its second team; the first is the control, or the first by name."""
    database.execute(interleaving.CHOSEN)
    found = []
    for row in _rows(database, interleaving.TEAMS):
        teams = sorted(row["teams"], key=lambda team: (team != control, team))
        given = {"experiment": row["experiment"], "team": teams[-1]}
        sums = _rows(database, interleaving.CREDITS, given)[0] if len(teams) == 2 else {}
        found.append({"experiment": row["experiment"], "teams": teams, **sums})
    return found


def _rows(database: duckdb.DuckDBPyConnection, query: str, given: dict[str, Any] | None = None) -> list[dict[str, Any]]:
    found = database.execute(query, given or {})
    names = [column[0] for column in found.description or []]
    return [dict(zip(names, row, strict=True)) for row in found.fetchall()]
