"""What a question may cost outside the model: linear in its size, and bounded whatever it says.

Work is counted in operations of the interpreter, which no load on the machine changes. The budget is some five
milliseconds on the slowest processor that we tried; an ordinary question takes a tenth of it.
"""

import pytest

from service.planner.making.plans import plan_by_rule, plan_from_text
from service.planner.prompt import PlanTask
from service.planner.question import Question
from service.planner.vocabulary import shipped_vocabulary
from tests.operations import operations
from tests.planner.walks import random_walk

VOCABULARY = shipped_vocabulary()
BUDGET = 500_000
CHARACTERS = 512  # of an utterance: service.api.models.MAX_TEXT_CHARACTERS
PIECES = [
    "$1 ", "$1", "1-", "$", "not a or b ", "under $1 ", "red, ", "without leather, ", "no x ", "cheap ", "a'b ", "- ",
    "xqzzvk ", "nike shoes and ", "red or blue ", "what about ", "any ", "five hundred and ", "between 5 and 10 ",
    "size ", "“a” ", "vs ", "nothing over $5 ", "in stock ", "not from ", "with a ", "compare a and ", "é", "日 ",
]  # fmt: skip


def task(piece: str, characters: int, history: int = 0) -> PlanTask:
    text = (piece * CHARACTERS)[:characters]
    return PlanTask(Question.parse(text, [(piece * CHARACTERS)[:60]] * history), VOCABULARY)


def cost(piece: str, characters: int, history: int = 0) -> int:
    """Return the operations that reading a question and planning it by rule take."""

    def work() -> None:
        fresh = task(piece, characters, history)
        plan_by_rule(fresh.conversation, fresh.vocabulary)

    return operations(work)


@pytest.fixture(scope="module", autouse=True)
def _warm() -> None:
    for piece in PIECES:
        cost(piece, CHARACTERS, 8)


@pytest.mark.parametrize("piece", [piece for piece in PIECES if "“" not in piece])  # a lone quote is another reading
def test_twice_the_words_cost_twice(piece: str) -> None:
    half, whole = cost(piece, CHARACTERS // 4), cost(piece, CHARACTERS // 2)
    assert whole < 2.5 * half + 10_000


@pytest.mark.parametrize("piece", PIECES)
def test_the_largest_question_is_within_the_budget(piece: str) -> None:
    assert cost(piece, CHARACTERS, 8) < BUDGET


@pytest.mark.parametrize("seed", [0, 3, 7])
@pytest.mark.parametrize("piece", ["$1 ", "nike shoes and ", "what about ", "without leather, ", "under $1 "])
def test_whatever_the_model_writes_is_completed_within_the_budget(piece: str, seed: int) -> None:
    asked = task(piece, CHARACTERS, 8)
    text = random_walk(asked.question, seed)

    def work() -> None:
        fresh = task(piece, CHARACTERS, 8)
        plan_from_text(text, fresh.conversation, fresh.vocabulary)

    work()
    assert operations(work) < BUDGET


@pytest.mark.parametrize("piece", PIECES[::4])
def test_the_grammar_of_the_largest_question_is_within_the_budget(piece: str) -> None:
    assert operations(lambda: task(piece, CHARACTERS, 8).grammar) < BUDGET


def test_an_ordinary_question_weighs_one_and_the_largest_its_work() -> None:
    ordinary = Question.parse("quiet blender, not ninja, under $100, cheapest first", ["hello", "kitchen things"])
    assert ordinary.weight == 1
    assert task("$1", CHARACTERS, 8).question.weight == 5
    assert task("a ", 200).question.weight == 3
