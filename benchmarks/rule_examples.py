"""Questions that show what a rule does where no case needs it: rule_examples.jsonl.

They are ours, written from the contract: that a rule has one says that it does something, and nothing of how often a
shopper needs it. Each names its rule, the question, what its plan must be (as in benchmarks/cases), and the model's
text where only that shows it.
"""

import json
from collections.abc import Collection
from functools import cache
from pathlib import Path
from typing import Any

from training.data.cases import checker

EXAMPLES = Path(__file__).with_name("rule_examples.jsonl")
_TEXT = " find Any"  # of a model that names nothing: words decide
CASES = Path("../shared/behaviour/cases.jsonl")  # beside the program that judges


def examples_of(rules: Collection[str]) -> list[dict[str, Any]]:
    """Return the examples of these rules, as `rule_counts` takes them."""
    lines = map(json.loads, EXAMPLES.read_text(encoding="utf-8").splitlines())
    return [{"history": [], "text": _TEXT} | line for line in lines if not rules or line["rule"] in rules]


def passes_example(row: dict[str, Any], plan: str) -> bool:
    """Tell whether the plan of an example is what it must be."""
    holds = _checker()
    return all(holds(json.loads(plan), assertion) for assertion in row["expect"])


@cache
def _checker() -> Any:
    return checker(CASES)
