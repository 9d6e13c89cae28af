"""What judges the plan of each question of the cases, for `benchmarks.rules`."""

import json
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any

from training.data.cases import checker


def judges(cases: Path) -> dict[tuple[str, ...], list[Callable[[dict[str, Any]], bool]]]:
    """Return what judges the plan of each question of the cases."""
    holds = checker(cases)

    def expected(expect: list[Any], plan: dict[str, Any]) -> bool:
        return all(holds(plan, assertion) for assertion in expect)

    def fair(intents: list[str], plan: dict[str, Any]) -> bool:
        return plan["intent"] in intents

    found: dict[tuple[str, ...], list[Callable[[dict[str, Any]], bool]]] = {}
    folder = Path(__file__).with_name("cases")
    for path in sorted(folder.glob("*.jsonl")):
        for line in path.read_text(encoding="utf-8").splitlines():
            case = json.loads(line)
            found.setdefault(asked(case), []).append(partial(expected, case["expect"]))
    for line in (folder / "scope.tsv").read_text(encoding="utf-8").splitlines():
        _, intents, text = line.split("\t")
        found.setdefault(asked({"query": text}), []).append(partial(fair, intents.split("|")))
    return found


def asked(row: dict[str, Any]) -> tuple[str, ...]:
    """Return what tells the questions of cases and of plans apart."""
    return (row.get("locale") or "", *(" ".join(text.split()) for text in (row["query"], *row.get("history", ()))))
