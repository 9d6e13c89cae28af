"""The table of docs/figures/mutants.json, for `benchmarks.readme`."""

from typing import Any


def render_mutants(figure: dict[str, Any]) -> str:
    """Return how many mutants the tests noticed in each area, and every other one with why it changes nothing."""
    rows = ["| area | mutants | noticed | share | seed | when |", "|---|---:|---:|---:|---:|---|"]
    for area, row in figure.items():
        share = row["noticed"] / row["tried"]
        when = f"{row['date']}, {row['commit']}"
        rows.append(f"| {area} | {row['tried']} | {row['noticed']} | {share:.2f} | {row['seed']} | {when} |")
    told = [_told(survivor) for row in figure.values() for survivor in row["survivors"]]
    return "\n".join([*rows, "", "What nothing noticed:", "", *(told or ["- nothing"])])


def _told(survivor: dict[str, str]) -> str:
    place = f"{survivor['file']}{', ' + survivor['function'] if survivor['function'] else ''}"
    why = survivor["why"] or "No test notices it yet."
    return f"- {place}: `{_short(survivor['before'])}` became `{_short(survivor['after'])}`. {why}"


def _short(statement: str, most: int = 160) -> str:
    statement = statement.replace("`", "'") or "nothing"
    return statement if len(statement) <= most else f"{statement[:most]} …"
