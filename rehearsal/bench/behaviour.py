"""Behaviour: the share of the open cases that pass, by class, as `make eval` measures it.

The open cases belong to those who judge the planner, and lie outside this repository (`training/data/cases.py`).
"""

from collections import Counter
from collections.abc import Sequence
from typing import Any

from service.planner.plan import Plan
from training.data.cases import Case, Holds, passes


def behaviour_scores(cases: Sequence[Case], plans: Sequence[Plan | None], holds: Holds) -> dict[str, Any]:
    """Return the share of cases that pass, and how many of each class."""
    passed: Counter[str] = Counter()
    for case, plan in zip(cases, plans, strict=True):
        passed[case.kind] += passes(plan, case, holds)
    tried = Counter(case.kind for case in cases)
    return {
        "cases": len(cases),
        "passed": round(passed.total() / len(cases), 4),
        "by_class": {kind: f"{passed[kind]}/{tried[kind]}" for kind in sorted(tried)},
    }
