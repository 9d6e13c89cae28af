"""The one writer of figures' tables: tables.md.jinja has a macro for each, and every page shows what it gives."""

from collections.abc import Iterable
from functools import cache
from pathlib import Path
from typing import Any

from jinja2 import Environment, FileSystemLoader, StrictUndefined

# Of the twin's errors: shares of the live reading, points of 100, and seconds.
LIMITS = {"p99_ms": 0.10, "by_rule": 1.0, "goodput": 0.03, "alerts": 30.0}
_WORDS = {
    "p99_ms": "p99",
    "by_rule": "points by the reader",
    "goodput": "plans a second",
    "alerts": "seconds of alerts",
}


def render(name: str, figure: dict[str, Any]) -> str:
    """Return a figure's table as Markdown. Raises UndefinedError where the figure lacks what the macro shows."""
    return str(getattr(_template().module, name)(figure)).rstrip("\n")


@cache
def _template() -> Any:
    folder = FileSystemLoader(Path(__file__).parent)
    environment = Environment(  # Markdown for our own pages: nothing in it comes from outside
        loader=folder, trim_blocks=True, lstrip_blocks=True, undefined=StrictUndefined, autoescape=False
    )
    environment.filters |= {"fmt": format, "ranked": _ranked, "plans": _plans, "errors": errors}
    environment.filters |= {"whole": _whole, "harm": _harm, "model": lambda processor: processor.partition(" (")[0]}
    environment.tests["calm"] = _is_calm
    environment.filters |= {"distinct": lambda values: list(dict.fromkeys(values)), "within": lambda key, of: of[key]}
    return environment.get_template("tables.md.jinja")


def _ranked(engines: dict[str, dict[str, Any]]) -> list[tuple[str, dict[str, Any]]]:
    """Return ours first, then the other engines from fast to slow, without those that failed."""
    whole = [(name, one) for name, one in engines.items() if "failed" not in one]
    return sorted(whole, key=lambda item: (item[0] != "Peakplan", item[1]["forward_ms"]["4"]))


def _plans(engines: Iterable[tuple[str, dict[str, Any]]]) -> list[tuple[str, str, dict[str, Any]]]:
    """Return engine, way of decoding and times of plans, the quickest first."""
    every = [(name, how, plan) for name, one in engines for how, plan in one["plans"].items()]
    return sorted(every, key=lambda item: float(item[2]["p50_ms"]))


def _whole(one: dict[str, Any], planner: str, turns: str) -> str:
    """Return the share of a set's first or later turns of which every field is right."""
    return format(one[planner][turns]["whole"], ".2f")


def _harm(found: dict[str, Any]) -> str:
    """Return the share of all turns of which a planner's plan does harm."""
    both = found["first"], found["later"]
    return format(sum(one["harm"] * one["turns"] for one in both) / sum(one["turns"] for one in both), ".3f")


def _is_calm(scenario: str, fleets: dict[str, dict[str, Any]]) -> bool:
    """Tell whether every fleet serves a scenario as well as its nominal day: a row of it would tell nothing new."""
    for fleet in fleets.values():
        nominal, found = fleet["scenarios"].get("nominal"), fleet["scenarios"].get(scenario)
        if found is not None and (
            nominal is None
            or found is nominal
            or not found["holds"]
            or found["breaks_at"]
            or found["pages"]
            or found["worst_p99_ms"] > 1.15 * nominal["worst_p99_ms"]
            or round(found["percent_failed"], 2) > 0.02
            or found["percent_by_rule"] > nominal["percent_by_rule"] + 0.005
        ):
            return False
    return True


def errors(figure: dict[str, Any]) -> str:
    """Return whether the twin's largest errors are within the limits.

    An alert that fired in one of the two alone is within no limit.
    """
    runs = [
        [each, *({**run, "twin": each["twin"]} for run in each.get("more_runs", ()))] for each in figure["scenarios"]
    ]
    every = [run for each in runs for run in each]
    offs = [_off(run) for run in every]
    most = {name: max(abs(off[name]) for off in offs) for name in LIMITS}
    alone = sum(len({alert["name"] for alert in run["alerts"]} ^ set(run["twin"]["alerts"])) for run in every)
    held = [
        f"{_WORDS[name]} {'met' if most[name] <= limit and not (name == 'alerts' and alone) else 'NOT met'} "
        f"({_shown(name, limit)}; {_shown(name, most[name])} at most"
        f"{f'; {alone} fired in one of the two alone' if name == 'alerts' and alone else ''})"
        for name, limit in LIMITS.items()
    ]
    count = max(map(len, runs), default=1)
    of = f"over {count} runs of each scenario, of which the first is shown" if count > 1 else "in one run of each"
    return f"The limits of the twin's errors {of}: {', '.join(held)}."


def _off(run: dict[str, Any]) -> dict[str, float]:
    """Return the twin's errors: shares of the live reading, points of 100, seconds."""
    live, twin = run["live"], run["twin"]
    off = {name: (twin[name] - live[name]) / max(live[name], 1e-9) for name in ("p99_ms", "goodput")}
    known = {alert["name"]: alert["first"] for alert in reversed(run["alerts"])}
    both = [twin["alerts"][name] - at for name, at in known.items() if name in twin["alerts"]]
    return {**off, "by_rule": 100 * (twin["by_rule"] - live["by_rule"]), "alerts": max(both, key=abs, default=0.0)}


def _shown(name: str, value: float) -> str:
    return format(value, {"by_rule": ".1f", "alerts": ".0f"}.get(name, ".1%"))
