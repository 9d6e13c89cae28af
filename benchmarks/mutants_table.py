"""The table of docs/figures/mutants.json, for `benchmarks.readme`."""

import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any

_UNCHANGED = Path("tests/mutants/unchanged.jsonl")
Key = tuple[str, str, str, str]


def known_reasons() -> dict[Key, str]:
    """Return why some mutants change nothing."""
    rows = [json.loads(line) for line in _UNCHANGED.read_text(encoding="utf-8").splitlines()]
    return {_key(row): row["why"] for row in rows}


def render_mutants(figure: dict[str, Any], reasons: Mapping[Key, str]) -> str:
    """Return how many mutants the tests noticed in each area, and what is known of every other one."""
    rows = [
        "| area | mutants | noticed | share | change nothing | share of the others | seed | when |",
        "|---|---:|---:|---:|---:|---:|---:|---|",
    ]
    for area, row in figure.items():
        tried, noticed = row["tried"], row["noticed"]
        same = sum(_key(survivor) in reasons for survivor in row["survivors"])
        numbers = (
            f"{tried} | {noticed} | {noticed / tried:.3f} | {same} | {noticed / (tried - same):.3f} | {row['seed']}"
        )
        rows.append(f"| {area} | {numbers} | {row['date']} |")
    told = [_told(survivor, reasons) for row in figure.values() for survivor in row["survivors"]]
    return "\n".join([*rows, "", "What nothing noticed:", "", *(told or ["- nothing"])])


def _key(row: dict[str, str]) -> Key:
    return row["file"], row["function"], row["before"], row["after"]


def _told(survivor: dict[str, str], reasons: Mapping[Key, str]) -> str:
    place = f"{survivor['file']}{', ' + survivor['function'] if survivor['function'] else ''}"
    why = reasons.get(_key(survivor)) or survivor.get("since", "No test noticed it then.")
    return f"- {place}: `{_short(survivor['before'])}` became `{_short(survivor['after'])}`. {why}"


def _short(statement: str, most: int = 160) -> str:
    statement = statement.replace("`", "'") or "nothing"
    return statement if len(statement) <= most else f"{statement[:most]} …"
