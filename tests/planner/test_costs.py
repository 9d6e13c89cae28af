"""What a question may cost outside the model: linear in its size, and bounded whatever it says.

Work is counted in operations of the interpreter, which no load on the machine changes. The budget is
`peakplan bench costs`'s, which tells the milliseconds too; an ordinary question takes a tenth of it.
"""

import pytest

from rehearsal.bench.operations import operations
from rehearsal.bench.question_cost import OPERATIONS as BUDGET
from rehearsal.bench.question_cost import OPERATIONS_OF_WEIGHT, PIECES, Asked, completing, misspelt, rules
from service.planner.completion import plan_from_text
from service.planner.fallback.making.plans import plan_by_rule
from service.planner.fallback.reading.readers import use_shop
from service.planner.prompt import PlanTask
from service.planner.question import Question
from service.planner.vocabulary import shipped_vocabulary
from tests.planner.walks import random_walk

VOCABULARY = shipped_vocabulary()
WORDS = ("red ", "5 ", "nike ", "size ", "not ", "blu ", "the ")  # "5 5 5 ..." once cost the square of its length
CHARACTERS = 512  # of an utterance: service.api.models.MAX_TEXT_CHARACTERS


def task(piece: str, characters: int, history: int = 0) -> PlanTask:
    text = (piece * CHARACTERS)[:characters]
    return PlanTask(Question.parse(text, [(piece * CHARACTERS)[:44]] * history), VOCABULARY)


def cost(piece: str, characters: int, history: int = 0) -> int:
    """Return the operations that reading a question and planning it by rule take."""

    def work() -> None:
        fresh = task(piece, characters, history)
        plan_by_rule(fresh.conversation, fresh.vocabulary)

    work()  # the first time it may read a list, or look up how a word is spelt
    return operations(work)


@pytest.fixture(scope="module", autouse=True)
def _warm() -> None:
    for piece in PIECES:
        cost(piece, CHARACTERS, 8)


# Those left out read otherwise where they are cut.
@pytest.mark.parametrize("piece", [*WORDS, *(p for p in PIECES if "“" not in p and p != "which or ")])
def test_twice_the_words_cost_twice(piece: str) -> None:
    half, whole = cost(piece, CHARACTERS // 4), cost(piece, CHARACTERS // 2)
    assert whole < 2.5 * half + 10_000


@pytest.mark.parametrize("piece", [*WORDS, *PIECES])
def test_the_largest_question_is_within_the_budget(piece: str) -> None:
    assert cost(piece, CHARACTERS, 8) < BUDGET


@pytest.mark.parametrize("seed", [0, 3, 7])
@pytest.mark.parametrize(
    "piece", ["$1 ", "nike shoes and ", "what about ", "without leather, ", "under $1 ", "red ", "5 "]
)
def test_whatever_the_model_writes_is_completed_within_the_budget(piece: str, seed: int) -> None:
    asked = task(piece, CHARACTERS, 8)
    text = random_walk(asked.question, seed)

    def work() -> None:
        fresh = task(piece, CHARACTERS, 8)
        plan_from_text(text, fresh.question, fresh.vocabulary)

    work()
    assert operations(work) < BUDGET


@pytest.mark.parametrize("piece", [*WORDS, *PIECES[::4]])
def test_the_grammar_of_the_largest_question_is_within_the_budget(piece: str) -> None:
    assert operations(lambda: task(piece, CHARACTERS, 8).grammar) < BUDGET


def test_an_ordinary_question_weighs_one_and_the_largest_its_work() -> None:
    ordinary = Question.parse("quiet blender, not ninja, under $100, cheapest first", ["hello", "kitchen things"])
    assert ordinary.weight == 1
    assert task("$1", CHARACTERS, 8).question.weight == 4
    assert task("a ", 200).question.weight == 2


@pytest.mark.parametrize("piece", [*WORDS, *PIECES[::2]])
@pytest.mark.parametrize(("characters", "history"), [(40, 0), (CHARACTERS, 0), (CHARACTERS, 8)])
def test_the_work_of_a_question_is_within_what_it_weighs(piece: str, characters: int, history: int) -> None:
    """So a caller's rate, which counts weights, bounds the rules' work for it."""
    fresh = task(piece, characters, history)
    asked = Asked(fresh.question.text, fresh.question.utterances[:-1])
    most = fresh.question.weight * OPERATIONS_OF_WEIGHT
    assert cost(piece, characters, history) < most
    work = completing(asked)
    work()
    assert operations(work) < most


@pytest.mark.parametrize("piece", [*WORDS, *PIECES[::2]])
def test_as_much_of_a_long_question_as_of_an_ordinary_one_costs_as_much(piece: str) -> None:
    brief = task(piece, CHARACTERS, 8).question.brief
    assert brief.weight == 1
    assert len(brief.utterances) == 1
    assert operations(rules(Asked(brief.text))) < OPERATIONS_OF_WEIGHT


def test_an_ordinary_question_is_brief() -> None:
    question = Question.parse("red shoes under $40", locale="en-GB")
    assert question.brief == question


@pytest.mark.parametrize("seed", range(4))
def test_words_that_nobody_has_misspelt_before_are_within_the_budget(seed: int) -> None:
    """What is remembered of spellings hid that eighty new ones took 2.4 million operations."""
    asked = Asked(misspelt(seed)[:CHARACTERS])
    for work in (rules(asked), completing(asked)):
        work()
        use_shop(None)
        assert operations(work) < BUDGET
