"""Behaviour: the share of the open cases that pass, by class, as `make eval` measures it.

The cases and what their assertions mean belong to those who judge the planner, and lie outside this repository: a file
of cases, and beside it the program `check.py`, whose `holds(plan, assertion)` is used as it is.
"""

import importlib.util
import json
from collections import Counter
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from service.planner.plan import Plan
from service.planner.question import Question

Holds = Callable[[dict[str, Any], list[Any]], bool]


@dataclass(frozen=True, slots=True)
class Case:
    """One case: a question after its history, its class, and the assertions that all must hold."""

    kind: str
    question: Question
    assertions: tuple[list[Any], ...]


def read_cases(path: Path) -> list[Case]:
    """Read a file of cases, a JSON object a line."""
    rows = [json.loads(line) for line in path.read_text(encoding="utf-8").splitlines() if line.strip()]
    return [
        Case(
            row["class"],
            Question.parse(row["query"], row.get("history", ()), row.get("locale")),
            tuple(row["expect"]),
        )
        for row in rows
    ]


def checker(path: Path) -> Holds:
    """Return `holds` of the `check.py` beside the cases. Raises FileNotFoundError where there is none."""
    program = path.with_name("check.py")
    spec = importlib.util.spec_from_file_location("behaviour_check", program)
    if spec is None or spec.loader is None or not program.is_file():
        raise FileNotFoundError(f"{program} is not there; it says what the assertions of {path.name} mean")
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    holds: Holds = module.holds
    return holds


def behaviour_scores(cases: Sequence[Case], plans: Sequence[Plan | None], holds: Holds) -> dict[str, Any]:
    """Return the share of cases that pass, and how many of each class."""
    passed: Counter[str] = Counter()
    for case, plan in zip(cases, plans, strict=True):
        answer = {} if plan is None else plan.model_dump(mode="json")
        passed[case.kind] += plan is not None and all(holds(answer, assertion) for assertion in case.assertions)
    tried = Counter(case.kind for case in cases)
    return {
        "cases": len(cases),
        "passed": round(passed.total() / len(cases), 4),
        "by_class": {kind: f"{passed[kind]}/{tried[kind]}" for kind in sorted(tried)},
    }
