"""Cases: questions with assertions about their plans, as the contract of plan version 2 writes them.

What an assertion means belongs to those who judge the planner, and lies outside this repository: the program `check.py`
beside the open cases, whose `holds(plan, assertion)` is used as it is.
"""

import importlib.util
import json
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from service.planner.plan import Plan
from service.planner.question import Question

WORTH_CASES = Path(__file__).with_name("worth_cases.jsonl")  # from which the worth of questions is learnt
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


def passes(plan: Plan | None, case: Case, holds: Holds) -> bool:
    """Tell whether all assertions of a case hold for a plan; for no plan none does."""
    return plan is not None and all(holds(plan.model_dump(mode="json"), wanted) for wanted in case.assertions)
