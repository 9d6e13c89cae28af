"""Tests that taking a rule away is counted: what it changes, for better and for worse, and what it does not change."""

from typing import Any

import pytest

from benchmarks.rules import Rule, counts, rules
from service.planner.vocabulary import SHIPPED_MODEL

ROWS: list[dict[str, Any]] = [
    {"query": "red shoes cheapest first", "history": [], "text": " find Color red Type shoes Fashion"},
    {"query": "red shoes", "history": [], "text": " find Color red Type shoes Fashion"},
]
SORTED = Rule("reading/en/phrases.txt", "[sort.price_asc]")


def _counted(rule: Rule) -> dict[str, dict[str, int]]:
    """Return a rule's counts where a plan of a question with "cheapest" must sort, and every other must not."""

    def passes(row: dict[str, Any], plan: str) -> bool:
        return ('"sort":"price_asc"' in plan) == ("cheapest" in row["query"])

    ((_, found),) = counts(ROWS, SHIPPED_MODEL, passes, lambda one: one == rule)
    return found


def test_every_kind_of_rule_has_a_name() -> None:
    named = set(rules())
    assert {
        SORTED,
        Rule("reading/en/patterns.txt", "[wish]"),
        Rule("reading/en/turns.py", "_TAKES_BACK"),
        Rule("making/queries.py", "Queries._asked"),
        Rule("making/several.py", "few_parts"),
    } - named == {Rule("making/queries.py", "Queries._asked")}  # which returns a text: there is none to take away


@pytest.mark.parametrize("maker", ["model", "rules"])
def test_a_plan_that_is_another_without_a_rule_is_counted(maker: str) -> None:
    assert _counted(SORTED)[maker] == {"changed": 1, "better": 1, "worse": 0}


def test_a_rule_that_changes_nothing_counts_nothing() -> None:
    nothing = {"changed": 0, "better": 0, "worse": 0}
    assert _counted(Rule("reading/en/turns.py", "_TAKES_BACK")) == {"model": nothing, "rules": nothing}


def test_a_function_is_taken_away_and_what_breaks_without_it_was_its_plan() -> None:
    assert _counted(Rule("making/queries.py", "distinct"))["model"]["changed"] == len(ROWS)
