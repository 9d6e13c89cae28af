"""Tests that taking a rule away is counted: what it changes, for better and for worse, and what it does not change."""

import json
from pathlib import Path
from typing import Any

import pytest

from benchmarks.rule_counts import Counts, counts
from benchmarks.rule_examples import CASES, examples_of, passes_example
from benchmarks.rule_list import Rule, rules
from benchmarks.rules import FIGURE
from benchmarks.rules_that_stay import stays, without_example, without_reason, worth_nothing
from service.planner.fallback.making.plans import plan_by_rule, plan_from_text
from service.planner.question import Question
from service.planner.fallback.reading.conversation import Conversation
from service.planner.vocabulary import SHIPPED_MODEL, shipped_vocabulary

needs_cases = pytest.mark.skipif(
    not CASES.is_file(), reason="what judges a plan comes with the behaviour cases, beside a checkout"
)

ROWS: list[dict[str, Any]] = [
    {"query": "red shoes cheapest first", "history": [], "text": " find Color red Type shoes Fashion"},
    {"query": "red shoes", "history": [], "text": " find Color red Type shoes Fashion"},
    {"query": "blue shoes no suede", "history": [], "text": " find Color blue Type shoes Fashion"},
    {"query": "zapatos por menos de 50 euros", "history": [], "locale": "es-MX", "text": " find Any"},
]
SORTED = Rule("reading/en/phrases.txt", "[sort.price_asc]")
TAKES_BACK = Rule("reading/en/turns.py", "_TAKES_BACK")
DISTINCT = Rule("making/queries.py", "distinct")
FEW = (SORTED, TAKES_BACK, DISTINCT)
MORE = (
    *FEW,
    Rule("reading/en/lists.py", "COLORS"),
    Rule("reading/en/phrases.txt", "[refuse.most]"),  # woven: a number is made of it
    Rule("reading/es/phrases.txt", "[price.high]"),
    Rule("reading/conversation.py", "Conversation.refusals"),
)


def _passes(row: dict[str, Any], plan: str) -> bool:
    """Judge a plan: of a question with "cheapest" it must sort, and every other must not."""
    return ('"sort":"price_asc"' in plan) == ("cheapest" in row["query"])


@pytest.fixture(scope="module")
def counted() -> dict[Rule, Counts]:
    return dict(counts(ROWS, SHIPPED_MODEL, _passes, FEW.__contains__))


def test_every_kind_of_rule_has_a_name() -> None:
    named = set(rules())
    assert {
        SORTED,
        Rule("reading/en/patterns.txt", "[wish]"),
        TAKES_BACK,
        Rule("making/queries.py", "Queries._asked"),
        Rule("making/several.py", "few_parts"),
    } - named == {Rule("making/queries.py", "Queries._asked")}  # which returns a text: there is none to take away


@pytest.mark.parametrize("maker", ["model", "rules"])
def test_a_plan_that_is_another_without_a_rule_is_counted(counted: dict[Rule, Counts], maker: str) -> None:
    assert counted[SORTED][maker] == {"changed": 1, "better": 1, "worse": 0}


def test_a_rule_that_changes_nothing_counts_nothing(counted: dict[Rule, Counts]) -> None:
    nothing = {"changed": 0, "better": 0, "worse": 0}
    assert counted[TAKES_BACK] == {"model": nothing, "rules": nothing}


def test_a_function_is_taken_away_and_what_breaks_without_it_was_its_plan(counted: dict[Rule, Counts]) -> None:
    english = [row for row in ROWS if "locale" not in row]
    assert counted[DISTINCT]["model"]["changed"] == len(english)


def test_a_rule_that_changes_no_plan_stays_for_a_reason() -> None:
    counted_rules = json.loads(FIGURE.read_text(encoding="utf-8"))["rules"]
    standing = {str(rule) for rule in rules()}
    counted_now = {name: count for name, count in counted_rules.items() if name in standing}
    assert without_reason(counted_now) == []
    named = [*worth_nothing(counted_now), *(standing - counted_now.keys())]  # new rules are not counted yet
    assert [stay.pattern.pattern for stay in stays() if not any(map(stay.pattern.fullmatch, named))] == []


def test_a_rule_that_changes_no_plan_of_the_cases_is_shown_by_an_example() -> None:
    figure = json.loads(FIGURE.read_text(encoding="utf-8"))
    standing = {str(rule) for rule in rules()}
    assert (
        without_example({name: one for name, one in figure["rules"].items() if name in standing}, figure["examples"])
        == []
    )


def test_an_example_names_a_rule_that_stands_and_is_counted() -> None:
    named = {row["rule"] for row in examples_of(())}
    assert named - {str(rule) for rule in rules()} == set()
    assert named - json.loads(FIGURE.read_text(encoding="utf-8"))["rules"].keys() == set()


@needs_cases
def test_every_example_is_planned_as_it_must_be() -> None:
    vocabulary = shipped_vocabulary()

    def passes(row: dict[str, Any]) -> bool:
        conversation = Conversation(Question.parse(row["query"], row["history"]))
        plans = (plan_by_rule(conversation, vocabulary), plan_from_text(row["text"], conversation, vocabulary))
        return any(passes_example(row, plan.model_dump_json()) for plan in plans)

    assert [row["query"] for row in examples_of(()) if not passes(row)] == []


@pytest.mark.slow
@needs_cases
def test_an_example_passes_with_its_rule_and_fails_without_it() -> None:
    few = {
        str(rule) for rule in (Rule("reading/claims.py", "Claims.is_model"), Rule("reading/fr/phrases.txt", "[scales]"))
    }
    counted_few = dict(counts(examples_of(few), SHIPPED_MODEL, passes_example, lambda rule: str(rule) in few))
    assert [count["rules"]["better"] for count in counted_few.values()] == [1, 1]


def test_the_contract_asks_for_a_rule_that_stays_in_its_own_words() -> None:
    contract = Path("../shared/behaviour/README.md")
    reasons = {stay.why for stay in stays() if not stay.is_uncounted}
    assert len(reasons) > 1
    if contract.is_file():  # the contract comes with the cases, beside a checkout
        said = " ".join(contract.read_text(encoding="utf-8").split())
        assert [why for why in reasons if why not in said] == []


@pytest.mark.slow
def test_to_plan_only_what_a_rule_may_change_counts_the_same_as_to_plan_all() -> None:
    traced = dict(counts(ROWS, SHIPPED_MODEL, _passes, MORE.__contains__))
    assert traced == dict(counts(ROWS, SHIPPED_MODEL, _passes, MORE.__contains__, trace=False))
    assert sum(count["rules"]["changed"] > 0 for count in traced.values()) > 3
